//! The `ClusterOperation`: one recorded change.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::DataRef;
use super::rules;
use crate::canonical::canonical_json;
use crate::open_words::open_words;
use crate::refusal::Refusal;
use crate::words::words;

words! {
    /// Where a playbook or script comes from.
    ActionSource {
        /// The image of the operation.
        Builtin = "builtin",
        /// A key of a ConfigMap, whose name is the action.
        Configmap = "configmap",
    }

    /// When a hook runs.
    HookMoment {
        /// Only when everything before the hook succeeded.
        OnSuccess = "OnSuccess",
        /// In any case, also after a failure.
        Always = "Always",
    }

    /// The status of an operation that has started. An operation without a status waits; its reason says for what.
    OperationResult {
        /// Its Job runs.
        Running = "Running",
        /// Its Job succeeded.
        Succeeded = "Succeeded",
        /// The operation failed; the reason says why.
        Failed = "Failed",
    }
}

open_words! {
    /// The type of an action. Another value ends the operation as `Failed`, with the reason in its status.
    ActionType {
        /// A playbook, by its file name.
        Playbook = "playbook",
        /// A shell command.
        Shell = "shell",
        /// An operation that kubeon derived from a `KubernetesCluster`.
        Kubeon = "kubeon",
    }
}

/// One change of a cluster, executed by one Job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "kubeonkube.clay.io",
    version = "v1alpha1",
    kind = "ClusterOperation",
    plural = "clusteroperations",
    singular = "clusteroperation",
    status = "ClusterOperationStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    doc = "One change of a cluster. It waits until it may start, runs as one Job and records the result.",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Action", type_ = "string", json_path = ".spec.action"),
    printcolumn(name = "Status", type_ = "string", json_path = ".status.status"),
    printcolumn(name = "Steps", type_ = "string", json_path = ".status.steps.text"),
    printcolumn(name = "Started", type_ = "date", json_path = ".status.startTime"),
    printcolumn(name = "Took", type_ = "string", json_path = ".status.took"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = "1"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::of_operation)]
pub struct ClusterOperationSpec {
    /// The Cluster that it changes.
    #[schemars(length(max = 253))]
    pub cluster: String,
    /// The action.
    #[serde(flatten)]
    pub main: Action,
    /// The image that the Job runs.
    #[schemars(length(max = 512))]
    pub image: String,
    /// Hooks that run before the action, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub pre_hook: Vec<HookAction>,
    /// Hooks that run after the action, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub post_hook: Vec<HookAction>,
    /// The inventory. Default: the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts_conf_ref: Option<DataRef>,
    /// The variables. Default: the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars_conf_ref: Option<DataRef>,
    /// The SSH key. Default: the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_auth_ref: Option<DataRef>,
    /// A script to run instead of the script that is generated from action and hooks.
    #[serde(default, rename = "entrypointSHRef", skip_serializing_if = "Option::is_none")]
    pub entrypoint_sh_ref: Option<DataRef>,
    /// Resource requests and limits of the Job's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Seconds after which Kubernetes ends the Job. Default: 21600, six hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub active_deadline_seconds: Option<i64>,
    /// While true, the operation waits. An operation of a KubernetesCluster that runs already ends its running steps and
    /// continues later; other running operations are not paused. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The operation plans a change of a KubernetesCluster and writes nothing on a host. The log of its Job shows the plan.
    /// Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plan: bool,
    /// The operation whose plan this one applies, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub approves: Option<String>,
    /// When set to true, the operation is ended; its hooks that always run still run. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

impl ClusterOperationSpec {
    /// MD5, in hexadecimal digits, over cluster, action, image and hooks, computed as kube-on-kube does, because its
    /// clients compare it. It detects changes and protects nothing.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut text = format!(
            "kubeonkube{}{}{}{}",
            self.cluster,
            self.main.action_type.as_str(),
            self.main.action.trim(),
            self.image
        );
        for hook in self.pre_hook.iter().chain(&self.post_hook) {
            text.push_str(hook.what.action_type.as_str());
            text.push_str(hook.what.action.trim());
        }
        format!("{:x}", md5::compute(text))
    }
}

impl ClusterOperationSpec {
    /// Fields that may be changed while the operation waits or runs.
    pub const CHANGEABLE: [&'static str; 3] = ["paused", "cancelled", "activeDeadlineSeconds"];

    /// MD5, in hexadecimal digits, over every field that decides what runs, including arguments, references, sources and
    /// resources, which [`Self::digest`] leaves out. It detects changes and protects nothing. It does not depend on the order
    /// of fields, and a later version of this type with more fields has the same digest while they are not set.
    #[must_use]
    pub fn whole_digest(&self) -> String {
        format!("{:x}", md5::compute(canonical_json(&self.fixed_fields())))
    }

    /// Whether a stored digest is [`Self::whole_digest`] of this spec. Operators before `canonical_json` counted fields that
    /// were written as `false` or as empty; their digests are recognized as well.
    #[must_use]
    pub fn has_whole_digest(&self, stored: &str) -> bool {
        stored == self.whole_digest()
            || stored == format!("{:x}", md5::compute(self.fixed_fields().to_string()))
    }

    /// The fields that decide what runs.
    fn fixed_fields(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|field, _| !Self::CHANGEABLE.contains(&field.as_str()));
        }
        value
    }
}

/// One action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::of_action)]
pub struct Action {
    /// The type of the action: `playbook`, `shell` or, for an operation itself, `kubeon`.
    #[schemars(length(max = 63))]
    pub action_type: ActionType,
    /// The file name of a playbook, a shell command, or the name of an operation of kubeon.
    #[schemars(length(max = 65536))]
    pub action: String,
    /// Where the playbook comes from. Default: builtin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "builtin"))]
    pub action_source: Option<ActionSource>,
    /// The ConfigMap of an action whose source is `configmap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_source_ref: Option<DataRef>,
    /// More arguments for `ansible-playbook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16384))]
    pub extra_args: Option<String>,
}

/// An action that runs before or after the main action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rules::of_hook)]
pub struct HookAction {
    /// The action.
    #[serde(flatten)]
    pub what: Action,
    /// When it runs. Default: OnSuccess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<HookMoment>,
}

/// The progress and the result of an operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperationStatus {
    /// The action that the Job was created for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Its Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<DataRef>,
    /// The status of the operation; empty while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<OperationResult>,
    /// The reason for the status, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its Job was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When its Job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The duration of the Job, for a column: `5m12s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<String>,
    /// MD5 over cluster, action and hooks at the time when the operation was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// MD5 over every field that decides what runs, including arguments, references, sources and resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// Whether the spec was changed after it was first seen. The Job runs the spec that was first seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_modified: bool,
    /// The immutable copies of its inputs that the Job reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub inputs: Vec<DataRef>,
    /// The progress of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// Problems of the hosts that were found before any host was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub findings: Vec<Finding>,
    /// The reasons why the operation was refused before any host was changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refusals: Vec<Refusal>,
    /// The pods that were lost with their node, or evicted, and that another one replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub lost_pods: Vec<String>,
    /// The UID of the pod whose runner may write this status. Empty until the operator has seen the pod, and from the loss of the pod
    /// or a pause until it has seen the next one: then any pod of the Job may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub runner_pod: Option<String>,
    /// The operation that must end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Conditions of the operation, one entry for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A check that failed on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The host's address.
    #[schemars(length(max = 64))]
    pub host: String,
    /// The name of the check, by which it can be ignored: `kernel`.
    #[schemars(length(max = 63))]
    pub check: String,
    /// The severity.
    pub severity: FindingSeverity,
    /// Whether the check was ignored on request. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What is wrong and how to fix it.
    #[schemars(length(max = 4096))]
    pub message: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FindingSeverity {
    /// No host is changed unless the check is ignored.
    Error,
    /// The operation continues.
    Warning,
}

/// The progress of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steps {
    /// Number of completed steps.
    pub done: i32,
    /// Number of all steps.
    pub total: i32,
    /// The current step: `etcd on h4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Both numbers as text, for a column: `9/27`.
    pub text: String,
}
