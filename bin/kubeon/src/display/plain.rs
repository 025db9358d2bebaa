//! The progress of a run without a terminal: one line per finished step.

use kubeon_apply::RunEvent;
use kubeon_plan::StepId;

use super::progress_view::RunProgress;
use crate::output::words;

/// The line of an event, if it has one. `level` is the level of `-v`.
pub(crate) fn line(view: &RunProgress, event: &RunEvent, level: u8) -> Option<String> {
    let host = |id: &StepId| {
        let host = view.find(id).and_then(|step| view.hosts.get(step.host));
        host.map_or_else(String::new, |host| host.name.clone())
    };
    let title = |id: &StepId| view.find(id).map_or_else(|| id.to_string(), |step| step.title.clone());
    Some(match event {
        RunEvent::Done { step, milliseconds, changed, .. } => {
            let took = words::time(std::time::Duration::from_millis(*milliseconds));
            let unchanged = if *changed { "" } else { ", nothing changed" };
            format!("{}  ✓ {} ({took}{unchanged})", host(step), title(step))
        }
        // A lost host is reported once, not once for each of its steps.
        RunEvent::Failed { step, failure, .. } if level < 4 && view.is_lost(step, &failure.cause) => {
            return None;
        }
        RunEvent::Failed { step, failure, .. } => format!("{}  ✗ {}: {failure}", host(step), title(step)),
        RunEvent::Retrying { step, failure, attempt, .. } => {
            format!("{}  ● {}, attempt {attempt}: {failure}", host(step), title(step))
        }
        RunEvent::Note { step, text, .. } if level >= 4 => {
            format!("{}  · {}: {text}", host(step), title(step))
        }
        RunEvent::PartsReceived { parts, bytes, milliseconds } if level >= 4 => {
            let took = words::time(std::time::Duration::from_millis(*milliseconds));
            format!("{parts} parts of {} MiB arrived on their hosts ({took})", bytes >> 20)
        }
        RunEvent::StepStarted { step, .. } if level >= 4 => format!("{}  ● {}", host(step), title(step)),
        RunEvent::HostRetrying { host, failure, .. } => format!("{host}  ● retrying: {failure}"),
        RunEvent::HostLost { host, failure } => format!("{host}  ✗ {failure}"),
        RunEvent::Skipped { step, because: Some(because), .. } if level >= 4 => {
            format!("{}  ○ {}: skipped, needs {}", host(step), title(step), title(because))
        }
        _ => return None,
    })
}
