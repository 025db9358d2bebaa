//! Who may change or delete a `Cluster`. Its owner is not recorded, and the role of those who write Clusters is one for the
//! Clusters of all: so the same right decides as for operations, the verb `use`. With a `Cluster`, Kubernetes deletes all of its
//! operations.

use super::cel::same_as_before;
use super::policy::{AdmissionPolicy, Validation, not_the_garbage_collector, not_the_operator};
use crate::InstallOptions;

/// The parts of a `Cluster` that a person writes, each with the value that stands for an absent one. Labels decide which tool
/// prunes an object, and the garbage collector deletes what has an owner that does not exist.
const WRITTEN: [(&str, &str); 5] = [
    ("?spec", "{}"),
    ("metadata.?labels", "{}"),
    ("metadata.?annotations", "{}"),
    ("metadata.?finalizers", "[]"),
    ("metadata.?ownerReferences", "[]"),
];

/// Changes and deletions of Clusters. A creation needs no right on the name, and gives none.
pub(super) fn cluster_changes(options: &InstallOptions) -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-cluster-changes",
        resource_rules: vec![("kubeonkube.clay.io", "v1alpha1", &["clusters"])],
        operations: &["UPDATE", "DELETE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options), not_the_garbage_collector()],
        variables: vec![
            // The name of a deletion of many is not in the request.
            ("name", "oldObject.metadata.name".to_owned()),
            ("unchanged", format!("object != null && {}", same_as_before(&WRITTEN))),
        ],
        validations: vec![Validation {
            expression: "variables.unchanged || authorizer.group('kubeonkube.clay.io').resource('clusters')\
                         .name(variables.name).check('use').allowed()"
                .to_owned(),
            message: "'spec, metadata: who changes or deletes Cluster ' + variables.name + \
                      ' needs the verb use on clusters; ' + request.userInfo.username + ' has it not'"
                .to_owned(),
            reason: "Forbidden",
        }],
    }
}
