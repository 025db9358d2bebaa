//! One reconcile, and the loop that repeats it.

use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunObserver};
use kubeon_plan::{Outcome, Plan, PlanError, Severity, Snapshot};
use kubeon_ports::{Clock, ProbeHost};
use tokio_util::sync::CancellationToken;

use crate::hooks::ReconcileHooks;
use crate::planned::{Planned, ReconcileError};
use crate::retry::{repeats_failures, retry_may_help};

/// The maximum number of applies of one plan and its retries.
pub const MAX_ATTEMPTS: u8 = 3;

/// The maximum number of plans that follow a complete apply because its plan says so.
const MAX_FOLLOWING_PLANS: u8 = 2;

/// The inputs of a reconcile.
#[derive(Clone, Copy)]
pub struct Reconciler<'a> {
    /// The hosts to observe.
    pub hosts: &'a [HostAddress],
    /// Reads them.
    pub probe: &'a dyn ProbeHost,
    /// Writes to them.
    pub ports: HostPorts<'a>,
    /// The time of each snapshot.
    pub clock: &'a dyn Clock,
    /// Ends a run early.
    pub cancellation: &'a CancellationToken,
}

/// A plan that was applied.
#[derive(Debug, Clone)]
pub struct Reconciled {
    /// The state that was observed before.
    pub snapshot: Snapshot,
    /// The plan that was computed from it.
    pub plan: Plan,
    /// The outcome of the plan.
    pub outcome: Outcome,
}

impl Reconciler<'_> {
    /// Observes the hosts and plans. It changes nothing.
    ///
    /// # Errors
    /// When no plan can be computed, or the plan violates a fatal rule.
    pub async fn observe_and_plan(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, ReconcileError> {
        let hosts = self.hosts.iter().copied();
        let snapshot = kubeon_observe::snapshot(self.probe, hosts, self.clock.now_seconds()).await; // reads
        let plan = plan(&snapshot)?; // pure
        let findings = kubeon_plan::lint(&plan, &snapshot); // pure
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.severity == Severity::Fatal);
        if !fatal.is_empty() {
            return Err(ReconcileError::Unsafe { cluster: plan.cluster.to_string(), findings: fatal });
        }
        Ok(Planned { snapshot, plan, warnings })
    }

    /// The loop: applies a plan, then observes, plans and applies again as long as that is needed and may
    /// help. It returns the last apply.
    ///
    /// If all steps of an apply are done, the loop ends without another observation, because each step was
    /// checked on its host when it ended. Only a plan that [continues](Plan::continues) is followed by another
    /// plan.
    ///
    /// After an incomplete apply, the loop retries only if a step changed something, all failures are
    /// temporary, and the new plan repeats every failed step. It makes at most `attempts` applies until one is
    /// complete.
    ///
    /// # Errors
    /// When the pre-apply hook fails, or the plan that must follow a complete apply is refused. The outcome
    /// holds the failures on hosts.
    pub async fn until_settled<H: ReconcileHooks>(
        &self,
        mut planned: Planned,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
        hooks: &mut H,
        attempts: u8,
    ) -> Result<Reconciled, H::Error> {
        let (mut attempt, mut attempts_left, mut plans_left) = (1, attempts, MAX_FOLLOWING_PLANS);
        loop {
            hooks.before_apply(&planned, attempt).await?;
            let observer = hooks.observer(planned.plan());
            let done = self.apply(planned, observer.as_ref()).await;
            drop(observer);
            attempts_left = attempts_left.saturating_sub(1);
            let next = if !done.outcome.is_complete() {
                let last = attempts_left == 0 || self.cancellation.is_cancelled();
                if last { None } else { self.retry(&plan, &done, hooks).await }
            } else if done.plan.continues && plans_left > 0 {
                (attempts_left, plans_left) = (attempts, plans_left - 1);
                Some(self.observe_and_plan(&plan).await?).filter(|next| !next.plan().steps.is_empty())
            } else {
                None
            };
            let Some(next) = next else { return Ok(done) };
            planned = next;
            attempt += 1;
        }
    }

    /// The plan that repeats the failed steps; `None` if a retry cannot help.
    async fn retry<H: ReconcileHooks>(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
        done: &Reconciled,
        hooks: &mut H,
    ) -> Option<Planned> {
        if !retry_may_help(&done.outcome) {
            return None;
        }
        hooks.before_retry(&done.outcome);
        match self.observe_and_plan(plan).await {
            Ok(next) => repeats_failures(next.plan(), &done.outcome).then_some(next),
            Err(error) => {
                hooks.retry_refused(&error);
                None
            }
        }
    }

    async fn apply(&self, planned: Planned, observer: &dyn RunObserver) -> Reconciled {
        let Planned { snapshot, plan, warnings: _ } = planned;
        let outcome = kubeon_apply::run(&plan, &self.ports, observer, self.cancellation).await; // writes
        Reconciled { snapshot, plan, outcome }
    }
}
