//! Names of what is made for an operation: always the same for the same operation, at most 63 characters. What is kept of a
//! business cluster is called after it in full, and is neither a label nor a volume.

use k8s_openapi::jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::kubernetes_cluster::ClusterAction;

/// The longest name that may also be the value of a label.
const LONGEST: usize = 63;

/// Label of a Job and its pods: the operation's UID.
pub const OPERATION_LABEL: &str = "kubeon.io/operation";
/// Annotation of a Job and its pods: the lane of the operation.
pub const QUEUE_KEY_ANNOTATION: &str = "kubeon.io/lane";
/// Label of an operation: its cluster, as older clients select it.
pub const CLUSTER_LABEL: &str = "clusterName";
/// Label of an operation that ended; its value is `done`.
pub const COMPLETED_LABEL: &str = "hasCompleted";
/// Label of an operation that was derived from a `KubernetesCluster`: the object's UID.
pub const DERIVED_UID_LABEL: &str = "kubeon.io/cluster-uid";
/// Label of an operation that was derived from a `KubernetesCluster`: the object's namespace.
pub const DERIVED_NAMESPACE_LABEL: &str = "kubeon.io/cluster-namespace";
/// Annotation of an operation: what the history keeps longest has the lowest number.
pub const SCORE_ANNOTATION: &str = "clay.io/eliminate-score";
/// Annotation of a Job: the digest of the whole spec that it was made from.
pub const SPEC_ANNOTATION: &str = "kubeon.io/spec-digest";
/// Annotation of a derived operation: why it was made, for a person.
pub const WHY_ANNOTATION: &str = "kubeon.io/why";
/// Annotation of a derived operation: the addresses that it is about, joined by commas.
pub const HOSTS_ANNOTATION: &str = "kubeon.io/hosts";
/// The key of the state in its Secret; without it nothing was ever saved.
pub const STATE_KEY: &str = "state.tar.zst";
/// Name of the ConfigMap in the operator's namespace that holds the history limit.
pub const CONFIG: &str = "kubeonkube-config";
/// Its key.
pub const LIMIT_KEY: &str = "CLUSTER_OPERATIONS_BACKEND_LIMIT";

/// The first `digits` hexadecimal digits of the SHA-256 over `parts`, each ended by its length so that no two lists of
/// parts are the same text.
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

/// `text` when it is short enough, else its beginning and a hash of all of it, together `most` characters.
#[must_use]
pub fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let digits = 10;
    let kept: String = text.chars().take(most.saturating_sub(digits + 1)).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), hash(&[text.as_bytes()], digits))
}

fn around(before: &str, text: &str, after: &str) -> String {
    format!("{before}{}{after}", shorten(text, LONGEST.saturating_sub(before.len() + after.len())))
}

/// A label's value for a name of any length.
#[must_use]
pub fn label(text: &str) -> String {
    shorten(text, LONGEST)
}

/// The Job of an operation that a person wrote.
#[must_use]
pub fn job(operation: &str) -> String {
    around("kubeonkube-", operation, "-job")
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

/// Where the log of a Job's pod is kept.
#[must_use]
pub fn log(job: &str) -> String {
    around("", job, "-log")
}

/// The audience of the token with which a Job tells somebody else what came of this operation, and of no other.
#[must_use]
pub fn callback_audience(operation_uid: &str) -> String {
    format!("kubeon-callback/{operation_uid}")
}

/// The Job of a derived operation: `create-<namespace>-<name>-job-<5 hex>`.
#[must_use]
pub fn derived_job(action: &str, namespace: &str, name: &str, operation: &str) -> String {
    let five = hash(&[operation.as_bytes()], 5);
    let verb = ClusterAction::named(action).map_or("operate", ClusterAction::verb);
    around(&format!("{verb}-"), &format!("{namespace}-{name}"), &format!("-job-{five}"))
}

/// The ConfigMap of a derived operation: `kube-<action>-<5 hex>`. With so few digits two operations may meet: then the
/// next `attempt` is tried.
#[must_use]
pub fn derived_config(action: &str, operation: &str, attempt: u8) -> String {
    if attempt == 0 {
        return format!("kube-{action}-{}", hash(&[operation.as_bytes()], 5));
    }
    format!("kube-{action}-{}", hash(&[operation.as_bytes(), &[attempt]], 5))
}

/// A derived operation: the same for one wish, another for a wish that is made again after `since`.
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

/// The Secret with what the engine must remember of a business cluster, which the runner writes.
#[must_use]
pub fn state(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-state")
}

/// The ConfigMap with the SSH keys of a business cluster's hosts, which the runner writes and people mend.
#[must_use]
pub fn known_hosts(namespace: &str, name: &str) -> String {
    format!("{namespace}-{name}-known-hosts")
}

/// The Secret with the admin kubeconfig of a cluster that playbooks made.
#[must_use]
pub fn cluster_kubeconfig(cluster: &str) -> String {
    around("kubeonkube-", cluster, "-kubeconfig")
}

/// The Secret with what the engine must remember of a cluster that playbooks made.
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
    fn fit_into_a_label_whatever_they_are_made_of() {
        let long = format!("{}.{}", "x".repeat(63), "y".repeat(189));
        let other = format!("{}.{}z", "x".repeat(63), "y".repeat(188));
        for name in
            [job(&long), entrypoint(&long, "0123456789"), secret_copy(&long, "0123456789"), log(&long)]
        {
            assert!(name.len() <= 63, "{name}");
        }
        assert_ne!(job(&long), job(&other), "what is cut off still counts");
        let (ns, name) = ("n".repeat(63), "c".repeat(63));
        let operation = derived_operation((&ns, &name, "uid"), "scaling-down", "{}", None);
        assert!(operation.len() <= 63, "{operation}");
        assert!(derived_job("scaling-down", &ns, &name, &operation).len() <= 63);
        assert!(!shorten("aaaa.bbbbbbbbbbbbbbbbbbbbbbbb", 16).contains(".-"));
    }

    /// Its label may not be longer than any other; the operator and the runner each tell the names by themselves.
    #[test]
    fn what_is_kept_of_a_cluster_may_be_called_after_it_in_full() {
        let (ns, name) = ("n".repeat(63), "c".repeat(63));
        for kept in [state(&ns, &name), kubeconfig(&ns, &name), known_hosts(&ns, &name)] {
            assert!(kept.starts_with(&format!("{ns}-{name}-")) && kept.len() <= 253, "{kept}");
        }
        assert!(crate::persisted::cluster(&ns, &name).len() <= LONGEST);
        assert!(cluster_state(&name).len() <= LONGEST && cluster_kubeconfig(&name).len() <= LONGEST);
    }

    #[test]
    fn of_one_wish_are_one_and_of_the_next_another() {
        let at = |second| Timestamp::from_second(second).ok();
        let name = |content, since| derived_operation(("a", "b", "u"), "creating", content, since);
        assert_eq!(name("{}", at(7)), name("{}", at(7)));
        assert_ne!(name("{}", at(7)), name("{}", at(8)));
        assert_ne!(name("{}", at(7)), name("{ }", at(7)));
    }
}
