//! The error of an incomplete run.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use kubeon_engine::error::ErrorCategory;
use kubeon_plan::{Plan, Step, StepOutcome};
use kubeon_reconcile::Reconciled;
use kubeon_wire::{Op, POD_SUFFIX, StepFailure};

use crate::cli_error::CliError;
use crate::output::words;

/// Maximum number of failed hosts that are reported besides the first.
const MAX_OTHERS: usize = 5;
/// Maximum number of log lines that are shown.
const LOG_LINES: usize = 10;

/// Why a run is not complete. `next_command` continues the run.
pub(crate) fn incomplete(reconciled: &Reconciled, interrupted: bool, next_command: &str) -> CliError {
    let plan = &reconciled.plan;
    let failed: Vec<(usize, &Step, &StepFailure)> = plan
        .steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| match reconciled.outcome.steps.get(&step.id) {
            Some(StepOutcome::Failed { failure }) => Some((index, step, failure)),
            _ => None,
        })
        .collect();
    let Some((index, step, failure)) = failed.first() else {
        let title = if interrupted { "stopped before the end" } else { "some steps were not completed" };
        let category = if interrupted { ErrorCategory::Interrupted } else { ErrorCategory::Failed };
        return CliError::new(category, format!("{}: {title}", plan.cluster))
            .row("done", progress(reconciled))
            .next_command("continue with", next_command);
    };
    let total = plan.steps.len();
    let title =
        format!("{}: step {} of {total} failed on {}", plan.cluster, index + 1, name(plan, step.host));
    let mut error =
        CliError::new(if interrupted { ErrorCategory::Interrupted } else { ErrorCategory::Failed }, title)
            .row("step", format!("{}: {}{}", step.stage, step.title, digest(step)))
            .row("cause", &failure.cause);
    let lines = &failure.log[failure.log.len().saturating_sub(LOG_LINES)..];
    if !lines.is_empty() {
        error = error.row("output", lines.join("\n"));
    }
    if let Some(command) = log_command(plan, step) {
        error = error.row("log", command);
    }
    for (host, text) in others(plan, &failed) {
        error = error.row("also", format!("{host}: {text}"));
    }
    error.row("done", progress(reconciled)).next_command("continue with", next_command)
}

fn name(plan: &Plan, host: HostAddress) -> String {
    plan.hosts.get(&host).map_or_else(|| host.to_string(), |host| host.name.to_string())
}

fn digest(step: &Step) -> String {
    match &step.op {
        Op::Part { digest, .. } => format!(" (sha256 {}…)", &digest.as_str()[..8]),
        _ => String::new(),
    }
}

/// The command that shows the journal of the step's service.
fn log_command(plan: &Plan, step: &Step) -> Option<String> {
    let Op::Service { name: unit, .. } = &step.op else { return None };
    let command = match unit.strip_suffix(POD_SUFFIX) {
        Some(pod) => format!("tail -n 50 /var/log/pods/kube-system_{pod}-*/*/*.log"),
        None => format!("journalctl -u {unit} -n 50 --no-pager"),
    };
    Some(format!("kubeon exec {}@{} '{command}'", plan.cluster, name(plan, step.host)))
}

/// One failure for each other host.
fn others(plan: &Plan, failed: &[(usize, &Step, &StepFailure)]) -> Vec<(String, String)> {
    let first = failed.first().map(|(_, step, _)| step.host);
    let mut causes: BTreeMap<HostAddress, String> = BTreeMap::new();
    for (_, step, failure) in failed.iter().filter(|(_, step, _)| Some(step.host) != first) {
        causes.entry(step.host).or_insert_with(|| format!("{}: {}", step.title, failure.cause));
    }
    let count = causes.len();
    let mut rows: Vec<_> =
        causes.into_iter().take(MAX_OTHERS).map(|(host, text)| (name(plan, host), text)).collect();
    if count > MAX_OTHERS {
        rows.push((words::count(count - MAX_OTHERS, "host"), "more failed".to_owned()));
    }
    rows
}

/// `18 steps are up to date; h1 and h2 are complete`.
fn progress(reconciled: &Reconciled) -> String {
    let Reconciled { plan, outcome, .. } = reconciled;
    let is_done = |step: &Step| matches!(outcome.steps.get(&step.id), Some(StepOutcome::Done { .. }));
    let done = plan.steps.iter().filter(|step| is_done(step)).count();
    let unfinished: BTreeSet<_> =
        plan.steps.iter().filter(|step| !is_done(step)).map(|step| step.host).collect();
    let complete: Vec<_> = plan
        .hosts
        .iter()
        .filter(|(host, _)| !unfinished.contains(host))
        .map(|(_, host)| host.name.to_string())
        .collect();
    let steps = plan.up_to_date + done;
    let steps =
        if steps == 1 { "1 step is up to date".to_owned() } else { format!("{steps} steps are up to date") };
    match complete.as_slice() {
        [] => steps,
        [one] => format!("{steps}; {one} is complete"),
        [rest @ .., last] if rest.len() < 4 => {
            format!("{steps}; {} and {last} are complete", rest.join(", "))
        }
        many => format!("{steps}; {} are complete", words::count(many.len(), "host")),
    }
}

#[cfg(test)]
mod tests;
