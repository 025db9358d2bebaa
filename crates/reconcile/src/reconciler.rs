//! One turn, and how many of them.

use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunObserver};
use kubeon_plan::{Finding, Outcome, Plan, PlanError, Severity, Snapshot, StepOutcome};
use kubeon_ports::{Clock, ProbeHost};
use tokio_util::sync::CancellationToken;

/// What a turn works with.
#[derive(Clone, Copy)]
pub struct Reconciler<'a> {
    /// The hosts to look at.
    pub hosts: &'a [HostAddress],
    /// Reads them.
    pub probe: &'a dyn ProbeHost,
    /// Writes to them.
    pub hands: HostPorts<'a>,
    /// Tells the time of the look.
    pub clock: &'a dyn Clock,
    /// Hears what happens.
    pub watch: &'a dyn RunObserver,
    /// Ends it early.
    pub stop: &'a CancellationToken,
}

/// What was seen, and a plan made from it that broke no fatal rule. Nothing was written yet: show it, ask,
/// write its generation down, then [`Reconciler::act`].
#[derive(Debug, Clone)]
pub struct Planned {
    /// What was seen.
    pub snapshot: Snapshot,
    plan: Plan,
    /// What a person should know about the plan.
    pub warnings: Vec<Finding>,
}

impl Planned {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// A turn that was made.
#[derive(Debug, Clone)]
pub struct Reconciled {
    /// What was seen before.
    pub snapshot: Snapshot,
    /// What was planned from it.
    pub plan: Plan,
    /// What came of the plan.
    pub outcome: Outcome,
}

/// A turn was not made; no host was written to.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// No plan could be made.
    #[error(transparent)]
    Refused(#[from] PlanError),
    /// The plan breaks a rule that holds for every plan: a fault of the planner, not of the wish.
    #[error("the plan of {cluster} is not safe to apply: {}", .findings.iter().map(|it| format!("{} ({})", it.text, it.rule)).collect::<Vec<_>>().join("; "))]
    Unsafe {
        /// The cluster.
        cluster: String,
        /// The fatal findings; never empty.
        findings: Vec<Finding>,
    },
}

impl Reconciler<'_> {
    /// Looks at the hosts and plans; writes nothing.
    ///
    /// # Errors
    /// When no plan can be made, or the plan breaks a fatal rule.
    pub async fn look(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, ReconcileError> {
        let hosts = self.hosts.iter().copied();
        let snapshot = kubeon_observe::snapshot(self.probe, hosts, self.clock.now_seconds()).await; // reads
        let plan = plan(&snapshot)?; // pure
        let found = kubeon_plan::lint(&plan, &snapshot); // pure
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|it| it.severity == Severity::Fatal);
        if !fatal.is_empty() {
            return Err(ReconcileError::Unsafe { cluster: plan.cluster.to_string(), findings: fatal });
        }
        Ok(Planned { snapshot, plan, warnings })
    }

    /// Applies what was looked at.
    pub async fn act(&self, looked: Planned) -> Reconciled {
        let Planned { snapshot, plan, warnings: _ } = looked;
        let outcome = kubeon_apply::run(&plan, &self.hands, self.watch, self.stop).await; // writes
        Reconciled { snapshot, plan, outcome }
    }

    /// One turn: looks, plans, applies.
    ///
    /// # Errors
    /// As [`Reconciler::look`].
    pub async fn turn(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Reconciled, ReconcileError> {
        Ok(self.act(self.look(plan).await?).await)
    }

    /// Turns until the cluster is as wished, and answers with the last turn.
    ///
    /// A turn whose steps are all done is the last one, without another look: every step was checked on its
    /// host when it ended, so the outcome is an observation. An incomplete turn is followed by another, up to
    /// `max_turns` in all, only if that may help: it got somewhere, and every failure was of a kind that goes
    /// away by itself. With `max_turns` 1 the first outcome is final.
    ///
    /// # Errors
    /// As [`Reconciler::look`], for any of the turns.
    pub async fn until_settled(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
        max_turns: u8,
    ) -> Result<Reconciled, ReconcileError> {
        let mut turns = 1;
        loop {
            let turn = self.turn(&plan).await?;
            let last = turns >= max_turns || self.stop.is_cancelled();
            if turn.outcome.is_complete() || last || !another_may_help(&turn.outcome) {
                return Ok(turn);
            }
            turns += 1;
        }
    }
}

/// Whether another turn may complete what this one did not: something was got done, and every failure was of
/// a kind that goes away by itself.
#[must_use]
pub fn another_may_help(outcome: &Outcome) -> bool {
    let moved = outcome.steps.values().any(|step| matches!(step, StepOutcome::Done { changed: true, .. }));
    let lasting = outcome
        .steps
        .values()
        .any(|step| matches!(step, StepOutcome::Failed { failure } if !failure.category.retryable()));
    moved && !lasting
}
