//! A user who refers to an object that the operator reads must be allowed to read it. Otherwise a user who may declare a
//! cluster could make the operator copy any Secret onto a host of that user.

use super::host_pool;
use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::InstallOptions;

/// A reference to an object.
struct Reference {
    path: &'static [&'static str],
    /// The resource that it refers to.
    resource: &'static str,
    /// The variable that tells whether the object is used at the same places as before.
    same_places: Option<&'static str>,
}

const fn reference(
    path: &'static [&'static str],
    resource: &'static str,
    same_places: Option<&'static str>,
) -> Reference {
    Reference { path, resource, same_places }
}

const SAME_INVENTORY: &str = "sameInventory";
const SAME_LOGINS: &str = "sameLogins";
const SAME_STORE: &str = "sameStore";

const REFERENCES: [Reference; 10] = [
    reference(&["spec", "hostsConfRef"], "configmaps", None),
    reference(&["spec", "varsConfRef"], "configmaps", None),
    reference(&["spec", "kubeConfRef"], "secrets", None),
    reference(&["spec", "sshAuthRef"], "secrets", Some(SAME_INVENTORY)),
    reference(&["spec", "preCheckRef"], "configmaps", None),
    reference(&["spec", "entrypointSHRef"], "configmaps", None),
    reference(&["spec", "actionSourceRef"], "configmaps", None),
    reference(&["spec", "cluster", "authConfig", "credentialsRef"], "secrets", Some(SAME_LOGINS)),
    reference(&["spec", "authConfig", "credentialsRef"], "secrets", Some(SAME_LOGINS)),
    reference(&["spec", "snapshots", "credentialsRef"], "secrets", Some(SAME_STORE)),
];

/// The most hooks that may refer to a ConfigMap: each needs an authorization check, and the API server limits their number
/// per request.
const MOST_SOURCES: usize = 16;

/// References of the three kinds. An unchanged reference is not checked again, except credentials that would be used at other
/// places: at other hosts, ports, users or stores.
pub(super) fn references(options: &InstallOptions) -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-references",
        resource_rules: vec![
            ("ecs.yun.com", "v1", &["kubernetesclusters"]),
            ("kubeonkube.clay.io", "v1alpha1", &["clusters", "clusteroperations"]),
        ],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        // The meaning of a path depends on the kind: `spec.cluster` is an object in one kind and text in another.
        variables: vec![
            ("own", "request.resource.group == 'ecs.yun.com'".to_owned()),
            ("sources", sources("object")),
            ("sourcesBefore", format!("oldObject == null ? [] : {}", sources("oldObject"))),
            (SAME_INVENTORY, unchanged(&["hostsConfRef", "varsConfRef"], "spec")),
            ("logins", logins("object")),
            ("loginsBefore", format!("oldObject == null ? [] : {}", logins("oldObject"))),
            (SAME_LOGINS, "variables.logins.all(login, login in variables.loginsBefore)".to_owned()),
            (SAME_STORE, unchanged(&["folder", "endpoint", "region"], "spec.?snapshots")),
        ],
        validations: REFERENCES
            .iter()
            .map(may_read)
            .chain([not_too_many()])
            .chain((0..MOST_SOURCES).map(may_read_source))
            .collect(),
    }
}

/// The ConfigMaps from which the hooks of an operation take their actions, in order.
fn sources(root: &str) -> String {
    let hooks = |list: &str| format!("dyn({root}).?spec.?{list}.orValue([])");
    format!(
        "({} + {}).filter(hook, hook.?actionSourceRef.?name.orValue('') != '').map(hook, hook.actionSourceRef)",
        hooks("preHook"),
        hooks("postHook")
    )
}

/// Whether these fields of an object are as before.
fn unchanged(fields: &[&str], object: &str) -> String {
    let same = |field: &&str| format!("dyn(object).?{object}.?{field} == dyn(oldObject).?{object}.?{field}");
    format!("oldObject != null && {}", fields.iter().map(same).collect::<Vec<_>>().join(" && "))
}

/// Address, port and user of every host.
fn logins(root: &str) -> String {
    let user = |spec: &str| format!("dyn({root}).?spec.{spec}?authConfig.?username.orValue('')");
    format!(
        "({}).map(host, host.ip + ' ' + string(host.?port.orValue(22)) + ' ' + \
         host.?user.orValue({} + {}))",
        host_pool::hosts(root),
        user("?cluster."),
        user("")
    )
}

fn not_too_many() -> Validation {
    Validation {
        expression: format!("size(variables.sources) <= {MOST_SOURCES}"),
        message: format!(
            "'spec.preHook, spec.postHook: at most {MOST_SOURCES} of them take their action from a ConfigMap, not ' + \
             string(size(variables.sources))"
        ),
        reason: "Invalid",
    }
}

/// One authorization check for each new source; a repeated source is checked once.
fn may_read_source(index: usize) -> Validation {
    let this = format!("variables.sources[{index}]");
    let (namespace, name) = (format!("{this}.?namespace.orValue('')"), format!("{this}.name"));
    Validation {
        expression: format!(
            "size(variables.sources) <= {index} || variables.sources.indexOf({this}) < {index} || \
             {this} in variables.sourcesBefore || \
             authorizer.group('').resource('configmaps').namespace({namespace}).name({name}).check('get').allowed()"
        ),
        message: format!(
            "'spec.preHook, spec.postHook: who refers to configmaps ' + {namespace} + '/' + {name} + \
             ' must be allowed to read it; ' + request.userInfo.username + ' is not'"
        ),
        reason: "Forbidden",
    }
}

fn may_read(reference: &Reference) -> Validation {
    let Reference { path, resource, same_places } = reference;
    let of_a_cluster = path.contains(&"credentialsRef");
    let applies = if of_a_cluster { "variables.own" } else { "!variables.own" };
    let chain = |root: &str| path.iter().fold(format!("dyn({root})"), |text, name| format!("{text}.?{name}"));
    let (now, before) = (chain("object"), chain("oldObject"));
    // The default namespace of a reference is that of the cluster.
    let place = if of_a_cluster { "request.namespace" } else { "''" };
    let namespace = format!("({now}.?namespace.orValue('') == '' ? {place} : {now}.?namespace.orValue(''))");
    let name = format!("{now}.?name.orValue('')");
    let same_places = same_places.map(|variable| format!(" && variables.{variable}")).unwrap_or_default();
    Validation {
        expression: format!(
            "!({applies}) || {name} == '' || (oldObject != null && {now} == {before}{same_places}) || \
             authorizer.group('').resource('{resource}').namespace({namespace}).name({name}).check('get').allowed()"
        ),
        message: format!(
            "'{}: who refers to {resource} ' + {namespace} + '/' + {name} + ' must be allowed to read it; ' + \
             request.userInfo.username + ' is not'",
            path.join(".")
        ),
        reason: "Forbidden",
    }
}
