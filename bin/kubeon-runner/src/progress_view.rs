//! The progress of the work: stage, steps, failures. Status, heartbeat and termination message read it.

mod condition;
mod findings;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubeon_api::kubeonkube::{Finding, Steps};
use kubeon_api::{ConditionStatus, HostAddress, Refusal, clip};
use kubeon_wire::{PrecheckReport, Progress};
use serde::Serialize;
use tokio::sync::watch;

use crate::outcome::WorkResult;
use condition::ConditionState;

/// The condition that is true while the runner works on the operation.
pub(crate) const PROGRESSING: &str = "Progressing";
/// The condition with the result of the precheck.
pub(crate) const PRECHECKED: &str = "Prechecked";
/// The condition that lists host keys pinned at a first contact.
pub(crate) const HOST_KEYS_PINNED: &str = "HostKeysPinned";
/// The condition that lists failed steps, one line for each.
pub(crate) const STEP_FAILED: &str = "StepFailed";

/// The reason of `Progressing` if every step was already up to date.
pub(crate) const NOTHING_TO_DO: &str = "NothingToDo";

/// The maximum number of recorded failures.
const FAILURES: usize = 200;
/// The longest message about new keys in bytes: the limit of an event.
const PINNED: usize = 1024;
/// The most lines about failed steps, and the longest of them in bytes.
const MOST_LINES: usize = 20;
const LINE: usize = 400;
/// The longest name of a step in bytes.
const CURRENT: usize = 200;

/// The fields of the operation's status that the runner owns. An empty list is not written.
#[derive(Debug, Serialize)]
pub(crate) struct ReportedStatus<'v> {
    steps: Steps,
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "<[Finding]>::is_empty")]
    findings: &'v [Finding],
    #[serde(skip_serializing_if = "<[Refusal]>::is_empty")]
    refusals: &'v [Refusal],
}

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedStep {
    /// The host.
    pub host: HostAddress,
    /// The host's name, when it is known.
    pub name: Option<String>,
    /// The step.
    pub step: String,
    /// The cause.
    pub cause: String,
}

/// A running step.
#[derive(Debug, Clone)]
struct RunningStep {
    host: HostAddress,
    title: String,
    /// Its short name.
    short: String,
}

/// The progress of the work, shared with its watchers.
pub(crate) type SharedProgress = Arc<watch::Sender<ProgressView>>;

/// The progress of the work.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgressView {
    progressing: Option<ConditionState>,
    prechecked: Option<ConditionState>,
    pinned: Option<ConditionState>,
    step_failed: Option<ConditionState>,
    /// The reason and message of the condition after a passed precheck.
    then: Option<(&'static str, &'static str)>,
    /// The errors of the precheck, one line for each.
    unfit: String,
    /// Errors and warnings of the precheck for the status.
    findings: Vec<Finding>,
    /// The reasons for refusing the work, as data for the operator.
    refusals: Vec<Refusal>,
    done: u32,
    total: u32,
    /// The number of steps in all plans so far; none before the first plan.
    planned: Option<u32>,
    /// The running steps, in the order of their start.
    running: Vec<RunningStep>,
    names: BTreeMap<HostAddress, String>,
    /// The current task of a script.
    task: Option<String>,
    /// The number of tasks that a script has started.
    tasks: u32,
    failures: Vec<FailedStep>,
    /// One line for each failed step: `h6: start kubelet: …`.
    failed: Vec<String>,
    end: Option<String>,
}

impl ProgressView {
    /// Starts the work.
    pub(crate) fn begin(&mut self, reason: &'static str, message: &str) {
        let mut progressing = self.progressing.take();
        ConditionState::set(&mut progressing, ConditionStatus::True, reason, message);
        *self = Self { progressing, ..Self::default() };
    }

    /// Starts a precheck. `then` is the reason and message of the condition after it.
    pub(crate) fn precheck(&mut self, then: Option<(&'static str, &'static str)>) {
        let message = "checking the hosts";
        self.begin("Prechecking", message);
        ConditionState::set(&mut self.prechecked, ConditionStatus::Unknown, "Checking", message);
        self.then = then;
    }

    /// Records a precheck and returns it as readable text.
    fn prechecked(&mut self, report: &PrecheckReport) -> String {
        let (errors, warnings) = (findings::lines(report, true), findings::lines(report, false));
        let hosts = report.hosts.len();
        let count = format!("{hosts} hosts, {} errors, {} warnings", report.errors, report.warnings);
        let all = [&errors[..], &warnings[..]].concat();
        self.unfit = if report.ok { String::new() } else { errors.join("\n") };
        let message = if report.ok { all.join("\n") } else { self.unfit.clone() };
        let message = if message.is_empty() { "every host passed".to_owned() } else { message };
        let reason = if report.ok { "Passed" } else { "Failed" };
        ConditionState::set(&mut self.prechecked, report.ok.into(), reason, &message);
        self.findings = findings::for_status(report);
        self.refusals = findings::refusals(&report.refusals().collect::<Vec<_>>());
        if report.ok {
            self.after_precheck();
        }
        let line = |word: &'static str| move |line: &String| format!("\n    {word} {line}");
        let lines: String =
            errors.iter().map(line("error")).chain(warnings.iter().map(line("warning"))).collect();
        format!("precheck: {count}{lines}")
    }

    /// Records host keys that were unknown before, each as `10.0.0.1 SHA256:…`.
    pub(crate) fn host_keys_pinned(&mut self, keys: &[String]) {
        if !keys.is_empty() {
            ConditionState::set(
                &mut self.pinned,
                ConditionStatus::True,
                "FirstContact",
                &pinned_message(keys),
            );
        }
    }

    fn after_precheck(&mut self) {
        if let Some((reason, message)) = self.then.take() {
            ConditionState::set(&mut self.progressing, ConditionStatus::True, reason, message);
        }
    }

    /// The errors of the precheck, one line for each, in the format of kubernetes-operator.
    #[must_use]
    pub(crate) fn unfit(&self) -> Option<&str> {
        Some(self.unfit.as_str()).filter(|text| !text.is_empty())
    }

    /// Ends the work.
    pub(crate) fn finish(&mut self, result: WorkResult, message: &str) {
        self.running.clear();
        let reason = result.as_str();
        if result != WorkResult::Succeeded {
            ConditionState::set(&mut self.progressing, ConditionStatus::False, reason, message);
            return;
        }
        let nothing = format!("all {} steps are up to date", self.total);
        let (reason, message) =
            if self.planned == Some(0) { (NOTHING_TO_DO, nothing.as_str()) } else { (reason, message) };
        ConditionState::set(&mut self.progressing, ConditionStatus::False, reason, message);
        self.task = None;
        self.total = self.total.max(1);
        self.done = self.total;
    }

    /// Records the task that a script starts, as ansible prints it.
    pub(crate) fn start_task(&mut self, task: &str) {
        self.task = Some(clip(task, CURRENT).to_owned());
        self.tasks += 1;
    }

    /// Records a progress event and returns it as readable text.
    pub(crate) fn record(&mut self, progress: &Progress) -> String {
        match progress {
            Progress::Precheck { report } => self.prechecked(report),
            Progress::Plan { steps, up_to_date } => {
                self.after_precheck();
                self.planned = Some(self.planned.unwrap_or_default().saturating_add(*steps));
                self.total = steps.saturating_add(*up_to_date);
                self.done = *up_to_date;
                self.running.clear();
                format!("plan: {steps} steps to do, {up_to_date} up to date")
            }
            Progress::Saved => "state and host keys are saved; no host has been changed yet".to_owned(),
            Progress::Started { host, name, stage, step, why } => {
                self.names.insert(*host, name.clone());
                self.step_ended(*host, step);
                let short = if stage.is_empty() { step } else { stage }.clone();
                self.running.push(RunningStep { host: *host, title: step.clone(), short });
                format!("{} {name} · {step}: {why}", self.count())
            }
            Progress::Finished { host, step, changed, milliseconds } => {
                self.step_ended(*host, step);
                self.done = self.done.saturating_add(1);
                self.total = self.total.max(self.done);
                let result = if *changed { "done" } else { "up to date" };
                format!("{} {} · {step} {result} ({milliseconds} ms)", self.count(), self.host_name(*host))
            }
            Progress::Failed { host, step, cause, log, again } => {
                self.failed(*host, step, cause, log, *again)
            }
            Progress::PartsReceived { parts, bytes, milliseconds } => {
                format!("{parts} parts of {} MiB arrived after {milliseconds} ms", bytes >> 20)
            }
            Progress::Note { text, warning: true } => format!("warning: {text}"),
            Progress::Note { text, .. } => text.clone(),
            Progress::End { ok: true, .. } => "everything is up to date".to_owned(),
            Progress::End { reason, next, refusals, .. } => {
                self.end.clone_from(reason);
                if !refusals.is_empty() {
                    self.refusals = findings::refusals(refusals);
                    self.end = reason.as_ref().map(|title| findings::reason(title, &self.refusals));
                }
                let reason = self.end.as_deref().unwrap_or("the program gave no reason");
                let next = next.as_ref().map(|next| format!("; next: {next}"));
                format!("not completed: {reason}{}", next.unwrap_or_default())
            }
        }
    }

    fn failed(&mut self, host: HostAddress, step: &str, cause: &str, log: &[String], again: bool) -> String {
        self.step_ended(host, step);
        let name = self.host_name(host);
        let then = if again { " (will retry)" } else { "" };
        let mut text = format!("{name} · {step} FAILED: {cause}{then}");
        for line in log {
            text.push_str("\n    ");
            text.push_str(line);
        }
        let outcome = if again { "; will retry" } else { "" };
        let line = cause.lines().next().unwrap_or_default();
        let line = format!("{}{outcome}", clip(&format!("{name}: {step}: {line}"), LINE));
        if self.failed.len() < MOST_LINES && !self.failed.contains(&line) {
            self.failed.push(line);
            let reason = if again { "TriedAgain" } else { "Failed" };
            ConditionState::set(
                &mut self.step_failed,
                ConditionStatus::True,
                reason,
                &self.failed.join("\n"),
            );
        }
        if !again && self.failures.len() < FAILURES {
            let name = self.names.get(&host).cloned();
            self.failures.push(FailedStep { host, name, step: step.to_owned(), cause: cause.to_owned() });
        }
        text
    }

    fn step_ended(&mut self, host: HostAddress, title: &str) {
        self.running.retain(|step| step.host != host || step.title != title);
    }

    fn host_name(&self, host: HostAddress) -> String {
        self.names.get(&host).cloned().unwrap_or_else(|| host.to_string())
    }

    fn count(&self) -> String {
        format!("[{}/{}]", self.done, self.total)
    }

    /// Whether the work has ended.
    #[must_use]
    pub(crate) fn is_finished(&self) -> bool {
        self.progressing.as_ref().is_some_and(|state| state.status == ConditionStatus::False)
    }

    /// The steps that failed and are not retried.
    #[must_use]
    pub(crate) fn failures(&self) -> &[FailedStep] {
        &self.failures
    }

    /// The program's own reason for an incomplete run.
    #[must_use]
    pub(crate) fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// The current step: `etcd on h4`.
    #[must_use]
    pub(crate) fn current(&self) -> Option<String> {
        let step = self.running.last().map(|step| format!("{} on {}", step.short, self.host_name(step.host)));
        step.map(|step| clip(&step, CURRENT).to_owned()).or_else(|| self.task.clone())
    }

    /// The counts of steps.
    #[must_use]
    pub(crate) fn steps(&self) -> Steps {
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let counted = if self.planned.is_some() { 0 } else { self.tasks };
        let (done, total) = match counted {
            0 => (self.done, self.total.max(1)),
            tasks if self.done > 0 => (tasks, tasks),
            // The number of tasks is unknown: the current task counts as the last one.
            tasks => (tasks - 1, tasks),
        };
        let open = counted > 0 && done < total;
        let text = if open { format!("{done}/…") } else { format!("{done}/{total}") };
        Steps { done: number(done), total: number(total), current: self.current(), text }
    }

    /// The fields that the runner writes to the status of the operation.
    #[must_use]
    pub(crate) fn status(&self) -> ReportedStatus<'_> {
        let states = [
            (PROGRESSING, &self.progressing),
            (PRECHECKED, &self.prechecked),
            (HOST_KEYS_PINNED, &self.pinned),
            (STEP_FAILED, &self.step_failed),
        ];
        let conditions: Vec<Condition> =
            states.iter().filter_map(|(kind, state)| Some(state.as_ref()?.condition(kind))).collect();
        ReportedStatus { steps: self.steps(), conditions, findings: &self.findings, refusals: &self.refusals }
    }
}

/// `3 new: 10.0.0.1 SHA256:…, …`, whole keys only.
fn pinned_message(keys: &[String]) -> String {
    const MORE: &str = ", …";
    let mut text = format!("{} new: ", keys.len());
    for (at, key) in keys.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        if text.len() + separator.len() + key.len() + MORE.len() > PINNED {
            return text + MORE;
        }
        text.push_str(separator);
        text.push_str(key);
    }
    text
}

#[cfg(test)]
mod tests;
