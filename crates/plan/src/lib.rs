//! Pure decisions: from what is wanted and what was seen to an ordered list of steps, each with its reason.
//!
//! ```text
//!   KubernetesCluster ──validate──►  Valid<DesiredCluster>  ─┐
//!   Snapshot (what observe saw)  ─────────────────────────┼─ plan ─►  Plan { Step, Step, … }  ──►  apply
//!   Artifacts (what the bundle holds)  ───────────────────┘
//! ```
//!
//! No clock, environment, random number, network or file is read here: time comes in as a value, secrets
//! stay references. The same input gives the same plan, byte for byte.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod context;
mod desired;
mod destroy;
mod diff;
mod hosts;
pub mod input;
pub mod lint;
pub mod output;
pub mod precheck;
mod proxy_mode;
mod quorum;
pub mod sim;
mod stage_name;
pub mod stages;
mod step_id;
pub mod validate;

pub use destroy::destroy;
pub use input::{Artifacts, DesiredCluster, HostSpec, ImageInfo, Intent, PartInfo, Seen, Snapshot, Valid};
pub use kubeon_api::{Refusal, RefusedField, Remedy};
pub use lint::{LintFinding, Severity, lint};
pub use output::{MissingNeed, Note, Outcome, Plan, PlanError, PlanRefused, PlannedHost, Step, StepOutcome};
pub use precheck::precheck;
pub use stage_name::{StageName, StageNameError};
pub use step_id::{StepId, StepIdError};
pub use validate::validate;

/// Plans the way from what was seen to what is wanted.
///
/// # Errors
/// Every reason at once why no plan can be made: hosts that cannot be seen, that carry another cluster,
/// that cannot do what is needed.
pub fn plan(intent: &Intent, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let (context, notes) = hosts::admit(intent, snapshot)?;
    let steps = stages::desired_steps(&context);
    diff::plan(&context, snapshot.taken_at, steps, notes)
}
