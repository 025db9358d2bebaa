//! Turns the wheel with somebody watching.

use kubeon_api::HostAddress;
use kubeon_apply::HostPorts;
use kubeon_plan::{Outcome, Plan, PlanError, Snapshot, StepOutcome};
use kubeon_ports::{ActHost, Blobs, ProbeHost, Secrets};
use kubeon_reconcile::{Planned, ReconcileError, Reconciled, Reconciler};
use kubeon_wire::Progress;
use tokio_util::sync::CancellationToken;

use super::MachineClock;
use super::hold::Hold;
use crate::cli_error::{CliError, note_text};
use crate::display::Display;
use crate::output::Talk;

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
    pub switch: &'a CancellationToken,
    /// Where words go.
    pub talk: &'a Talk,
    /// What is waited for before the first effect.
    pub hold: Hold,
}

impl Run<'_> {
    fn wheel<'w>(&'w self, hands: HostPorts<'w>, watch: &'w dyn kubeon_apply::RunObserver) -> Reconciler<'w> {
        Reconciler {
            hosts: &self.hosts,
            probe: self.probe,
            hands,
            clock: &MachineClock,
            watch,
            stop: self.switch,
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
    ) -> Result<Planned, CliError> {
        let silent = |_| {};
        let looked = self.wheel(self.hands(), &silent).look(plan).await.map_err(stop)?;
        for note in &looked.plan().notes {
            self.talk.warn(&note_text(note));
        }
        for finding in &looked.warnings {
            self.talk.warn(&finding.text);
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
        before: impl FnMut(&Plan) -> Result<(), CliError>,
    ) -> Result<Reconciled, CliError> {
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
        before: impl FnMut(&Plan) -> Result<(), CliError>,
    ) -> Result<Reconciled, CliError> {
        self.turns(looked, plan, before, 2).await
    }

    async fn turns(
        &self,
        mut looked: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        mut before: impl FnMut(&Plan) -> Result<(), CliError>,
        mut turn: u8,
    ) -> Result<Reconciled, CliError> {
        loop {
            before(looked.plan())?;
            self.announce(looked.plan(), turn == 1).await?;
            let display = Display::begin(looked.plan(), self.talk);
            let done = self.wheel(self.hands(), &display).act(looked).await;
            display.end();
            let over = turn >= TURNS || self.switch.is_cancelled();
            if done.outcome.is_complete() || over || !another_may_help(&done.outcome) {
                return Ok(done);
            }
            self.talk.say("some steps failed in a way that may go away by itself; looking again");
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
    async fn announce(&self, plan: &Plan, first: bool) -> Result<(), CliError> {
        self.talk.progress(&told(plan));
        if !first {
            return Ok(());
        }
        self.talk.progress(&Progress::Saved);
        self.hold.wait(plan.cluster.as_str(), self.talk, self.switch).await
    }
}

/// A plan in numbers.
pub fn told(plan: &Plan) -> Progress {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Progress::Plan { steps: count(plan.steps.len()), standing: count(plan.standing) }
}

fn stop(error: ReconcileError) -> CliError {
    match error {
        ReconcileError::Refused(error) => error.into(),
        ReconcileError::Unsafe { cluster, findings } => {
            let mut stop =
                CliError::failed(format!("the plan of {cluster} is not safe to apply; nothing was written"));
            stop.rows = findings.into_iter().map(|finding| (finding.rule, finding.text)).collect();
            stop
        }
    }
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
