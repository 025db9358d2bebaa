//! Who may run what on which cluster. An operation has the keys of its cluster's hosts, so its author needs a right on the
//! cluster, and further ones for what can send those keys elsewhere.
//!
//! | verb `use` on | allows |
//! |---|---|
//! | `clusters` | operations on the cluster with our images and without hooks |
//! | `clusters/hooks` | commands of the author: hooks, shell actions, playbooks, scripts, inventories, variables, arguments |
//! | `clusters/images` | images that are not ours |
//!
//! Who cancels, pauses, changes or deletes an operation needs `use` on the cluster that it had before the change. An operation
//! that the operator derived from a `KubernetesCluster` needs the verb `patch` on that object instead: its `spec.cluster` may be
//! the name of a `Cluster` of somebody else, too.

use kubeon_api::kubeonkube::ClusterOperationSpec;
use kubeon_api::labels::{COMPLETED, DERIVED_NAMESPACE, OPERATIONS_CLUSTER};

use super::cel::{cel_list, cel_text, same_as_before};
use super::policy::{AdmissionPolicy, Validation, not_the_garbage_collector, not_the_operator};
use crate::InstallOptions;

/// Labels that the operator reads. Other labels are free.
const STEERING_LABELS: [&str; 2] = [COMPLETED, OPERATIONS_CLUSTER];

/// The rights of the author of an operation, and of who changes or deletes one. What an update leaves as it was is not checked
/// again.
pub(super) fn authors(options: &InstallOptions) -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-operation-authors",
        resource_rules: vec![("kubeonkube.clay.io", "v1alpha1", &["clusteroperations"])],
        operations: &["CREATE", "UPDATE", "DELETE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options), not_the_garbage_collector()],
        variables: variables(options),
        validations: vec![
            author_needs("!variables.moved", "", "spec.cluster: who runs an operation on cluster "),
            author_needs(
                &format!(
                    "variables.deleted || variables.ours || !(variables.moved || {})",
                    changed(&["image"])
                ),
                "images",
                "spec.image: who runs another image than kubeon's on cluster ",
            ),
            author_needs(
                &format!(
                    "variables.deleted || !variables.scripts || !(variables.moved || {})",
                    changed(&SCRIPT_FIELDS)
                ),
                "hooks",
                "spec.preHook, spec.postHook, spec.action: who runs commands on cluster ",
            ),
            changer_needs_use(),
            changer_needs_patch(),
            derived_is_fixed(),
        ],
    }
}

/// A deletion has no `object`, a creation no `oldObject`. Every expression, also of a message, must bear both.
fn variables(options: &InstallOptions) -> Vec<(&'static str, String)> {
    let before = |what: &str| format!("oldObject == null ? '' : oldObject.{what}.orValue('')");
    vec![
        ("deleted", "object == null".to_owned()),
        ("cluster", "object == null ? '' : object.spec.?cluster.orValue('')".to_owned()),
        ("before", before("?spec.?cluster")),
        ("home", before(&format!("metadata.?labels[?{}]", cel_text(DERIVED_NAMESPACE)))),
        ("moved", format!("object != null && (oldObject == null || {})", changed(&["cluster"]))),
        ("touched", touched()),
        ("image", "object == null ? '' : object.spec.?image.orValue('')".to_owned()),
        ("ours", ours(&options.runner_images)),
        ("scripts", SCRIPTS.to_owned()),
    ]
}

/// Whether the request ends or steers an existing operation. Its pods have its annotations, and the garbage collector deletes what
/// has an owner that does not exist.
fn touched() -> String {
    let same = same_as_before(&[
        ("?spec", "{}"),
        ("metadata.?annotations", "{}"),
        ("metadata.?finalizers", "[]"),
        ("metadata.?ownerReferences", "[]"),
    ]);
    format!(
        "oldObject != null && (object == null || !({same} && {}.all(name, \
         object.metadata.?labels[?name].orValue('') == oldObject.metadata.?labels[?name].orValue(''))))",
        cel_list(&STEERING_LABELS)
    )
}

/// Authorizers know names without objects, so operations of a `Cluster` that is gone are no exception.
fn changer_needs_use() -> Validation {
    Validation {
        expression: "!variables.touched || variables.home != '' || \
                     authorizer.group('kubeonkube.clay.io').resource('clusters')\
                     .name(variables.before).check('use').allowed()"
            .to_owned(),
        message: "'spec, metadata: who changes or deletes an operation on cluster ' + variables.before + \
                  ' needs the verb use on clusters; ' + request.userInfo.username + ' has it not'"
            .to_owned(),
        reason: "Forbidden",
    }
}

fn changer_needs_patch() -> Validation {
    Validation {
        expression: "!variables.touched || variables.home == '' || \
                     authorizer.group('ecs.yun.com').resource('kubernetesclusters')\
                     .namespace(variables.home).name(variables.before).check('patch').allowed()"
            .to_owned(),
        message: "'spec, metadata: who changes or deletes an operation of KubernetesCluster ' + variables.home + '/' + \
                  variables.before + ' needs the verb patch on it; ' + request.userInfo.username + ' has it not'"
            .to_owned(),
        reason: "Forbidden",
    }
}

/// What a derived operation does is the operator's decision. People may stop it.
fn derived_is_fixed() -> Validation {
    let free = cel_list(&ClusterOperationSpec::CHANGEABLE);
    Validation {
        expression: format!(
            "variables.home == '' || variables.deleted || (dyn(object).spec.all(field, field in {free} || \
             field in dyn(oldObject).spec && dyn(object).spec[field] == dyn(oldObject).spec[field]) && \
             dyn(oldObject).spec.all(field, field in {free} || field in dyn(object).spec))"
        ),
        message: cel_text(&format!(
            "spec: only {} of an operation of a KubernetesCluster may be changed; change the KubernetesCluster",
            ClusterOperationSpec::CHANGEABLE.join(", ")
        )),
        reason: "Forbidden",
    }
}

/// Whether the image is one of ours, with or without its digest.
fn ours(images: &[String]) -> String {
    format!(
        "{}.exists(known, known == variables.image || known.startsWith(variables.image + '@'))",
        cel_list(images)
    )
}

/// The fields with which an author brings commands. An inventory, variables and arguments of Ansible can name commands too.
const SCRIPT_FIELDS: [&str; 10] = [
    "preHook",
    "postHook",
    "actionType",
    "action",
    "actionSource",
    "actionSourceRef",
    "entrypointSHRef",
    "hostsConfRef",
    "varsConfRef",
    "extraArgs",
];

const SCRIPTS: &str = "object.spec.?preHook.orValue([]).size() > 0 || object.spec.?postHook.orValue([]).size() > 0 || \
                       object.spec.?actionType.orValue('') != 'playbook' || \
                       object.spec.?actionSourceRef.?name.orValue('') != '' || \
                       object.spec.?entrypointSHRef.?name.orValue('') != '' || \
                       object.spec.?hostsConfRef.?name.orValue('') != '' || \
                       object.spec.?varsConfRef.?name.orValue('') != '' || \
                       object.spec.?extraArgs.orValue('') != ''";

/// Whether any of these fields differs from before.
fn changed(fields: &[&str]) -> String {
    let differs = |field: &&str| format!("object.spec.?{field} != oldObject.spec.?{field}");
    format!("({})", fields.iter().map(differs).collect::<Vec<_>>().join(" || "))
}

/// The author must have the verb `use` on the cluster, or on a part of it, unless the condition holds.
fn author_needs(unless: &str, part: &str, what: &str) -> Validation {
    let (subresource, resource) = if part.is_empty() {
        (String::new(), "clusters".to_owned())
    } else {
        (format!(".subresource('{part}')"), format!("clusters/{part}"))
    };
    let needs = format!(" needs the verb use on {resource}; ");
    Validation {
        expression: format!(
            "{unless} || authorizer.group('kubeonkube.clay.io').resource('clusters'){subresource}\
             .name(variables.cluster).check('use').allowed()"
        ),
        message: format!(
            "{} + variables.cluster + {} + request.userInfo.username + ' has it not'",
            cel_text(what),
            cel_text(&needs)
        ),
        reason: "Forbidden",
    }
}
