//! The command channel: the annotation in which clients write commands and the operator writes results.

use kubeon_api::labels::{APPLIED_SPEC, DERIVED_NAMESPACE, DERIVED_UID, OPERATION, PROTECTED};

use super::cel::{annotation, annotation_before, cel_list, cel_text};
use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::{InstallOptions, names};

/// The commands of clients. Other values are written by the operator alone.
const COMMANDS: [&str; 9] = [
    "creating",
    "scaling-up",
    "scaling-down",
    "renewing",
    "repairing",
    "snapshotting",
    "updating",
    "rollbacking",
    "terminating",
];

/// Who may write which command, and in which phase of the cluster.
///
/// A plain `kubectl delete` is allowed in every phase: it waits. `terminating` is refused in other phases, as older clients
/// expect.
pub(super) fn commands(options: &InstallOptions) -> AdmissionPolicy {
    let field = format!("metadata.annotations[{OPERATION}]");
    AdmissionPolicy {
        name: "kubeon-commands",
        resource_rules: vec![("ecs.yun.com", "v1", &["kubernetesclusters"])],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        variables: vec![
            ("word", annotation("object", OPERATION)),
            ("before", annotation_before(OPERATION)),
            ("asked", "variables.word != '' && variables.word != variables.before".to_owned()),
            ("applied", annotation("object", APPLIED_SPEC)),
            ("appliedBefore", annotation_before(APPLIED_SPEC)),
            ("phase", "oldObject == null ? '' : oldObject.?status.?phase.orValue('')".to_owned()),
            ("protected", protected("object")),
        ],
        validations: vec![
            Validation {
                expression: format!("!variables.asked || variables.word in {}", cel_list(&COMMANDS)),
                message: format!(
                    "'{field}: ' + variables.word + ' is not for clients to write; write {}'",
                    COMMANDS.join(", ")
                ),
                reason: "Forbidden",
            },
            Validation {
                expression: "variables.applied == variables.appliedBefore".to_owned(),
                message: format!("'metadata.annotations[{APPLIED_SPEC}]: is written by the operator alone'"),
                reason: "Forbidden",
            },
            from_phase(&field),
            creating(&field),
            Validation {
                expression: "!variables.asked || variables.word != 'terminating' || !variables.protected"
                    .to_owned(),
                message: cel_text(&protection_message()),
                reason: "Forbidden",
            },
        ],
    }
}

/// Contract B, cases 6 to 8; clients know these messages.
fn from_phase(field: &str) -> Validation {
    Validation {
        expression:
            "!variables.asked || variables.word == 'creating' || variables.phase in ['Running', 'Failed']"
                .to_owned(),
        message: format!(
            "'current operation is [' + variables.phase + '],only in running,failed can be ' + \
             (variables.word == 'terminating' ? 'delete cluster' : 'start next task') + ' ({field})'"
        ),
        reason: "Invalid",
    }
}

/// Contract B, cases 30 and 31: a cluster is created once; `creating` is allowed again only after a failure.
fn creating(field: &str) -> Validation {
    Validation {
        expression: "!variables.asked || variables.word != 'creating' || variables.phase == '' || \
                     (variables.phase == 'Failed' && variables.applied == '')"
            .to_owned(),
        message: format!(
            "'{field}: creating is for a cluster that is new or whose creation failed; this one is ' + \
             (variables.applied == '' ? variables.phase : 'made already')"
        ),
        reason: "Invalid",
    }
}

/// A protected cluster is not deleted, by any user.
pub(super) fn deletion_protection() -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-deletion-protection",
        resource_rules: vec![("ecs.yun.com", "v1", &["kubernetesclusters"])],
        operations: &["DELETE"],
        parameters: None,
        match_conditions: vec![],
        variables: vec![],
        validations: vec![Validation {
            expression: format!("!({})", protected("oldObject")),
            message: cel_text(&protection_message()),
            reason: "Forbidden",
        }],
    }
}

/// Only the operator may mark an operation as derived from a `KubernetesCluster`. Otherwise a user could run an operation in
/// another namespace with the credentials of the clusters there.
pub(super) fn derived(options: &InstallOptions) -> AdmissionPolicy {
    let unchanged = |map: &str, names: &[&str]| {
        format!(
            "{}.all(name, object.metadata.?{map}[?name].orValue('') == \
             (oldObject == null ? '' : oldObject.metadata.?{map}[?name].orValue('')))",
            cel_list(names)
        )
    };
    let labels = [DERIVED_UID, DERIVED_NAMESPACE];
    AdmissionPolicy {
        name: "kubeon-derived-operations",
        resource_rules: vec![("kubeonkube.clay.io", "v1alpha1", &["clusteroperations"])],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        variables: vec![],
        validations: vec![
            Validation {
                expression: unchanged("labels", &labels),
                message: cel_text(&format!(
                    "metadata.labels[{}]: are written by the operator alone, on operations that it derives",
                    labels.join(", ")
                )),
                reason: "Forbidden",
            },
            Validation {
                expression: unchanged("annotations", &[APPLIED_SPEC]),
                message: cel_text(&format!(
                    "metadata.annotations[{APPLIED_SPEC}]: is written by the operator alone"
                )),
                reason: "Forbidden",
            },
        ],
    }
}

fn protected(object: &str) -> String {
    let is_protected = |name: &str| format!("{} == {}", annotation(object, name), cel_text(PROTECTED));
    names::DELETION_PROTECTION.map(is_protected).join(" || ")
}

fn protection_message() -> String {
    format!(
        "metadata.annotations[{}]: the cluster is protected from deletion; remove the annotation first",
        names::DELETION_PROTECTION[0]
    )
}
