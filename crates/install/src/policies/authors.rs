//! Who may run what on which cluster. An operation has the keys of its cluster's hosts, so its author needs a right on the
//! cluster, and further ones for what can send those keys elsewhere.
//!
//! | verb `use` on | allows |
//! |---|---|
//! | `clusters` | operations on the cluster with our images and without hooks |
//! | `clusters/hooks` | commands of the author: hooks, shell actions, playbooks, scripts, inventories, variables, arguments |
//! | `clusters/images` | images that are not ours |

use super::cel::{cel_list, cel_text};
use super::policy::{AdmissionPolicy, Validation, not_the_operator};
use crate::InstallOptions;

/// The rights of the author of an operation. What an update leaves as it was is not checked again.
pub(super) fn authors(options: &InstallOptions) -> AdmissionPolicy {
    AdmissionPolicy {
        name: "kubeon-operation-authors",
        resource_rules: vec![("kubeonkube.clay.io", "v1alpha1", &["clusteroperations"])],
        operations: &["CREATE", "UPDATE"],
        parameters: None,
        match_conditions: vec![not_the_operator(options)],
        variables: vec![
            ("cluster", "object.spec.?cluster.orValue('')".to_owned()),
            ("moved", format!("oldObject == null || {}", changed(&["cluster"]))),
            ("image", "object.spec.?image.orValue('')".to_owned()),
            ("ours", ours(&options.runner_images)),
            ("scripts", SCRIPTS.to_owned()),
        ],
        validations: vec![
            author_needs("!variables.moved", "", "spec.cluster: who runs an operation on cluster "),
            author_needs(
                &format!("variables.ours || !(variables.moved || {})", changed(&["image"])),
                "images",
                "spec.image: who runs another image than kubeon's on cluster ",
            ),
            author_needs(
                &format!("!variables.scripts || !(variables.moved || {})", changed(&SCRIPT_FIELDS)),
                "hooks",
                "spec.preHook, spec.postHook, spec.action: who runs commands on cluster ",
            ),
        ],
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
