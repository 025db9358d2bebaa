//! The `ClusterOperation`: one recorded change.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::DataRef;
use super::rules;
use crate::open_words::open_words;
use crate::refusal::Refusal;
use crate::words::words;

words! {
    /// Where a playbook or script comes from.
    ActionSource {
        /// The image.
        Builtin = "builtin",
        /// The key of that name in a ConfigMap.
        Configmap = "configmap",
    }

    /// When a hook runs.
    HookMoment {
        /// Only when everything before it succeeded.
        OnSuccess = "OnSuccess",
        /// Whatever came before, also after a failure.
        Always = "Always",
    }

    /// How an operation stands. One that has no word yet waits; its reason says what for.
    OperationResult {
        /// Its Job works.
        Running = "Running",
        /// Its Job succeeded.
        Succeeded = "Succeeded",
        /// It did not; the reason says why.
        Failed = "Failed",
    }
}

open_words! {
    /// What an action is. Another word ends the operation as `Failed`, with the reason in its status.
    ActionType {
        /// A playbook, by its file name.
        Playbook = "playbook",
        /// A shell command.
        Shell = "shell",
        /// An operation that kubeon derived from a `KubernetesCluster`.
        Kubeon = "kubeon",
    }
}

/// One change of a cluster, done by one Job.
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
    doc = "One change of a cluster: it waits its turn, becomes one Job, and keeps what came of it.",
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
    /// What is done.
    #[serde(flatten)]
    pub main: Action,
    /// The image that the Job runs.
    #[schemars(length(max = 512))]
    pub image: String,
    /// What runs before the action, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub pre_hook: Vec<HookAction>,
    /// What runs after the action, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub post_hook: Vec<HookAction>,
    /// The inventory, where it is not the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts_conf_ref: Option<DataRef>,
    /// The variables, where they are not the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vars_conf_ref: Option<DataRef>,
    /// The key, where it is not the Cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_auth_ref: Option<DataRef>,
    /// A script to run instead of the one that is made from action and hooks.
    #[serde(default, rename = "entrypointSHRef", skip_serializing_if = "Option::is_none")]
    pub entrypoint_sh_ref: Option<DataRef>,
    /// What the Job's container may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Seconds after which the Job is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 604_800))]
    pub active_deadline_seconds: Option<i64>,
    /// While true and before its Job is made, the operation waits. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// When it becomes true the operation is ended, with hooks that always run. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

impl ClusterOperationSpec {
    /// MD5, in hexadecimal digits, over cluster, action, image and hooks; kube-on-kube's, so that its clients find the
    /// digest that they expect. It tells changes apart and protects nothing.
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

/// What may be changed while the operation waits or works: whether it goes on, and how long that may take.
const CHANGEABLE: [&str; 3] = ["paused", "cancelled", "activeDeadlineSeconds"];

impl ClusterOperationSpec {
    /// MD5, in hexadecimal digits, over everything that decides what runs: also over arguments, references, sources and
    /// resources, which [`Self::digest`] does not know. It tells changes apart and protects nothing.
    #[must_use]
    pub fn whole_digest(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|field, _| !CHANGEABLE.contains(&field.as_str()));
        }
        format!("{:x}", md5::compute(value.to_string()))
    }
}

/// One thing to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = rules::of_action)]
pub struct Action {
    /// What it is: `playbook`, `shell` or, for an operation itself, `kubeon`.
    #[schemars(length(max = 63))]
    pub action_type: ActionType,
    /// A playbook's file name, a shell command, or what kubeon is to do.
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

/// What is done before or after the action.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = rules::of_hook)]
pub struct HookAction {
    /// What is done.
    #[serde(flatten)]
    pub what: Action,
    /// When it runs. Default: OnSuccess.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<HookMoment>,
}

/// What came of an operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperationStatus {
    /// The action that the Job was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Its Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_ref: Option<DataRef>,
    /// How it stands; empty while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<OperationResult>,
    /// Why it stands so, for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When its Job was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When its Job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// How long that was, for a column: `5m12s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took: Option<String>,
    /// MD5 over cluster, action and hooks at the time when the operation was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The same over everything that decides what runs: arguments, references, sources and resources too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<String>,
    /// Whether the spec was changed after it was first seen. What runs is what was seen first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_modified: bool,
    /// The immutable copies of its inputs that the Job reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub inputs: Vec<DataRef>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// What was found wrong with the hosts before anything was done to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub findings: Vec<Finding>,
    /// Why the operation was refused before anything was done to the hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub refusals: Vec<Refusal>,
    /// The operation that must end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// What is true of it, one entry for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// A check that does not hold on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The host's address.
    #[schemars(length(max = 64))]
    pub host: String,
    /// The check's name, under which it may be ignored: `kernel`.
    #[schemars(length(max = 63))]
    pub check: String,
    /// How bad it is.
    pub severity: FindingSeverity,
    /// Whether somebody said that it does not matter. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignored: bool,
    /// What is wrong and the way out.
    #[schemars(length(max = 4096))]
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FindingSeverity {
    /// Nothing is done to any host, unless it is ignored.
    Error,
    /// A person should know.
    Warning,
}

/// How far an operation is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steps {
    /// Steps that stand.
    pub done: i32,
    /// All steps.
    pub total: i32,
    /// The step that it is at: `etcd on h4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// All of it in one word for a column: `9/27`.
    pub text: String,
}
