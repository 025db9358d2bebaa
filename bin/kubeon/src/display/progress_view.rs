//! The state of a run: every host and every step. The time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_apply::RunEvent;
use kubeon_plan::{Plan, StepId};
use kubeon_wire::Op;

use super::estimate::Estimate;
use super::progress_state::{HostProgress, StepProgress, StepStatus};

/// The progress of a run.
#[derive(Debug, Clone)]
pub(crate) struct RunProgress {
    /// The cluster's name and version.
    pub title: String,
    /// Hosts in the order of the plan, without hosts that have no steps.
    pub hosts: Vec<HostProgress>,
    /// Steps in the order of the plan.
    pub steps: Vec<StepProgress>,
    estimate: Estimate,
    step_indexes: BTreeMap<StepId, usize>,
    host_indexes: BTreeMap<HostAddress, usize>,
}

impl RunProgress {
    /// The progress before the run.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut view = Self {
            title: format!("{}  {}", plan.cluster, plan.version),
            hosts: Vec::new(),
            steps: Vec::with_capacity(plan.steps.len()),
            estimate: Estimate::new(plan),
            step_indexes: plan
                .steps
                .iter()
                .enumerate()
                .map(|(index, step)| (step.id.clone(), index))
                .collect(),
            host_indexes: BTreeMap::new(),
        };
        let busy: BTreeSet<_> = plan.steps.iter().map(|step| step.host).collect();
        let mut order = Vec::new();
        for step in &plan.steps {
            if !order.contains(&step.host) && order.len() < busy.len() {
                order.push(step.host);
            }
        }
        for address in order {
            let name =
                plan.hosts.get(&address).map_or_else(|| address.to_string(), |host| host.name.to_string());
            view.host_indexes.insert(address, view.hosts.len());
            view.hosts.push(HostProgress {
                name,
                steps: Vec::new(),
                open: false,
                trouble: String::new(),
                sending_since: None,
            });
        }
        for (index, step) in plan.steps.iter().enumerate() {
            let host = view.host_indexes.get(&step.host).copied().unwrap_or_default();
            view.hosts[host].steps.push(index);
            view.steps.push(StepProgress {
                stage: step.stage,
                title: step.title.clone(),
                check: matches!(step.op, Op::Await { .. }),
                size: if let Op::Part { size, .. } = &step.op { *size } else { 0 },
                sent: 0,
                status: StepStatus::Waiting,
                note: String::new(),
                needs: step.needs.iter().filter_map(|id| view.step_indexes.get(id).copied()).collect(),
                host,
            });
        }
        view
    }

    /// Handles an event; `now` is the time since the start of the run.
    pub(crate) fn on_event(&mut self, event: &RunEvent, now: Duration) {
        match event {
            RunEvent::PlanStarted { .. } | RunEvent::PartsReceived { .. } => {}
            RunEvent::HostOpened { host } => self.host(*host, |host| {
                host.open = true;
                host.trouble.clear();
            }),
            RunEvent::HostRetrying { host, failure, .. } => {
                self.host(*host, |host| host.trouble = format!("retrying: {failure}"));
            }
            RunEvent::HostLost { host, failure } => {
                self.host(*host, |host| host.trouble = failure.to_string())
            }
            RunEvent::StepStarted { step, .. } => {
                self.step(step, |step| step.status = StepStatus::Running(now))
            }
            RunEvent::Progress { step, done, .. } => self.sent(step, *done, now),
            RunEvent::Note { step, text, .. } => self.step(step, |step| step.note.clone_from(text)),
            RunEvent::Retrying { step, failure, attempt, .. } => {
                self.step(step, |step| step.note = format!("attempt {attempt}: {failure}"));
            }
            RunEvent::Done { step, .. } => self.step(step, |step| {
                step.status = StepStatus::Done;
                step.sent = step.size;
            }),
            RunEvent::Failed { step, failure, .. } => {
                self.step(step, |step| step.status = StepStatus::Failed(failure.to_string()));
            }
            RunEvent::Skipped { step, .. } => self.step(step, |step| step.status = StepStatus::Skipped),
        }
    }

    /// The step with this ID.
    pub(crate) fn find(&self, id: &StepId) -> Option<&StepProgress> {
        self.step_indexes.get(id).map(|&index| &self.steps[index])
    }

    /// Whether the host of the step was lost with this cause.
    pub(crate) fn is_lost(&self, id: &StepId, cause: &str) -> bool {
        self.find(id).is_some_and(|step| self.hosts[step.host].trouble == cause)
    }

    /// The estimated total duration of the run.
    pub(crate) fn expected(&self, now: Duration) -> Duration {
        self.estimate.total(&self.steps, now)
    }

    fn sent(&mut self, step: &StepId, bytes: u64, now: Duration) {
        let Some(&index) = self.step_indexes.get(step) else { return };
        self.steps[index].sent = bytes;
        let host = self.steps[index].host;
        self.hosts[host].sending_since.get_or_insert(now);
    }

    fn step(&mut self, id: &StepId, change: impl FnOnce(&mut StepProgress)) {
        if let Some(&index) = self.step_indexes.get(id) {
            change(&mut self.steps[index]);
        }
    }

    fn host(&mut self, address: HostAddress, change: impl FnOnce(&mut HostProgress)) {
        if let Some(&index) = self.host_indexes.get(&address) {
            change(&mut self.hosts[index]);
        }
    }
}
