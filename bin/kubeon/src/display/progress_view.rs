//! What is known of a run: every host, every step, where it stands. Time comes in as a value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_apply::RunEvent;
use kubeon_plan::{Plan, StepId};
use kubeon_wire::Op;

use super::estimate::Estimate;
use super::progress_state::{HostProgress, StepProgress, StepStatus};

/// A run.
#[derive(Debug, Clone)]
pub(crate) struct RunProgress {
    /// The cluster's name and version.
    pub title: String,
    /// Hosts in the plan's order, those without steps left out.
    pub hosts: Vec<HostProgress>,
    /// Steps in the plan's order.
    pub steps: Vec<StepProgress>,
    estimate: Estimate,
    places: BTreeMap<StepId, usize>,
    addresses: BTreeMap<HostAddress, usize>,
}

impl RunProgress {
    /// Everything is still to do.
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut view = Self {
            title: format!("{}  {}", plan.cluster, plan.version),
            hosts: Vec::new(),
            steps: Vec::with_capacity(plan.steps.len()),
            estimate: Estimate::new(plan),
            places: plan.steps.iter().enumerate().map(|(place, step)| (step.id.clone(), place)).collect(),
            addresses: BTreeMap::new(),
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
            view.addresses.insert(address, view.hosts.len());
            view.hosts.push(HostProgress {
                name,
                steps: Vec::new(),
                open: false,
                trouble: String::new(),
                sending_since: None,
            });
        }
        for (place, step) in plan.steps.iter().enumerate() {
            let host = view.addresses.get(&step.host).copied().unwrap_or_default();
            view.hosts[host].steps.push(place);
            view.steps.push(StepProgress {
                stage: step.stage,
                title: step.title.clone(),
                check: matches!(step.op, Op::Await { .. }),
                size: if let Op::Part { size, .. } = &step.op { *size } else { 0 },
                sent: 0,
                status: StepStatus::Waiting,
                note: String::new(),
                needs: step.needs.iter().filter_map(|id| view.places.get(id).copied()).collect(),
                host,
            });
        }
        view
    }

    /// Takes in what happened; `now` is the time since the run began.
    pub(crate) fn on_event(&mut self, event: &RunEvent, now: Duration) {
        match event {
            RunEvent::PlanStarted { .. } => {}
            RunEvent::HostOpened { host } => self.host(*host, |host| {
                host.open = true;
                host.trouble.clear();
            }),
            RunEvent::HostRetrying { host, failure, .. } => {
                self.host(*host, |host| host.trouble = format!("trying again: {failure}"));
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
                self.step(step, |step| step.note = format!("try {attempt}: {failure}"));
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

    /// A step by its identity.
    pub(crate) fn find(&self, id: &str) -> Option<&StepProgress> {
        self.places.get(id).map(|&place| &self.steps[place])
    }

    /// Whether the step failed because its host was lost for that cause.
    pub(crate) fn is_lost(&self, id: &str, cause: &str) -> bool {
        self.find(id).is_some_and(|step| self.hosts[step.host].trouble == cause)
    }

    /// How long the run will have taken in all, as far as can be told.
    pub(crate) fn expected(&self, now: Duration) -> Duration {
        self.estimate.total(&self.steps, now)
    }

    fn sent(&mut self, step: &str, bytes: u64, now: Duration) {
        let Some(&place) = self.places.get(step) else { return };
        self.steps[place].sent = bytes;
        let host = self.steps[place].host;
        self.hosts[host].sending_since.get_or_insert(now);
    }

    fn step(&mut self, id: &str, change: impl FnOnce(&mut StepProgress)) {
        if let Some(&place) = self.places.get(id) {
            change(&mut self.steps[place]);
        }
    }

    fn host(&mut self, address: HostAddress, change: impl FnOnce(&mut HostProgress)) {
        if let Some(&place) = self.addresses.get(&address) {
            change(&mut self.hosts[place]);
        }
    }
}
