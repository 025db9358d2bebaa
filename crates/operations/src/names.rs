//! Names of the objects that are created for an operation. A name is always the same for the same operation
//! and has at most 63 characters. The logs of Jobs and the persisted objects of a business cluster have full
//! names, because they are neither labels nor volumes.

use k8s_openapi::jiff::Timestamp;
use kubeon_api::labels;
use sha2::{Digest as _, Sha256};

use crate::kubernetes_cluster::ClusterAction;

/// The longest name that may also be the value of a label.
const LONGEST: usize = 63;
/// The longest name of a Job. Kubernetes cuts it in the names of pods if it is longer, and the runner's policies tell the pods of
/// two Jobs apart by it.
const LONGEST_JOB: usize = 57;

/// Label of a Job and its pods: the operation's UID.
pub const OPERATION_LABEL: &str = labels::OPERATION_UID;
/// Annotation of a Job and its pods: the queue key of the operation.
pub const QUEUE_KEY_ANNOTATION: &str = "kubeon.io/queue-key";
/// The former name of [`QUEUE_KEY_ANNOTATION`], on Jobs that an older operator created.
pub const OLD_QUEUE_KEY_ANNOTATION: &str = "kubeon.io/lane";
/// Label of an operation: its cluster, as older clients select it.
pub const CLUSTER_LABEL: &str = labels::OPERATIONS_CLUSTER;
/// Label of an operation that ended; its value is `done`.
pub const COMPLETED_LABEL: &str = labels::COMPLETED;
/// Label of an operation that was derived from a `KubernetesCluster`: the object's UID.
pub const DERIVED_UID_LABEL: &str = "kubeon.io/cluster-uid";
/// Label of an operation that was derived from a `KubernetesCluster`: the object's namespace.
pub const DERIVED_NAMESPACE_LABEL: &str = "kubeon.io/cluster-namespace";
/// Annotation of an operation: the history keeps operations with low numbers longest.
pub const SCORE_ANNOTATION: &str = "clay.io/eliminate-score";
/// Annotation of a Job: the digest of the whole spec that the Job was created from.
pub const SPEC_ANNOTATION: &str = "kubeon.io/spec-digest";
/// Annotation of a derived operation: why it was created, for the user.
pub const WHY_ANNOTATION: &str = "kubeon.io/why";
/// Annotation of a derived operation: the addresses of its hosts, joined by commas.
pub const HOSTS_ANNOTATION: &str = "kubeon.io/hosts";
/// The key of the state in its Secret. Without this key, the state was never saved.
pub const STATE_KEY: &str = "state.tar.zst";
/// The key of a kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// Name of the ConfigMap in the operator's namespace that holds the history limit.
pub const CONFIG: &str = "kubeonkube-config";
/// The key of the limit in that ConfigMap.
pub const LIMIT_KEY: &str = "CLUSTER_OPERATIONS_BACKEND_LIMIT";

/// The first `digits` hexadecimal digits of the SHA-256 over `parts`. The length of each part is hashed after
/// it, so that different lists of parts have different hashes.
#[must_use]
pub fn hash(parts: &[&[u8]], digits: usize) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        sha.update(part);
        sha.update((part.len() as u64).to_be_bytes());
    }
    let mut text = hex::encode(sha.finalize());
    text.truncate(digits);
    text
}

/// `text` when it has at most `most` characters, else its beginning and a hash of the whole text, together
/// `most` characters.
#[must_use]
pub fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let digits = 10;
    let beginning: String = text.chars().take(most.saturating_sub(digits + 1)).collect();
    format!("{}-{}", beginning.trim_end_matches(['-', '.']), hash(&[text.as_bytes()], digits))
}

fn around(before: &str, text: &str, after: &str) -> String {
    within(LONGEST, before, text, after)
}

fn within(longest: usize, before: &str, text: &str, after: &str) -> String {
    format!("{before}{}{after}", shorten(text, longest.saturating_sub(before.len() + after.len())))
}

/// A label's value for a name of any length.
#[must_use]
pub fn label(text: &str) -> String {
    shorten(text, LONGEST)
}

/// The Job of an operation that a user wrote.
#[must_use]
pub fn job(operation: &str) -> String {
    within(LONGEST_JOB, "kubeonkube-", operation, "-job")
}

/// The immutable copy of script, inventory and variables.
#[must_use]
pub fn entrypoint(operation: &str, content: &str) -> String {
    around("", operation, &format!("-entrypoint-{content}"))
}

/// The immutable copy of a Secret.
#[must_use]
pub fn secret_copy(secret: &str, content: &str) -> String {
    around("", secret, &format!("-{content}"))
}

/// The ConfigMap with the log of a Job's pod. It is never shortened: the runner and its policy know this name, too.
#[must_use]
pub fn log(job: &str) -> String {
    format!("{job}{}", labels::JOB_LOG_SUFFIX)
}

/// The ConfigMap with the plan that a Job made. Like that of the log, it is never shortened.
#[must_use]
pub fn plan(job: &str) -> String {
    format!("{job}{}", labels::JOB_PLAN_SUFFIX)
}

/// The audience of the token with which a Job reports the result of this operation to another server. No
/// other operation has this audience.
#[must_use]
pub fn callback_audience(operation_uid: &str) -> String {
    format!("kubeon-callback/{operation_uid}")
}

/// The Job of a derived operation: `create-<namespace>-<name>-job-<5 hex>`.
#[must_use]
pub fn derived_job(action: &str, namespace: &str, name: &str, operation: &str) -> String {
    let five = hash(&[operation.as_bytes()], 5);
    let verb = ClusterAction::named(action).map_or("operate", ClusterAction::verb);
    within(LONGEST_JOB, &format!("{verb}-"), &format!("{namespace}-{name}"), &format!("-job-{five}"))
}

/// The ConfigMap of a derived operation: `kube-<action>-<5 hex>`. Two operations may get the same five
/// digits; then the next `attempt` is tried.
#[must_use]
pub fn derived_config(action: &str, operation: &str, attempt: u8) -> String {
    if attempt == 0 {
        return format!("kube-{action}-{}", hash(&[operation.as_bytes()], 5));
    }
    format!("kube-{action}-{}", hash(&[operation.as_bytes(), &[attempt]], 5))
}

/// The name of a derived operation. It is the same each time it is computed for one change, and another one
/// for a change that is requested again after `since`.
#[must_use]
pub fn derived_operation(
    (namespace, name, uid): (&str, &str, &str),
    action: &str,
    content: &str,
    since: Option<Timestamp>,
) -> String {
    let since = since.map(|at| at.as_second().to_string()).unwrap_or_default();
    let tail = hash(&[uid.as_bytes(), action.as_bytes(), content.as_bytes(), since.as_bytes()], 10);
    around("", &format!("{namespace}-{name}"), &format!("-{action}-{tail}"))
}

/// The Secret with a business cluster's admin kubeconfig, which the runner writes.
#[must_use]
pub fn kubeconfig(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-kubeconfig")
}

/// The Secret with the kubeconfig with which the operator observes a business cluster; the runner writes it.
#[must_use]
pub fn observer(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-observer")
}

/// The Secret with the engine's state of a business cluster, which the runner writes.
#[must_use]
pub fn state(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-state")
}

/// The ConfigMap with the SSH host keys of a business cluster, which the runner writes and users may edit.
#[must_use]
pub fn known_hosts(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-known-hosts")
}

/// The Secret with the admin kubeconfig of a cluster that playbooks created.
#[must_use]
pub fn cluster_kubeconfig(cluster: &str) -> String {
    around("kubeonkube-", cluster, "-kubeconfig")
}

/// The Secret with the engine's state of a cluster that playbooks created.
#[must_use]
pub fn cluster_state(cluster: &str) -> String {
    around("kubeonkube-", cluster, "-state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_those_of_the_contracts() {
        assert_eq!(job("myops"), "kubeonkube-myops-job");
        assert_eq!(entrypoint("myops", "0123456789"), "myops-entrypoint-0123456789");
        let job = derived_job("creating", "default", "test-cluster", "any");
        let five = job.strip_prefix("create-default-test-cluster-job-").unwrap();
        assert!(five.len() == 5 && five.chars().all(|c| c.is_ascii_hexdigit()), "{job}");
        assert!(derived_job("terminating", "a", "b", "c").starts_with("delete-a-b-job-"));
        assert!(derived_config("creating", "any", 0).starts_with("kube-creating-"));
        assert_ne!(derived_config("creating", "any", 0), derived_config("creating", "any", 1));
    }

    #[test]
    fn names_of_any_input_fit_into_a_label() {
        let long = format!("{}.{}", "x".repeat(63), "y".repeat(189));
        let other = format!("{}.{}z", "x".repeat(63), "y".repeat(188));
        for name in [job(&long), entrypoint(&long, "0123456789"), secret_copy(&long, "0123456789")] {
            assert!(name.len() <= 63, "{name}");
        }
        assert_eq!(log(&job(&long)), format!("{}-log", job(&long)));
        assert_ne!(job(&long), job(&other), "names that differ only in the removed part must stay different");
        let (ns, name) = ("n".repeat(63), "c".repeat(63));
        let operation = derived_operation((&ns, &name, "uid"), "scaling-down", "{}", None);
        assert!(operation.len() <= 63, "{operation}");
        let derived = derived_job("scaling-down", &ns, &name, &operation);
        // Kubernetes keeps 58 characters of a Job's name and its dash in the names of its pods.
        for job in [derived, job(&long)] {
            assert!(job.len() < 58, "{job}");
        }
        assert!(!shorten("aaaa.bbbbbbbbbbbbbbbbbbbbbbbb", 16).contains(".-"));
    }

    /// The label must fit into 63 characters; the operator and the runner compute the names independently.
    #[test]
    fn persisted_objects_have_the_full_name_of_their_cluster() {
        let (ns, name) = ("n".repeat(63), "c".repeat(63));
        for persisted in
            [state(&ns, &name), kubeconfig(&ns, &name), observer(&ns, &name), known_hosts(&ns, &name)]
        {
            assert!(persisted.starts_with(&format!("{ns}-{name}-")) && persisted.len() <= 253, "{persisted}");
        }
        assert!(crate::persisted::cluster(&ns, &name).len() <= LONGEST);
        assert!(cluster_state(&name).len() <= LONGEST && cluster_kubeconfig(&name).len() <= LONGEST);
    }

    #[test]
    fn one_change_has_one_name_and_the_next_change_has_another() {
        let at = |second| Timestamp::from_second(second).ok();
        let name = |content, since| derived_operation(("a", "b", "u"), "creating", content, since);
        assert_eq!(name("{}", at(7)), name("{}", at(7)));
        assert_ne!(name("{}", at(7)), name("{}", at(8)));
        assert_ne!(name("{}", at(7)), name("{ }", at(7)));
    }
}
