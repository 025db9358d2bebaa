//! One reconcile, and how many of them.

use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunObserver};
use kubeon_plan::{Outcome, Plan, PlanError, Severity, Snapshot};
use kubeon_ports::{Clock, ProbeHost};
use tokio_util::sync::CancellationToken;

use crate::hooks::ReconcileHooks;
use crate::planned::{Planned, ReconcileError};
use crate::retry::{another_may_help, covers};

/// How many applies one command makes at most.
pub const MAX_ATTEMPTS: u8 = 3;

/// What a reconcile works with.
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
    pub cancel: &'a CancellationToken,
}

/// A plan that was applied.
#[derive(Debug, Clone)]
pub struct Reconciled {
    /// What was observed before.
    pub snapshot: Snapshot,
    /// What was planned from it.
    pub plan: Plan,
    /// What came of the plan.
    pub outcome: Outcome,
}

impl Reconciler<'_> {
    /// Observes the hosts and plans; writes nothing.
    ///
    /// # Errors
    /// When no plan can be made, or the plan breaks a fatal rule.
    pub async fn observe_and_plan(
        &self,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, ReconcileError> {
        let hosts = self.hosts.iter().copied();
        let snapshot = kubeon_observe::snapshot(self.probe, hosts, self.clock.now_seconds()).await; // reads
        let plan = plan(&snapshot)?; // pure
        let findings = kubeon_plan::lint(&plan, &snapshot); // pure
        let (fatal, warnings): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|it| it.severity == Severity::Fatal);
        if !fatal.is_empty() {
            return Err(ReconcileError::Unsafe { cluster: plan.cluster.to_string(), findings: fatal });
        }
        Ok(Planned { snapshot, plan, warnings })
    }

    /// The loop: applies a plan, then observes, plans and applies again while that may help, and returns the
    /// last apply. It makes at most `attempts` applies.
    ///
    /// An apply whose steps are all done is the last one, and nothing is observed again: every step was
    /// checked on its host when it ended. After an incomplete apply the loop continues only where a step
    /// changed something, every failure is of a kind that may go away by itself, and the new plan repeats
    /// every step that failed.
    ///
    /// # Errors
    /// When the pre-apply hook fails. What failed on a host is in the outcome.
    pub async fn until_settled<H: ReconcileHooks>(
        &self,
        mut planned: Planned,
        plan: impl Fn(&Snapshot) -> Result<Plan, PlanError>,
        hooks: &mut H,
        attempts: u8,
    ) -> Result<Reconciled, H::Error> {
        let mut attempt = 1;
        loop {
            hooks.before_apply(&planned, attempt).await?;
            let observer = hooks.observer(planned.plan());
            let done = self.apply(planned, observer.as_ref()).await;
            drop(observer);
            let last = attempt >= attempts || self.cancel.is_cancelled();
            if done.outcome.is_complete() || last || !another_may_help(&done.outcome) {
                return Ok(done);
            }
            hooks.before_retry(&done.outcome);
            planned = match self.observe_and_plan(&plan).await {
                Ok(again) if covers(again.plan(), &done.outcome) => again,
                Ok(_) => return Ok(done),
                Err(error) => {
                    hooks.retry_refused(&error);
                    return Ok(done);
                }
            };
            attempt += 1;
        }
    }

    async fn apply(&self, planned: Planned, observer: &dyn RunObserver) -> Reconciled {
        let Planned { snapshot, plan, warnings: _ } = planned;
        let outcome = kubeon_apply::run(&plan, &self.ports, observer, self.cancel).await; // writes
        Reconciled { snapshot, plan, outcome }
    }
}
