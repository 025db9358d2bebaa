//! Types for label keys and values, and the names of the annotations, labels and finalizers that kubeon uses.

use std::str::FromStr;

use crate::addresses::DnsName;
use crate::names::{ClusterName, NameError, text_newtype};

/// Annotation: the command channel of the older clients, see [`crate::Operation`].
pub const OPERATION: &str = "app.kubernetes.io/operation";
/// Annotation: JSON of the last spec that was applied successfully, without its secrets.
pub const APPLIED_SPEC: &str = "app.kubernetes.io/spec";
/// Annotation: while its value is [`PROTECTED`], admission refuses to delete the object.
pub const DELETION_PROTECTION: &str = "ecs.yun.com/deletion-protection";
/// All annotations with this effect; examples use the first one.
pub const DELETION_PROTECTIONS: [&str; 2] = [DELETION_PROTECTION, "kubeon.io/deletion-protection"];
/// The value of [`DELETION_PROTECTIONS`] that protects the object.
pub const PROTECTED: &str = "true";
/// Label of a Secret or ConfigMap that the operator created for a cluster. A runner may write only objects with this label.
pub const CLUSTER: &str = "kubeon.io/cluster";
/// Annotation of an object with the label [`CLUSTER`]: the name of the Job whose runner may write it.
pub const JOB: &str = "kubeon.io/job";
/// Annotation of a Secret with the label [`CLUSTER`]: the UID of the `Cluster` that it belongs to. A later `Cluster` of the same name
/// does not get it. Without it the Secret belongs to the next `Cluster` of the name that uses it.
pub const CLUSTER_UID: &str = "kubeon.io/cluster-uid";
/// The field manager with which a runner applies its fields of objects.
pub const RUNNER_MANAGER: &str = "kubeon-runner";
/// Label of a Job, of its pods and of the ConfigMap with its log: the UID of the `ClusterOperation`.
pub const OPERATION_UID: &str = "kubeon.io/operation";
/// The name of the ConfigMap with the log of a Job is the Job's name with this suffix.
pub const JOB_LOG_SUFFIX: &str = "-log";
/// Annotation of that ConfigMap: the pod that wrote it.
pub const POD: &str = "kubeon.io/pod";
/// Annotation of that ConfigMap: the number of bytes of its values.
pub const STORED_BYTES: &str = "kubeon.io/stored-bytes";
/// The key of the last lines of the log in that ConfigMap.
pub const JOB_LOG_KEY: &str = "log";
/// The key of a log that is longer, as a whole, compressed with Zstandard.
pub const JOB_WHOLE_LOG_KEY: &str = "log.zst";
/// The key of the records of steps in that ConfigMap: lines of JSON ([`crate::StepRecord`]), compressed with Zstandard.
pub const JOB_STEPS_KEY: &str = "steps.json.zst";
/// The key with the records that kubectl shows: lines of JSON.
pub const JOB_SHOWN_STEPS_KEY: &str = "steps";
/// The name of the ConfigMap with the plan that a Job made is the Job's name with this suffix.
pub const JOB_PLAN_SUFFIX: &str = "-plan";
/// The key of the plan in that ConfigMap: JSON, compressed with Zstandard.
pub const JOB_PLAN_KEY: &str = "plan.json.zst";
/// Annotation of a Namespace: the addresses and networks of the hosts that its clusters may have, joined by commas.
pub const HOST_POOL: &str = "kubeon.io/host-pool";
/// Annotation of a `ClusterOperation` and of a `KubernetesCluster`: the user who asked for the operation. The webhook
/// writes it; a derived operation has that of its object.
pub const REQUESTED_BY: &str = "kubeon.io/requested-by";
/// Annotation of a `KubernetesCluster` and of its operations: names of host checks whose failure is ignored, joined by
/// commas.
pub const IGNORE_CHECKS: &str = "kubeon.io/ignore-checks";
/// Annotation of a `KubernetesCluster` and of its operations: addresses or names of workers that may be left out when they
/// are unreachable, joined by commas.
pub const WITHOUT: &str = "kubeon.io/without";
/// Annotation of a `KubernetesCluster`: the operation whose plan is approved.
pub const APPROVE: &str = "kubeon.io/approve";
/// Label of an operation that was derived from a `KubernetesCluster`: the object's UID. Only the operator writes it.
pub const DERIVED_UID: &str = "kubeon.io/cluster-uid";
/// Label of an operation that was derived from a `KubernetesCluster`: the object's namespace. Only the operator writes it.
pub const DERIVED_NAMESPACE: &str = "kubeon.io/cluster-namespace";
/// Label of a `ClusterOperation`: its cluster, as older clients select it.
pub const OPERATIONS_CLUSTER: &str = "clusterName";
/// Label of a `ClusterOperation` that ended; its value is `done`.
pub const COMPLETED: &str = "hasCompleted";
/// Prefix of the finalizers of a `KubernetesCluster`; the object's name follows.
pub const FINALIZER_PREFIX: &str = "kubernetescluster.ecs.yun.com/";

/// The finalizer of the `KubernetesCluster` with this name.
#[must_use]
pub fn finalizer(name: &ClusterName) -> String {
    format!("{FINALIZER_PREFIX}{name}")
}

text_newtype! {
    /// The key of a node label: an optional DNS prefix and `/`, then 1 to 63 of A-Z, a-z, 0-9, `-`, `_`, `.`.
    LabelKey
}
text_newtype! {
    /// The value of a label: empty, or 1 to 63 of A-Z, a-z, 0-9, `-`, `_`, `.`, with a letter or digit first and last.
    LabelValue
}

fn is_qualified(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || "-_.".contains(c))
}

impl FromStr for LabelKey {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
        if is_qualified(name) && prefix.is_none_or(|prefix| prefix.parse::<DnsName>().is_ok()) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError::Malformed {
            expected: "a label key such as example.com/disk: up to 63 letters, digits, '-', '_' and '.' after an \
                       optional DNS name and '/', a letter or digit first and last",
            value: text.to_owned(),
        })
    }
}

impl FromStr for LabelValue {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || is_qualified(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError::Malformed {
            expected: "a label value: empty, or up to 63 letters, digits, '-', '_' and '.', a letter or digit first \
                       and last",
            value: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_one_finalizer_per_cluster() {
        assert_eq!(finalizer(&"shop".parse().unwrap()), "kubernetescluster.ecs.yun.com/shop");
    }

    #[test]
    fn accepts_the_labels_that_kubernetes_accepts() {
        for good in ["disk", "example.com/disk", "A_b.c-1"] {
            assert!(good.parse::<LabelKey>().is_ok(), "{good}");
        }
        for bad in ["", "/x", "a/", "a/b/c", "-a", "a b", "Ex.com/a"] {
            assert!(bad.parse::<LabelKey>().is_err(), "{bad}");
        }
        assert!("".parse::<LabelValue>().is_ok());
        assert!("a,b=c".parse::<LabelValue>().is_err());
    }
}
