//! Turns the wheel with somebody watching.

use kubeon_api::HostAddress;
use kubeon_apply::HostPorts;
use kubeon_plan::{Outcome, Plan, PlanError, Snapshot, StepOutcome};
use kubeon_ports::{ActHost, Blobs, ProbeHost, Secrets};
use kubeon_reconcile::{Planned, Reconciled, Reconciler};
use kubeon_wire::Progress;
use tokio_util::sync::CancellationToken;

use crate::engine::MachineClock;
use crate::error::{EngineError, note_text};
use crate::output::EngineOutput;
use crate::pre_apply_hook::PreApplyWait;

/// How often the wheel is turned at most, where failures may go away by themselves.
const TURNS: u8 = 3;

/// What a run works with.
pub struct Run<'a> {
    /// The hosts to look at.
    pub hosts: Vec<HostAddress>,
    /// Reads hosts.
    pub probe: &'a dyn ProbeHost,
    /// Writes to hosts.
    pub act: &'a dyn ActHost,
    /// Resolves secrets.
    pub secrets: &'a dyn Secrets,
    /// Holds bytes of parts.
    pub blobs: &'a dyn Blobs,
    /// Ends it early.
    pub cancellation: &'a CancellationToken,
    /// Where words go.
    pub output: &'a dyn EngineOutput,
    /// What is waited for before the first effect.
    pub hold: PreApplyWait,
}

impl Run<'_> {
    fn wheel<'w>(&'w self, hands: HostPorts<'w>, watch: &'w dyn kubeon_apply::RunObserver) -> Reconciler<'w> {
        Reconciler {
            hosts: &self.hosts,
            probe: self.probe,
            hands,
            clock: &MachineClock,
            watch,
            stop: self.cancellation,
        }
    }

    fn hands(&self) -> HostPorts<'_> {
        HostPorts { act: self.act, secrets: self.secrets, blobs: self.blobs }
    }

    /// Looks at the hosts and plans; writes nothing.
    ///
    /// # Errors
    /// Refuses when no plan can be made.
    pub async fn look(
        &self,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, EngineError> {
        let silent = |_| {};
        let looked = self.wheel(self.hands(), &silent).look(plan).await?;
        for note in &looked.plan().notes {
            self.output.warn(&note_text(note));
        }
        for finding in &looked.warnings {
            self.output.warn(&finding.text);
        }
        Ok(looked)
    }

    /// Applies what was looked at, and goes on while that may help. `before` is told every plan before it is applied.
    ///
    /// # Errors
    /// When `before` fails, or nobody lets go what is held. What failed on a host is in the outcome.
    pub async fn act(
        &self,
        looked: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        before: impl FnMut(&Plan) -> Result<(), EngineError>,
    ) -> Result<Reconciled, EngineError> {
        self.turns(looked, plan, before, 1).await
    }

    /// The same for a plan that follows one that was applied: nobody holds it any more.
    ///
    /// # Errors
    /// As for [`Self::act`].
    pub async fn go_on(
        &self,
        looked: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        before: impl FnMut(&Plan) -> Result<(), EngineError>,
    ) -> Result<Reconciled, EngineError> {
        self.turns(looked, plan, before, 2).await
    }

    async fn turns(
        &self,
        mut looked: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        mut before: impl FnMut(&Plan) -> Result<(), EngineError>,
        mut turn: u8,
    ) -> Result<Reconciled, EngineError> {
        loop {
            before(looked.plan())?;
            self.announce(looked.plan(), turn == 1).await?;
            let observer = self.output.observe(looked.plan());
            let done = self.wheel(self.hands(), observer.as_ref()).act(looked).await;
            drop(observer);
            let over = turn >= TURNS || self.cancellation.is_cancelled();
            if done.outcome.is_complete() || over || !another_may_help(&done.outcome) {
                return Ok(done);
            }
            self.output.say("some steps failed in a way that may go away by itself; looking again");
            let Ok(again) = self.look(plan).await else {
                // A host that is gone now was told of as the cause already.
                return Ok(done);
            };
            if !covers(again.plan(), &done.outcome) {
                // What failed was a check that the new plan does not repeat: nothing has shown that it holds now.
                return Ok(done);
            }
            turn += 1;
            looked = again;
        }
    }
}

impl Run<'_> {
    /// Tells of a plan whose state is saved, and waits where that is wanted.
    async fn announce(&self, plan: &Plan, first: bool) -> Result<(), EngineError> {
        self.output.progress(&told(plan));
        if !first {
            return Ok(());
        }
        self.output.progress(&Progress::Saved);
        self.hold.wait(plan.cluster.as_str(), self.output, self.cancellation).await
    }
}

/// A plan in numbers.
pub fn told(plan: &Plan) -> Progress {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Progress::Plan { steps: count(plan.steps.len()), standing: count(plan.standing) }
}

/// Whether the plan does everything again that failed.
fn covers(plan: &Plan, outcome: &Outcome) -> bool {
    let failed = outcome.steps.iter().filter(|(_, result)| matches!(result, StepOutcome::Failed { .. }));
    failed.into_iter().all(|(id, _)| plan.steps.iter().any(|step| step.id == *id))
}

/// Something was got done, and everything that failed may go away by itself.
fn another_may_help(outcome: &Outcome) -> bool {
    let moved = outcome.steps.values().any(|step| matches!(step, StepOutcome::Done { changed: true, .. }));
    let lasting = outcome
        .steps
        .values()
        .any(|step| matches!(step, StepOutcome::Failed { failure } if !failure.category.retryable()));
    moved && !lasting
}
