//! The planner: compares the desired state with the observed state and returns an ordered list of steps, each
//! with its reason.
//!
//! ```text
//!   KubernetesCluster ──validate──►  Valid<DesiredCluster>  ─┐
//!   Snapshot (the observed facts)  ──────────────────────────┼─ plan ─►  Plan { Step, Step, … }  ──►  apply
//!   Artifacts (the content of the bundle)  ──────────────────┘
//! ```
//!
//! The planner is pure: it reads no clock, environment, random number, network or file. The time is part of
//! the input, and secrets are references. The same input returns the same plan, byte for byte.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod approval;
mod bundle_in_use;
mod cluster_address;
mod complete_bundle;
mod context;
mod declaration;
mod desired;
mod destroy;
mod diff;
mod firewall;
mod generation;
mod hosts;
pub mod input;
mod kernel_defaults;
mod known_masters;
pub mod lint;
mod max_unavailable;
mod membership;
mod node_name;
mod node_parts;
pub mod output;
mod parts_only;
mod pod_network;
pub mod precheck;
mod proxy_mode;
mod quorum;
mod resolver;
mod rolling;
pub mod sim;
mod sort;
mod stage_name;
pub mod stages;
mod step_id;
mod takeover;
mod unreachable;
pub mod validate;

pub use approval::UnapprovedStep;
pub use declaration::{ClusterDeclaration, DeclarationError};
pub use destroy::destroy;
pub use generation::adopted_generation;
pub use input::{
    Artifacts, DesiredCluster, HostSpec, ImageInfo, Intent, Observation, ObservationFailure, PartInfo,
    Snapshot, SnapshotRestore, Valid,
};
use kubeon_api::HostAddress;
pub use kubeon_api::{Refusal, RefusedField, Remedy};
pub use lint::{LintFinding, Severity, lint};
pub use max_unavailable::{MaxUnavailable, MaxUnavailableError};
pub use node_parts::belongs_to_node;
pub use output::{
    EtcdQuorum, MissingNeed, Note, Outcome, Plan, PlanError, PlanRefused, PlannedHost, RollingGroup,
    RollingPart, Step, StepOutcome, UnreachableHost, WaitingStep,
};
pub use precheck::precheck;
pub use stage_name::{StageName, StageNameError};
pub use step_id::{StepId, StepIdError};
pub use takeover::with_kubeadm_steps;
pub use validate::{node_ports_refusal, validate, validate_existing};

use kubeon_wire::Op;

/// What the steps of all stages do, whether the hosts need them or not.
///
/// # Errors
/// As for [`plan`].
pub fn desired_content(
    intent: &Intent,
    snapshot: &Snapshot,
) -> Result<Vec<(StepId, HostAddress, Op)>, PlanError> {
    let snapshot = with_kubeadm_steps(intent, snapshot);
    let (context, _) = hosts::admit(intent, &snapshot)?;
    let steps = stages::desired_steps(&context).into_iter();
    Ok(steps.map(|step| (step.id, step.host, step.op)).collect())
}

/// Plans the steps from the observed state to the desired state.
///
/// # Errors
/// All reasons why no plan is possible, such as hosts that cannot be observed, that belong to another cluster
/// or that fail a check.
pub fn plan(intent: &Intent, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let snapshot = with_kubeadm_steps(intent, snapshot);
    let (context, notes) = hosts::admit(intent, &snapshot)?;
    let steps = stages::desired_steps(&context);
    let plan = diff::plan(&context, snapshot.taken_at, steps, notes)?;
    Ok(if intent.only_parts { plan.parts_only() } else { plan })
}
