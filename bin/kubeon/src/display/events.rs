//! For programs: what happens as lines of [`Progress`].

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use kubeon_apply::RunEvent;
use kubeon_plan::{Plan, StepId};
use kubeon_wire::Progress;
use parking_lot::Mutex;

/// Turns events of a run into lines for programs.
pub(crate) struct ProgressEvents {
    steps: BTreeMap<StepId, StepText>,
    begun: Mutex<BTreeSet<String>>,
}

/// What a step is called.
struct StepText {
    name: String,
    stage: String,
    title: String,
    why: String,
}

impl ProgressEvents {
    /// Knows the plan's words.
    pub(crate) fn new(plan: &Plan) -> Self {
        let words = |step: &kubeon_plan::Step| StepText {
            name: name(plan, step.host),
            stage: step.stage.to_string(),
            title: step.title.clone(),
            why: step.why.clone(),
        };
        Self {
            steps: plan.steps.iter().map(|step| (step.id.clone(), words(step))).collect(),
            begun: Mutex::default(),
        }
    }

    /// The line of an event, if it has one.
    pub(crate) fn line(&self, event: &RunEvent) -> Option<Progress> {
        Some(match event {
            RunEvent::StepStarted { host, step } => self.started(*host, step)?,
            RunEvent::Done { host, step, changed, milliseconds } => {
                let (host, step) = (*host, self.title(step));
                Progress::Finished { host, step, changed: *changed, milliseconds: *milliseconds }
            }
            // A lost host is one line, not one for each of its steps that never began.
            RunEvent::Failed { step, .. } if !self.has_begun(step) => return None,
            RunEvent::Failed { host, step, failure } => Progress::Failed {
                host: *host,
                step: self.title(step),
                cause: failure.cause.clone(),
                log: failure.log.clone(),
                again: false,
            },
            RunEvent::Retrying { host, step, failure, .. } => Progress::Failed {
                host: *host,
                step: self.title(step),
                cause: failure.cause.clone(),
                log: failure.log.clone(),
                again: true,
            },
            RunEvent::HostLost { host, failure } => note(format!("{host} is lost: {failure}"), true),
            RunEvent::HostRetrying { host, failure, .. } => {
                note(format!("{host}: trying again: {failure}"), true)
            }
            RunEvent::Note { host, step, text } => {
                note(format!("{host}: {}: {text}", self.title(step)), false)
            }
            _ => return None,
        })
    }

    fn started(&self, host: HostAddress, id: &str) -> Option<Progress> {
        self.begun.lock().insert(id.to_owned());
        let StepText { name, stage, title, why } = self.steps.get(id)?;
        let (name, stage, step, why) = (name.clone(), stage.clone(), title.clone(), why.clone());
        Some(Progress::Started { host, name, stage, step, why })
    }

    fn has_begun(&self, id: &str) -> bool {
        self.begun.lock().contains(id)
    }

    fn title(&self, id: &str) -> String {
        self.steps.get(id).map_or_else(|| id.to_owned(), |words| words.title.clone())
    }
}

fn note(text: String, warning: bool) -> Progress {
    Progress::Note { text, warning }
}

fn name(plan: &Plan, host: HostAddress) -> String {
    plan.hosts.get(&host).map_or_else(|| host.to_string(), |host| host.name.to_string())
}
