//! What a plan says.

use std::collections::BTreeMap;

use kubeon_api::{ClusterName, HostAddress, HostName, Refusal, Version};
use kubeon_wire::{Fence, Op, StepFailure};
use serde::{Deserialize, Serialize};

use crate::stage_name::StageName;
use crate::step_id::StepId;

/// An ordered list of steps that leads from what was seen to what is wanted. Nothing is left to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The cluster.
    pub cluster: ClusterName,
    /// The version that the plan leads to.
    pub version: Version,
    /// The fence's generation: higher than any seen before when the plan has steps.
    pub generation: u64,
    /// The hosts that take part, with their names and the fence that each is opened under.
    pub hosts: BTreeMap<HostAddress, PlannedHost>,
    /// The steps. A step comes after everything in its `needs`.
    pub steps: Vec<Step>,
    /// The number of steps that are up to date, as checked on the hosts.
    #[serde(rename = "standing")]
    pub up_to_date: usize,
    /// How many facts the plan rests on.
    pub facts: usize,
    /// What a person should know; none of it stops the plan.
    pub notes: Vec<Note>,
}

/// A host within a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedHost {
    /// Its name as a node.
    pub name: HostName,
    /// What the host's session is opened under.
    pub fence: Fence,
}

/// One effect on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Identity, stable between plans: `STAGE/WHAT@HOST`.
    pub id: StepId,
    /// The stage, one of [`crate::stages`].
    pub stage: StageName,
    /// Where it happens.
    pub host: HostAddress,
    /// What it does, in a few words: `start kube-apiserver v1.36.3`.
    pub title: String,
    /// Why it is needed, in a few words, to follow "because".
    pub why: String,
    /// Steps of this plan that must be done before.
    pub needs: Vec<StepId>,
    /// SHA-256 over the content and over the content of what it watches.
    pub digest: String,
    /// Seconds until it counts as failed.
    pub timeout_seconds: u32,
    /// How often it may be tried in all.
    pub tries: u8,
    /// Whether the host's journal remembers it.
    pub journal: bool,
    /// Whether it destroys something that cannot be had back.
    pub destructive: bool,
    /// The effect.
    pub op: Op,
}

/// A word on the plan that does not stop it.
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
    /// A fault of the planner, not of the request: steps name steps before them that do not exist. Without this error the
    /// order between the two would be lost.
    #[error("internal error: the plan of {cluster} is not valid; nothing was changed; please report this: {}", .missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Internal {
        /// The cluster.
        cluster: String,
        /// Each dependency that resolves to nothing; never empty.
        missing: Vec<MissingNeed>,
    },
}

impl PlanError {
    /// The reasons of a refusal; none for a fault of the planner.
    #[must_use]
    pub fn refusals(&self) -> &[Refusal] {
        match self {
            Self::Refused(refused) => &refused.refusals,
            Self::Internal { .. } => &[],
        }
    }
}

/// A step that names one before it which does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {id} comes after {need}, and no step of that name comes before it")]
pub struct MissingNeed {
    /// The step.
    pub id: StepId,
    /// The step that it needs.
    pub need: StepId,
}

/// No plan could be made. Holds every reason at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cluster} cannot be planned, {} reason{}", .refusals.len(), if .refusals.len() == 1 { "" } else { "s" })]
pub struct PlanRefused {
    /// The cluster.
    pub cluster: String,
    /// The reasons; never empty.
    pub refusals: Vec<Refusal>,
    /// Warnings that go with them.
    pub notes: Vec<Note>,
}

/// What came of a plan. Made only by `apply`.
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

/// What came of one step.
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
    /// It failed after its last try.
    Failed {
        /// Why.
        failure: StepFailure,
    },
    /// It was not started because a step it needs failed, or the run was told to stop.
    Skipped {
        /// The failed step that it needs; `None` when the run was cancelled.
        because: Option<StepId>,
    },
}
