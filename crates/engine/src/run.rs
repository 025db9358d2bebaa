//! The reconcile loop with an output, a hold, and state that is saved before each apply.

use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunObserver};
use kubeon_plan::{Outcome, Plan, PlanError, Snapshot};
use kubeon_ports::{ActHost, Blobs, ProbeHost, Secrets};
use kubeon_reconcile::{MAX_ATTEMPTS, Planned, ReconcileError, ReconcileHooks, Reconciled, Reconciler};
use kubeon_wire::Progress;
use tokio_util::sync::CancellationToken;

use crate::engine::MachineClock;
use crate::error::{EngineError, note_text};
use crate::output::EngineOutput;
use crate::pre_apply_hook::PreApplyWait;

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
    /// Receives messages.
    pub output: &'a dyn EngineOutput,
    /// What is waited for before the first effect.
    pub hold: PreApplyWait,
}

impl Run<'_> {
    fn reconciler(&self) -> Reconciler<'_> {
        Reconciler {
            hosts: &self.hosts,
            probe: self.probe,
            ports: HostPorts { act: self.act, secrets: self.secrets, blobs: self.blobs },
            clock: &MachineClock,
            cancel: self.cancellation,
        }
    }

    /// Observes the hosts and plans; writes nothing.
    ///
    /// # Errors
    /// Refuses when no plan can be made.
    pub async fn look(
        &self,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, EngineError> {
        let planned = self.reconciler().observe_and_plan(plan).await?;
        self.warn(&planned);
        Ok(planned)
    }

    /// Applies what was planned, and continues while that may help. `persist` is called with every plan before it is
    /// applied.
    ///
    /// # Errors
    /// When `persist` fails, or the hold is not released. What failed on a host is in the outcome.
    pub async fn act(
        &self,
        planned: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        persist: impl FnMut(&Plan) -> Result<(), EngineError>,
    ) -> Result<Reconciled, EngineError> {
        let mut hooks = Watched { run: self, persist, released: false };
        self.reconciler().until_settled(planned, plan, &mut hooks, MAX_ATTEMPTS).await
    }

    /// The same for a plan that follows one that was applied: it is not held again.
    ///
    /// # Errors
    /// As for [`Self::act`].
    pub async fn go_on(
        &self,
        planned: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        persist: impl FnMut(&Plan) -> Result<(), EngineError>,
    ) -> Result<Reconciled, EngineError> {
        let mut hooks = Watched { run: self, persist, released: true };
        self.reconciler().until_settled(planned, plan, &mut hooks, MAX_ATTEMPTS - 1).await
    }

    fn warn(&self, planned: &Planned) {
        for note in &planned.plan().notes {
            self.output.warn(&note_text(note));
        }
        for finding in &planned.warnings {
            self.output.warn(&finding.text);
        }
    }
}

/// What a person sees of the loop, and what is saved before each apply.
struct Watched<'a, F> {
    run: &'a Run<'a>,
    persist: F,
    /// Whether the hold before the first effect was released.
    released: bool,
}

impl<F: FnMut(&Plan) -> Result<(), EngineError>> ReconcileHooks for Watched<'_, F> {
    type Error = EngineError;

    async fn before_apply(&mut self, planned: &Planned, attempt: u8) -> Result<(), EngineError> {
        let Run { output, cancellation, hold, .. } = self.run;
        if attempt > 1 {
            self.run.warn(planned);
        }
        let plan = planned.plan();
        (self.persist)(plan)?;
        output.progress(&plan_progress(plan));
        if !std::mem::replace(&mut self.released, true) {
            output.progress(&Progress::Saved);
            hold.wait(plan.cluster.as_str(), *output, cancellation).await?;
        }
        Ok(())
    }

    fn observer(&mut self, plan: &Plan) -> Box<dyn RunObserver> {
        self.run.output.observe(plan)
    }

    fn before_retry(&mut self, _: &Outcome) {
        self.run.output.say("some steps failed in a way that may go away by itself; looking again");
    }

    fn retry_refused(&mut self, error: &ReconcileError) {
        self.run.output.detail(1, &format!("no further attempt: {error}"));
    }
}

/// The size of a plan, for programs.
pub fn plan_progress(plan: &Plan) -> Progress {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Progress::Plan { steps: count(plan.steps.len()), up_to_date: count(plan.up_to_date) }
}
