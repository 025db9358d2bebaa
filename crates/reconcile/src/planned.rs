//! The state of a reconcile before its apply: a plan, or the reason why there is none.

use kubeon_plan::{LintFinding, Plan, PlanError, Snapshot};

/// A snapshot and its plan, which violates no fatal rule. No host was changed yet: show the plan, ask for
/// confirmation, persist its generation, then pass it to [`Reconciler::until_settled`].
#[derive(Debug, Clone)]
pub struct Planned {
    /// The observed state.
    pub snapshot: Snapshot,
    pub(crate) plan: Plan,
    /// Findings that the user should know.
    pub warnings: Vec<LintFinding>,
}

impl Planned {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// No plan can be applied. No host was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// No plan could be computed.
    #[error(transparent)]
    Refused(#[from] PlanError),
    /// The plan violates a fatal lint rule: a bug of the planner, not an error of the request.
    #[error("the plan of {cluster} is not safe to apply: {}", .findings.iter().map(|finding| format!("{} ({})", finding.text, finding.rule)).collect::<Vec<_>>().join("; "))]
    Unsafe {
        /// The cluster.
        cluster: String,
        /// The fatal findings; never empty.
        findings: Vec<LintFinding>,
    },
}
