//! The view as text. Pure functions: the same view, time and width give the same lines.

use kubeon_plan::StageName;
use std::time::Duration;

use console::{measure_text_width, truncate_str};

use super::estimate::ratio;
use super::progress_state::{HostProgress, StepProgress, StepStatus};
use super::progress_view::RunProgress;
use crate::output::words;

/// Maximum width of a line, so that the clock stays near the text.
const WIDEST: usize = 110;
/// Shorter durations are not shown.
const SHORT: Duration = Duration::from_secs(1);

/// The lines to show now: a header and one line per host, at most `height` lines.
pub(crate) fn lines(view: &RunProgress, now: Duration, width: usize, height: usize) -> Vec<String> {
    let width = width.clamp(20, WIDEST);
    let mut lines = vec![header(view, now, width)];
    let name_width = view.hosts.iter().map(|host| measure_text_width(&host.name)).max().unwrap_or(0).min(24);
    let room = height.saturating_sub(2).max(1);
    let (shown, hidden) = choose(view, room);
    for host in shown {
        lines.push(host_line(view, host, now, width, name_width));
    }
    if !hidden.is_empty() {
        lines.push(rest(view, &hidden));
    }
    lines
}

fn header(view: &RunProgress, now: Duration, width: usize) -> String {
    let clock = format!("{} of about {}", words::clock(now), words::clock(view.expected(now)));
    let room = width.saturating_sub(measure_text_width(&clock) + 2);
    let title = truncate_str(&view.title, room, "…").into_owned();
    let fill = width.saturating_sub(measure_text_width(&title) + measure_text_width(&clock));
    format!("{title}{}{clock}", " ".repeat(fill))
}

/// Splits the hosts into shown and hidden. Failed hosts have priority, then busy, waiting and finished hosts.
fn choose(view: &RunProgress, room: usize) -> (Vec<&HostProgress>, Vec<&HostProgress>) {
    if view.hosts.len() <= room {
        return (view.hosts.iter().collect(), Vec::new());
    }
    let mut order: Vec<_> = view.hosts.iter().enumerate().collect();
    order.sort_by_key(|(index, host)| (host_state(view, host), *index));
    let mut shown: Vec<_> = order.drain(..room.saturating_sub(1)).collect();
    shown.sort_by_key(|(index, _)| *index);
    (shown.into_iter().map(|(_, host)| host).collect(), order.into_iter().map(|(_, host)| host).collect())
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum HostState {
    Failed,
    Busy,
    Waiting,
    Done,
}

fn host_state(view: &RunProgress, host: &HostProgress) -> HostState {
    let any = |test: fn(&StepStatus) -> bool| host.steps.iter().any(|&index| test(&view.steps[index].status));
    if any(|status| matches!(status, StepStatus::Failed(_))) {
        HostState::Failed
    } else if any(|status| matches!(status, StepStatus::Running(_))) {
        HostState::Busy
    } else if any(|status| *status != StepStatus::Done) {
        HostState::Waiting
    } else {
        HostState::Done
    }
}

fn rest(view: &RunProgress, hidden: &[&HostProgress]) -> String {
    let count = |wanted: HostState| hidden.iter().filter(|host| host_state(view, host) == wanted).count();
    let parts = [
        (count(HostState::Failed), "failed"),
        (count(HostState::Busy), "busy"),
        (count(HostState::Waiting), "waiting"),
        (count(HostState::Done), "done"),
    ];
    let words: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("  … and {} more: {}", words::count(hidden.len(), "host"), words.join(", "))
}

fn host_line(
    view: &RunProgress,
    host: &HostProgress,
    now: Duration,
    width: usize,
    name_width: usize,
) -> String {
    let name = truncate_str(&host.name, name_width, "…").into_owned();
    let fill = name_width.saturating_sub(measure_text_width(&name));
    let head = format!("  {name}{}", " ".repeat(fill));
    let done = done_stages(view, host);
    let current_text = current(view, host, now);
    let mut full = head.clone();
    for stage in &done {
        full.push_str("  ✓ ");
        full.push_str(stage);
    }
    if measure_text_width(&full) + 2 + measure_text_width(&current_text) > width && !done.is_empty() {
        // The current step is more important than the finished stages.
        full = format!("{head}  ✓ {}", done.len());
    }
    if !current_text.is_empty() {
        full.push_str("  ");
        full.push_str(&current_text);
    }
    truncate_str(&full, width, "…").trim_end().to_owned()
}

/// The finished stages of a host, in order.
fn done_stages<'a>(view: &'a RunProgress, host: &HostProgress) -> Vec<&'a str> {
    let mut stages: Vec<(&StageName, bool)> = Vec::new();
    for &index in &host.steps {
        let step = &view.steps[index];
        let done = step.status == StepStatus::Done;
        match stages.iter_mut().find(|(stage, _)| **stage == step.stage) {
            Some((_, all)) => *all &= done,
            None => stages.push((&step.stage, done)),
        }
    }
    stages.iter().filter(|(_, done)| *done).map(|(stage, _)| done_word(stage)).collect()
}

/// The text of a finished stage.
fn done_word(stage: &StageName) -> &str {
    match stage.as_str() {
        "prepare" => "prepared",
        "join" => "joined",
        "verify" => "verified",
        other => other,
    }
}

/// The current activity of a host: a failure, a running step, or the step that it waits for.
fn current(view: &RunProgress, host: &HostProgress, now: Duration) -> String {
    let steps: Vec<&StepProgress> = host.steps.iter().map(|&index| &view.steps[index]).collect();
    if let Some((step, why)) = steps.iter().find_map(|step| match &step.status {
        StepStatus::Failed(why) => Some((step, why)),
        _ => None,
    }) {
        return format!("✗ {}: {why}", step.title);
    }
    if !host.trouble.is_empty() {
        return format!("● {}", host.trouble);
    }
    // Parts come first: they take long and have a progress.
    if let Some(text) = sending(host, &steps, now) {
        return format!("● {text}");
    }
    let running = steps.iter().filter_map(|step| match step.status {
        StepStatus::Running(since) => Some((since, step)),
        _ => None,
    });
    if let Some((since, step)) = running.min_by_key(|(since, _)| *since) {
        return format!("● {}", working(step, now.saturating_sub(since)));
    }
    match steps.iter().find(|step| step.status == StepStatus::Waiting) {
        Some(step) => format!("○ {}", waiting(view, host, step)),
        None => String::new(),
    }
}

fn working(step: &StepProgress, since: Duration) -> String {
    let mut text = if step.check { format!("waits until {}", step.title) } else { step.title.clone() };
    if !step.note.is_empty() {
        text = format!("{text}: {}", step.note);
    }
    if since >= SHORT {
        text = format!("{text} ({})", words::time(since));
    }
    text
}

/// The progress of all parts of a host: sent bytes, rate, and remaining time.
fn sending(host: &HostProgress, steps: &[&StepProgress], now: Duration) -> Option<String> {
    let parts: Vec<_> = steps.iter().filter(|step| step.size > 0).collect();
    parts.iter().find(|step| matches!(step.status, StepStatus::Running(_)))?;
    let total: u64 = parts.iter().map(|step| step.size).sum();
    let sent: u64 = parts.iter().map(|step| step.sent).sum();
    let head = format!("{} {:.0}/{}", parts[0].stage, words::mebibytes(sent), words::size(total));
    let since = now.saturating_sub(host.sending_since.unwrap_or(now));
    if sent == 0 || since < Duration::from_millis(300) {
        return Some(head);
    }
    let rate = words::mebibytes(sent) / since.as_secs_f64();
    let left = words::mebibytes(total - sent.min(total)) / rate.max(0.01);
    let left = Duration::from_secs_f64(left.min(86_400.0).ceil());
    if ratio(sent, total) >= 1.0 {
        return Some(format!("{head}, unpacking"));
    }
    Some(format!("{head}, {rate:.0} MiB/s, {} s left", left.as_secs()))
}

/// The step that a host waits for: the first need that is not done, with its host if that is another host.
fn waiting(view: &RunProgress, host: &HostProgress, step: &StepProgress) -> String {
    if !host.open {
        return format!("{}: connecting", step.stage);
    }
    let need =
        step.needs.iter().map(|&index| &view.steps[index]).find(|need| need.status != StepStatus::Done);
    match need {
        Some(need) if need.check => format!("{}: waits until {}", step.stage, need.title),
        Some(need) if view.hosts[need.host].name == host.name => {
            format!("{}: waits for {}", step.stage, need.title)
        }
        Some(need) => format!("{}: waits for {}: {}", step.stage, view.hosts[need.host].name, need.title),
        None => step.stage.to_string(),
    }
}

/// Colours the marks of a line.
pub(crate) fn paint(line: &str) -> String {
    let mark = |mark: &str, style: console::Style| {
        (mark.to_owned(), style.force_styling(true).apply_to(mark).to_string())
    };
    let marks = [
        mark("✓", console::Style::new().green()),
        mark("●", console::Style::new().yellow()),
        mark("○", console::Style::new().dim()),
        mark("✗", console::Style::new().red().bold()),
    ];
    marks.iter().fold(line.to_owned(), |line, (plain, painted)| line.replace(plain, painted))
}
