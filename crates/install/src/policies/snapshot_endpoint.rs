//! Which object stores the clusters may have. Otherwise a tenant could have a runner connect to any address, and learn from the
//! status of the operation what answers there.

use super::cel::cel_list;
use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::InstallOptions;

/// A new object store is one of a list, if there is a list. The one that a cluster has is not checked again. A cluster without an
/// address uses that of AWS, which no user can choose.
pub(super) fn snapshot_endpoint(options: &InstallOptions) -> AdmissionPolicy {
    let endpoint = |root: &str| format!("dyn({root}).?spec.?snapshots.?endpoint.orValue('')");
    AdmissionPolicy {
        name: "kubeon-snapshot-endpoint",
        resource_rules: vec![("ecs.yun.com", "v1", &["kubernetesclusters"])],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        variables: vec![
            ("allowed", cel_list(&options.snapshot_endpoints)),
            ("endpoint", endpoint("object")),
            ("endpointBefore", format!("oldObject == null ? '' : {}", endpoint("oldObject"))),
        ],
        validations: vec![Validation {
            expression: "size(variables.allowed) == 0 || variables.endpoint == '' || \
                         variables.endpoint == variables.endpointBefore || variables.endpoint in variables.allowed"
                .to_owned(),
            message: "'spec.snapshots.endpoint: ' + variables.endpoint + \
                      ' is none of the object stores that the owner of the meta cluster allows: ' + \
                      variables.allowed.join(', ')"
                .to_owned(),
            reason: "Forbidden",
        }],
    }
}
