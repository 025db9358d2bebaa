//! The plan and its outcome.

use std::collections::BTreeMap;

use kubeon_api::{ClusterName, HostAddress, HostName, HostRole, Refusal, Version};
use kubeon_wire::{Fence, Op, StepFailure};
use serde::{Deserialize, Serialize};

use crate::stage_name::StageName;
use crate::step_id::StepId;

/// An ordered list of steps from the observed state to the desired state. It is complete: `apply` makes no
/// decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The cluster.
    pub cluster: ClusterName,
    /// The Kubernetes version after the plan.
    pub version: Version,
    /// The version of the nodes' programs after the plan, if it is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_at: Option<Version>,
    /// The generation of the fence. If the plan has steps, it is higher than every observed generation.
    pub generation: u64,
    /// The hosts of the plan, with the fence of each session.
    pub hosts: BTreeMap<HostAddress, PlannedHost>,
    /// The steps. A step comes after everything in its `needs`.
    pub steps: Vec<Step>,
    /// Whether another plan must follow when every step is done: this plan resets a host, and the next one
    /// joins it again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The number of steps that are up to date, as checked on the hosts.
    #[serde(rename = "standing")]
    pub up_to_date: usize,
    /// The number of facts that the plan is based on.
    pub facts: usize,
    /// Whether the owner of the cluster installs the network of the pods, and none was seen yet: no step waits for Ready nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_network: bool,
    /// Warnings. They do not stop the plan.
    pub notes: Vec<Note>,
    /// The hosts of the cluster that could not be observed. Nothing on them is checked or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<UnreachableHost>,
    /// Steps on observed hosts that are needed and must wait for an unreachable host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingStep>,
    /// The hosts whose nodes are interrupted, in order: the masters, then the workers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rolling: Vec<RollingGroup>,
    /// The members of etcd, if they are known to have a quorum while hosts could not be observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quorum: Option<EtcdQuorum>,
}

/// Members of etcd that have a quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdQuorum {
    /// How many are known to serve.
    pub serving: usize,
    /// How many there are.
    pub total: usize,
}

/// Hosts whose nodes are interrupted one after another, or a limited number at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RollingGroup {
    /// The hosts, in order.
    pub hosts: Vec<HostAddress>,
    /// How many of them may be interrupted at the same time. A host waits until the one that many places before it
    /// proved that it works again.
    pub at_once: usize,
    /// Which interruptions of these hosts have this order.
    #[serde(default, skip_serializing_if = "RollingPart::is_all")]
    pub part: RollingPart,
}

/// Which interruptions of hosts have one order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RollingPart {
    /// All of them.
    #[default]
    All,
    /// Those of etcd and of the control plane, which come before the kubelet of any host.
    ControlPlane,
    /// Those of the node: its container runtime, kubelet and network.
    Node,
}

impl RollingPart {
    /// For serde, which passes a reference.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// A host of the cluster that could not be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnreachableHost {
    /// Its address.
    pub address: HostAddress,
    /// Its name as a node.
    pub name: HostName,
    /// Its role.
    pub role: HostRole,
    /// Why it could not be observed, in one sentence.
    pub why: String,
}

/// A needed step that must wait for an unreachable host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStep {
    /// Identity, stable between plans.
    pub id: StepId,
    /// The host that would execute it.
    pub host: HostAddress,
    /// The action in a few words.
    pub title: String,
    /// The reason for the step; it follows the word "because".
    pub why: String,
    /// The unreachable hosts that it waits for.
    #[serde(rename = "for")]
    pub hosts: Vec<HostAddress>,
    /// Why it waits, in one sentence.
    pub risk: String,
}

/// A host within a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedHost {
    /// Its name as a node.
    pub name: HostName,
    /// The fence under which its session is opened.
    pub fence: Fence,
}

/// One effect on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Identity, stable between plans: `STAGE/WHAT@HOST`, or `STAGE/WHAT` for a step about the whole cluster.
    pub id: StepId,
    /// The stage, one of [`crate::stages`].
    pub stage: StageName,
    /// The host that executes it.
    pub host: HostAddress,
    /// The action in a few words: `start kube-apiserver v1.36.3`.
    pub title: String,
    /// The reason in a few words; it follows the word "because".
    pub why: String,
    /// Steps of this plan that must be done before it.
    pub needs: Vec<StepId>,
    /// SHA-256 over the content of the step and of the steps that it reads.
    pub digest: String,
    /// The timeout of one attempt, in seconds.
    pub timeout_seconds: u32,
    /// The maximum number of attempts.
    pub tries: u8,
    /// Whether it is recorded: in the journal of the host, or in the cluster if `record_in` is set.
    pub journal: bool,
    /// The path of the API object in which the cluster records the step; `None` for the journal of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_in: Option<String>,
    /// Whether it destroys something that cannot be restored.
    pub destructive: bool,
    /// The effect.
    pub op: Op,
}

/// A warning that does not stop the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// The host it is about, if any.
    pub host: Option<HostAddress>,
    /// One sentence.
    pub text: String,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The request or the hosts do not allow one.
    #[error(transparent)]
    Refused(#[from] PlanRefused),
    /// A bug of the planner, not an error of the request: steps need steps that do not exist. Without this
    /// error the order between them would be lost.
    #[error("internal error: the plan of {cluster} is not valid; nothing was changed; please report this: {}", .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Internal {
        /// The cluster.
        cluster: String,
        /// Each dependency on a step that does not exist; never empty.
        missing: Vec<MissingNeed>,
    },
}

impl PlanError {
    /// The reasons of a refusal; empty for a bug of the planner.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Self::Refused(refused) => &refused.refusals,
            Self::Internal { .. } => &[],
        }
    }
}

/// A dependency on a step that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {id} needs step {need}, which does not exist before it")]
pub struct MissingNeed {
    /// The step.
    pub id: StepId,
    /// The step that it needs.
    pub need: StepId,
}

/// The plan was refused. It holds all reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cluster} cannot be planned, {} reason{}", .refusals.len(), if .refusals.len() == 1 { "" } else { "s" })]
pub struct PlanRefused {
    /// The cluster.
    pub cluster: String,
    /// The reasons; never empty.
    pub refusals: Vec<Refusal>,
    /// Warnings in addition to the reasons.
    pub notes: Vec<Note>,
}

/// The result of a plan. Only `apply` creates it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Every step that was started or skipped.
    pub steps: BTreeMap<StepId, StepOutcome>,
}

impl Outcome {
    /// Whether every step of the plan is done.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.steps.values().all(|step| matches!(step, StepOutcome::Done { .. }))
    }
}

/// The result of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepOutcome {
    /// It is done.
    #[serde(rename_all = "camelCase")]
    Done {
        /// Whether the host changed.
        changed: bool,
        /// How long it took on the host.
        milliseconds: u64,
    },
    /// Its last attempt failed.
    Failed {
        /// Why.
        failure: StepFailure,
    },
    /// It was not started because a step that it needs failed, or because the run was cancelled.
    Skipped {
        /// The failed step that it needs; `None` when the run was cancelled.
        because: Option<StepId>,
    },
}
