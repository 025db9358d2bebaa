//! Inventories are code: they say on which hosts a key is used, as which user, and with which commands. So a user who writes
//! an inventory or the variables of a `Cluster` must be allowed to read the key that its operations use.

use super::policy::{AdmissionPolicy, PolicyParameters, Validation, not_the_operator};
use crate::InstallOptions;

/// The fields of a `Cluster` that name its inventory and its variables.
const INVENTORIES: [&str; 2] = ["hostsConfRef", "varsConfRef"];

/// Writes of ConfigMaps, evaluated for each `Cluster`. An unchanged content is not checked. A deletion is not, either: the
/// object that takes the name is.
pub(super) fn inventories(options: &InstallOptions) -> AdmissionPolicy {
    let key = |field: &str| format!("dyn(params).?spec.?sshAuthRef.?{field}.orValue('')");
    AdmissionPolicy {
        name: "kubeon-inventories",
        resource_rules: vec![("", "v1", &["configmaps"])],
        operations: &["CREATE", "UPDATE"],
        parameters: Some(PolicyParameters {
            api_version: "kubeonkube.clay.io/v1alpha1",
            kind: "Cluster",
            // An API server needs their ConfigMaps before it knows any Cluster, and who writes there owns the meta cluster.
            except_namespaces: &["kube-node-lease", "kube-public", "kube-system"],
        }),
        match_conditions: vec![not_the_operator(options)],
        variables: vec![
            ("inventory", INVENTORIES.map(names_it).join(" || ")),
            ("unchanged", unchanged()),
            ("key", key("name")),
            ("keyNamespace", key("namespace")),
        ],
        validations: vec![Validation {
            expression: "!variables.inventory || variables.unchanged || variables.key == '' || \
                         authorizer.group('').resource('secrets').namespace(variables.keyNamespace)\
                         .name(variables.key).check('get').allowed()"
                .to_owned(),
            message: "'data: this ConfigMap says where Cluster ' + params.metadata.name + ' uses its key; who writes it \
                      must be allowed to read the Secret in its spec.sshAuthRef; ' + request.userInfo.username + \
                      ' is not'"
                .to_owned(),
            reason: "Forbidden",
        }],
    }
}

/// Whether this field of the Cluster names the ConfigMap.
fn names_it(field: &str) -> String {
    let reference = format!("dyn(params).?spec.?{field}");
    format!(
        "({reference}.?namespace.orValue('') == request.namespace && \
         {reference}.?name.orValue('') == object.metadata.?name.orValue(''))"
    )
}

fn unchanged() -> String {
    let same = ["data", "binaryData"].map(|field| format!("object.?{field} == oldObject.?{field}"));
    format!("oldObject != null && {}", same.join(" && "))
}
