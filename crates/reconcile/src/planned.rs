//! What a reconcile has before its apply: a plan, or why there is none.

use kubeon_plan::{LintFinding, Plan, PlanError, Snapshot};

/// A snapshot and a plan made from it that broke no fatal rule. Nothing was written yet: show it, ask,
/// persist its generation, then pass it to [`Reconciler::until_settled`].
#[derive(Debug, Clone)]
pub struct Planned {
    /// What was observed.
    pub snapshot: Snapshot,
    pub(crate) plan: Plan,
    /// What a person should know about the plan.
    pub warnings: Vec<LintFinding>,
}

impl Planned {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// No plan can be applied; no host was written to.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// No plan could be made.
    #[error(transparent)]
    Refused(#[from] PlanError),
    /// The plan breaks a rule that holds for every plan: a fault of the planner, not of the request.
    #[error("the plan of {cluster} is not safe to apply: {}", .findings.iter().map(|it| format!("{} ({})", it.text, it.rule)).collect::<Vec<_>>().join("; "))]
    Unsafe {
        /// The cluster.
        cluster: String,
        /// The fatal findings; never empty.
        findings: Vec<LintFinding>,
    },
}
