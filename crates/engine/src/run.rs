//! The reconcile loop with output, a pre-apply hook, and state that is saved before each apply.

use kubeon_api::HostAddress;
use kubeon_apply::{HostPorts, RunObserver};
use kubeon_plan::{Outcome, Plan, PlanError, Snapshot};
use kubeon_ports::{ActHost, Blobs, ForwardingIdentities, ProbeHost, Secrets};
use kubeon_reconcile::{MAX_ATTEMPTS, Planned, ReconcileError, ReconcileHooks, Reconciled, Reconciler};
use kubeon_wire::Progress;
use tokio_util::sync::CancellationToken;

use crate::engine::MachineClock;
use crate::error::{EngineError, note_text};
use crate::output::EngineOutput;
use crate::pre_apply_hook::PreApplyWait;

/// The message at the end of the look: from then on, a run makes its plan and begins its first step.
const OBSERVED: &str = "the hosts were observed";

/// Inputs and outputs of a run.
#[derive(Clone)]
pub struct Run<'a> {
    /// The hosts to observe.
    pub hosts: Vec<HostAddress>,
    /// Observes hosts.
    pub probe: &'a dyn ProbeHost,
    /// Writes to hosts.
    pub act: &'a dyn ActHost,
    /// Resolves secrets.
    pub secrets: &'a dyn Secrets,
    /// Finds the files of parts.
    pub blobs: &'a dyn Blobs,
    /// Identities with which hosts forward parts to each other.
    pub forwarding: Option<&'a dyn ForwardingIdentities>,
    /// Cancels the run.
    pub cancellation: &'a CancellationToken,
    /// Receives messages.
    pub output: &'a dyn EngineOutput,
    /// The condition to wait for before the first effect on a host.
    pub pre_apply_wait: PreApplyWait,
}

impl Run<'_> {
    fn reconciler(&self) -> Reconciler<'_> {
        Reconciler {
            hosts: &self.hosts,
            probe: self.probe,
            ports: HostPorts {
                act: self.act,
                secrets: self.secrets,
                blobs: self.blobs,
                forwarding: self.forwarding,
            },
            clock: &MachineClock,
            cancellation: self.cancellation,
        }
    }

    /// Observes the hosts and plans; writes nothing.
    ///
    /// # Errors
    /// Refuses when no plan can be made.
    pub async fn observe(
        &self,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
    ) -> Result<Planned, EngineError> {
        let plan = |snapshot: &Snapshot| {
            self.output.detail(4, OBSERVED);
            plan(snapshot)
        };
        let planned = self.reconciler().observe_and_plan(plan).await?;
        self.warn(&planned);
        Ok(planned)
    }

    /// Applies the plan, retries temporary failures, and applies the plans that must follow. `persist` is called with every plan before it is
    /// applied.
    ///
    /// # Errors
    /// When `persist` or the pre-apply hook fails, or a following plan is refused. A failure on a host is part of the outcome.
    pub async fn act(
        &self,
        planned: Planned,
        plan: &dyn Fn(&Snapshot) -> Result<Plan, PlanError>,
        persist: impl FnMut(&Plan) -> Result<(), EngineError>,
    ) -> Result<Reconciled, EngineError> {
        let mut hooks = RunHooks { run: self, persist, released: false };
        self.reconciler().until_settled(planned, plan, &mut hooks, MAX_ATTEMPTS).await
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

/// Hooks of the loop: print warnings, save the plan, and wait for the pre-apply hook.
struct RunHooks<'a, F> {
    run: &'a Run<'a>,
    persist: F,
    /// Whether the pre-apply hook has succeeded.
    released: bool,
}

impl<F: FnMut(&Plan) -> Result<(), EngineError>> ReconcileHooks for RunHooks<'_, F> {
    type Error = EngineError;

    async fn before_apply(&mut self, planned: &Planned, attempt: u8) -> Result<(), EngineError> {
        let Run { output, cancellation, pre_apply_wait, .. } = self.run;
        if attempt > 1 {
            self.run.warn(planned);
        }
        let plan = planned.plan();
        (self.persist)(plan)?;
        output.progress(&plan_progress(plan));
        if !std::mem::replace(&mut self.released, true) {
            output.progress(&Progress::Saved);
            pre_apply_wait.wait(plan.cluster.as_str(), *output, cancellation).await?;
        }
        Ok(())
    }

    fn observer(&mut self, plan: &Plan) -> Box<dyn RunObserver> {
        self.run.output.observe(plan)
    }

    fn before_retry(&mut self, _: &Outcome) {
        self.run
            .output
            .info("some steps failed with errors that may be temporary; observing the hosts again");
    }

    fn retry_refused(&mut self, error: &ReconcileError) {
        self.run.output.detail(1, &format!("no further attempt: {error}"));
    }
}

/// The size of a plan as a progress event.
pub fn plan_progress(plan: &Plan) -> Progress {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Progress::Plan { steps: count(plan.steps.len()), up_to_date: count(plan.up_to_date) }
}
