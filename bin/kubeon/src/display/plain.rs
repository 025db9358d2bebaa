//! Without a terminal: one line for each thing that ended, with the time.

use kubeon_apply::RunEvent;

use super::progress_view::RunProgress;
use crate::output::words;

/// The line for what happened, if it is worth one; `level` is that of `-v`.
pub(crate) fn line(view: &RunProgress, event: &RunEvent, level: u8) -> Option<String> {
    let host = |id: &str| {
        let host = view.find(id).and_then(|step| view.hosts.get(step.host));
        host.map_or_else(String::new, |host| host.name.clone())
    };
    let title = |id: &str| view.find(id).map_or_else(|| id.to_owned(), |step| step.title.clone());
    Some(match event {
        RunEvent::Done { step, milliseconds, changed, .. } => {
            let took = words::time(std::time::Duration::from_millis(*milliseconds));
            let same = if *changed { "" } else { ", nothing changed" };
            format!("{}  ✓ {} ({took}{same})", host(step), title(step))
        }
        // A lost host is one line, not one for each of its steps.
        RunEvent::Failed { step, failure, .. } if level < 4 && view.is_lost(step, &failure.cause) => {
            return None;
        }
        RunEvent::Failed { step, failure, .. } => format!("{}  ✗ {}: {failure}", host(step), title(step)),
        RunEvent::Retrying { step, failure, attempt, .. } => {
            format!("{}  ● {}, try {attempt}: {failure}", host(step), title(step))
        }
        RunEvent::Note { step, text, .. } if level >= 4 => {
            format!("{}  · {}: {text}", host(step), title(step))
        }
        RunEvent::StepStarted { step, .. } if level >= 4 => format!("{}  ● {}", host(step), title(step)),
        RunEvent::HostRetrying { host, failure, .. } => format!("{host}  ● trying again: {failure}"),
        RunEvent::HostLost { host, failure } => format!("{host}  ✗ {failure}"),
        RunEvent::Skipped { step, because: Some(because), .. } if level >= 4 => {
            format!("{}  ○ {}: left out, needs {}", host(step), title(step), title(because))
        }
        _ => return None,
    })
}
