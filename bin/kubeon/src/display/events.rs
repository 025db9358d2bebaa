//! The progress of a run for programs, as lines of [`Progress`].

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use kubeon_apply::RunEvent;
use kubeon_plan::{Plan, StepId};
use kubeon_wire::Progress;
use parking_lot::Mutex;

/// Converts events of a run to progress lines.
pub(crate) struct ProgressEvents {
    steps: BTreeMap<StepId, StepText>,
    started_steps: Mutex<BTreeSet<StepId>>,
}

/// The texts of a step.
struct StepText {
    name: String,
    stage: String,
    title: String,
    why: String,
}

impl ProgressEvents {
    /// Reads the texts of the plan's steps.
    pub(crate) fn new(plan: &Plan) -> Self {
        let text = |step: &kubeon_plan::Step| StepText {
            name: name(plan, step.host),
            stage: step.stage.to_string(),
            title: step.title.clone(),
            why: step.why.clone(),
        };
        Self {
            steps: plan.steps.iter().map(|step| (step.id.clone(), text(step))).collect(),
            started_steps: Mutex::default(),
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
            // A lost host is reported once, not once for each of its steps that did not start.
            RunEvent::Failed { step, .. } if !self.has_started(step) => return None,
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
            RunEvent::PartsReceived { parts, bytes, milliseconds } => Progress::PartsReceived {
                parts: u32::try_from(*parts).unwrap_or(u32::MAX),
                bytes: *bytes,
                milliseconds: *milliseconds,
            },
            RunEvent::HostLost { host, failure } => note(format!("{host} is lost: {failure}"), true),
            RunEvent::HostRetrying { host, failure, .. } => {
                note(format!("{host}: retrying: {failure}"), true)
            }
            RunEvent::Note { host, step, text } => {
                note(format!("{host}: {}: {text}", self.title(step)), false)
            }
            _ => return None,
        })
    }

    fn started(&self, host: HostAddress, id: &StepId) -> Option<Progress> {
        self.started_steps.lock().insert(id.clone());
        let StepText { name, stage, title, why } = self.steps.get(id)?;
        let (name, stage, step, why) = (name.clone(), stage.clone(), title.clone(), why.clone());
        Some(Progress::Started { host, name, stage, step, why })
    }

    fn has_started(&self, id: &StepId) -> bool {
        self.started_steps.lock().contains(id)
    }

    fn title(&self, id: &StepId) -> String {
        self.steps.get(id).map_or_else(|| id.to_string(), |text| text.title.clone())
    }
}

fn note(text: String, warning: bool) -> Progress {
    Progress::Note { text, warning }
}

fn name(plan: &Plan, host: HostAddress) -> String {
    plan.hosts.get(&host).map_or_else(|| host.to_string(), |host| host.name.to_string())
}
