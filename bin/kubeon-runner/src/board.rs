//! What is known of the work while it goes on: stage, steps, failures. Status, heartbeat and summary read it.

mod findings;
mod mark;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubeon_api::HostAddress;
use kubeon_api::kubeonkube::{Finding, Steps};
use kubeon_wire::{PrecheckReport, Progress};
use serde_json::{Value, json};

use crate::tail::clip;
use mark::Mark;

/// The condition that says whether the runner works on it.
pub const PROGRESSING: &str = "Progressing";
/// The condition that says whether the hosts are fit for it.
pub const PRECHECKED: &str = "Prechecked";
/// The condition that says which hosts were met for the first time.
pub const HOST_KEYS_PINNED: &str = "HostKeysPinned";
/// The condition that says which steps failed, a line for each.
pub const STEP_FAILED: &str = "StepFailed";

/// Its reason when the work ended well and every step of it stood already.
pub const NOTHING_TO_DO: &str = "NothingToDo";

/// Failures kept: what a person reads, and the hosts of a precheck.
const FAILURES: usize = 200;
/// Bytes of what is said of new keys: an event takes no more.
const PINNED: usize = 1024;
/// Lines about steps that failed, and bytes of each.
const MOST_LINES: usize = 20;
const LINE: usize = 400;
/// Bytes of a step's name.
const CURRENT: usize = 200;

/// A step that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where.
    pub host: HostAddress,
    /// What the host is called, when that is known.
    pub name: Option<String>,
    /// The step.
    pub step: String,
    /// Why.
    pub cause: String,
}

/// A step that goes on.
#[derive(Debug, Clone)]
struct Step {
    host: HostAddress,
    title: String,
    /// What it is called in few words.
    short: String,
}

/// What is known.
#[derive(Debug, Clone, Default)]
pub struct Board {
    progressing: Option<Mark>,
    prechecked: Option<Mark>,
    pinned: Option<Mark>,
    stepped: Option<Mark>,
    /// What comes when the hosts are known to be fit: reason and message of the condition.
    then: Option<(&'static str, &'static str)>,
    /// What is wrong with which host, a line for each.
    unfit: String,
    /// The same for machines, with what does not stand in the way.
    findings: Vec<Finding>,
    done: u32,
    total: u32,
    /// How many steps plans said that there are to do; none before the first of them.
    planned: Option<u32>,
    /// Steps that go on, in the order in which they began.
    running: Vec<Step>,
    names: BTreeMap<HostAddress, String>,
    /// What a script says that it is at, and how many of those it began.
    task: Option<String>,
    tasks: u32,
    failures: Vec<Failure>,
    /// A line for each step that failed, and for what comes of that: `h6: start kubelet: …`.
    failed: Vec<String>,
    end: Option<String>,
}

impl Board {
    /// The work begins.
    pub fn stage(&mut self, reason: &'static str, message: &str) {
        let mut progressing = self.progressing.take();
        Mark::set(&mut progressing, "True", reason, message);
        *self = Self { progressing, ..Self::default() };
    }

    /// A stage begins that looks whether the hosts are fit, `then` what is done with them.
    pub fn precheck(&mut self, then: Option<(&'static str, &'static str)>) {
        let message = "looks whether the hosts are fit";
        self.stage("Prechecking", message);
        Mark::set(&mut self.prechecked, "Unknown", "Checking", message);
        self.then = then;
    }

    /// The hosts were looked at; gives what a person reads of it.
    fn prechecked(&mut self, report: &PrecheckReport) -> String {
        let (errors, warnings) = (findings::lines(report, true), findings::lines(report, false));
        let hosts = report.hosts.len();
        let count = format!("{hosts} hosts, {} errors, {} warnings", report.errors, report.warnings);
        let all = [&errors[..], &warnings[..]].concat();
        self.unfit = if report.ok { String::new() } else { errors.join("\n") };
        let message = if report.ok { all.join("\n") } else { self.unfit.clone() };
        let message = if message.is_empty() { "every host is fit".to_owned() } else { message };
        let (status, reason) = if report.ok { ("True", "Passed") } else { ("False", "Failed") };
        Mark::set(&mut self.prechecked, status, reason, &message);
        self.findings = findings::of_machines(report);
        if report.ok {
            self.go_on();
        }
        let told = |word: &'static str| move |line: &String| format!("\n    {word} {line}");
        let lines: String =
            errors.iter().map(told("error")).chain(warnings.iter().map(told("warning"))).collect();
        format!("precheck: {count}{lines}")
    }

    /// Keys of hosts were pinned that nobody knew before, each as `10.0.0.1 SHA256:…`.
    pub fn host_keys_pinned(&mut self, keys: &[String]) {
        if !keys.is_empty() {
            Mark::set(&mut self.pinned, "True", "FirstContact", &counted(keys));
        }
    }

    fn go_on(&mut self) {
        if let Some((reason, message)) = self.then.take() {
            Mark::set(&mut self.progressing, "True", reason, message);
        }
    }

    /// What is wrong with which host, a line for each, in the words of kubernetes-operator; none when nothing is.
    #[must_use]
    pub fn unfit(&self) -> Option<&str> {
        Some(self.unfit.as_str()).filter(|text| !text.is_empty())
    }

    /// The work ended.
    pub fn ended(&mut self, reason: &'static str, message: &str) {
        self.running.clear();
        if reason != "Succeeded" {
            Mark::set(&mut self.progressing, "False", reason, message);
            return;
        }
        let nothing = format!("kubeon found all of its steps done already: {}", self.total);
        let (reason, message) =
            if self.planned == Some(0) { (NOTHING_TO_DO, nothing.as_str()) } else { (reason, message) };
        Mark::set(&mut self.progressing, "False", reason, message);
        self.task = None;
        self.total = self.total.max(1);
        self.done = self.total;
    }

    /// A script says what it is at, as ansible does before each task.
    pub fn heading(&mut self, task: &str) {
        self.task = Some(clip(task, CURRENT).to_owned());
        self.tasks += 1;
    }

    /// Takes a line of progress; gives what a person reads of it.
    pub fn take(&mut self, progress: &Progress) -> String {
        match progress {
            Progress::Precheck { report } => self.prechecked(report),
            Progress::Plan { steps, standing } => {
                self.go_on();
                self.planned = Some(self.planned.unwrap_or_default().saturating_add(*steps));
                self.total = steps.saturating_add(*standing);
                self.done = *standing;
                self.running.clear();
                format!("plan: {steps} steps to do, {standing} stand already")
            }
            Progress::Saved => "state and keys are written down, no host was changed since".to_owned(),
            Progress::Started { host, name, stage, step, why } => {
                self.names.insert(*host, name.clone());
                self.no_more(*host, step);
                let short = if stage.is_empty() { step } else { stage }.clone();
                self.running.push(Step { host: *host, title: step.clone(), short });
                format!("{} {name} · {step}: {why}", self.count())
            }
            Progress::Finished { host, step, changed, milliseconds } => {
                self.no_more(*host, step);
                self.done = self.done.saturating_add(1);
                self.total = self.total.max(self.done);
                let what = if *changed { "done" } else { "stands" };
                format!("{} {} · {step} {what} ({milliseconds} ms)", self.count(), self.called(*host))
            }
            Progress::Failed { host, step, cause, log, again } => {
                self.failed(*host, step, cause, log, *again)
            }
            Progress::Note { text, warning: true } => format!("warning: {text}"),
            Progress::Note { text, .. } => text.clone(),
            Progress::End { ok: true, .. } => "all of it stands".to_owned(),
            Progress::End { reason, next, .. } => {
                self.end.clone_from(reason);
                let reason = reason.as_deref().unwrap_or("no reason was given");
                let next = next.as_ref().map(|next| format!("; goes on with: {next}"));
                format!("not all of it was done: {reason}{}", next.unwrap_or_default())
            }
        }
    }

    fn failed(&mut self, host: HostAddress, step: &str, cause: &str, log: &[String], again: bool) -> String {
        self.no_more(host, step);
        let name = self.called(host);
        let then = if again { " (it is tried again)" } else { "" };
        let mut text = format!("{name} · {step} FAILED: {cause}{then}");
        for line in log {
            text.push_str("\n    ");
            text.push_str(line);
        }
        let outcome = if again { "; it is tried again" } else { "" };
        let line = cause.lines().next().unwrap_or_default();
        let line = format!("{}{outcome}", clip(&format!("{name}: {step}: {line}"), LINE));
        if self.failed.len() < MOST_LINES && !self.failed.contains(&line) {
            self.failed.push(line);
            let reason = if again { "TriedAgain" } else { "Failed" };
            Mark::set(&mut self.stepped, "True", reason, &self.failed.join("\n"));
        }
        if !again && self.failures.len() < FAILURES {
            let name = self.names.get(&host).cloned();
            self.failures.push(Failure { host, name, step: step.to_owned(), cause: cause.to_owned() });
        }
        text
    }

    fn no_more(&mut self, host: HostAddress, title: &str) {
        self.running.retain(|step| step.host != host || step.title != title);
    }

    fn called(&self, host: HostAddress) -> String {
        self.names.get(&host).cloned().unwrap_or_else(|| host.to_string())
    }

    fn count(&self) -> String {
        format!("[{}/{}]", self.done, self.total)
    }

    /// Whether the work ended.
    #[must_use]
    pub fn over(&self) -> bool {
        self.progressing.as_ref().is_some_and(|mark| mark.status == "False")
    }

    /// What failed for good.
    #[must_use]
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// Why the program says that it could not do all of it.
    #[must_use]
    pub fn end(&self) -> Option<&str> {
        self.end.as_deref()
    }

    /// What it is at: `etcd on h4`.
    #[must_use]
    pub fn current(&self) -> Option<String> {
        let step = self.running.last().map(|step| format!("{} on {}", step.short, self.called(step.host)));
        step.map(|step| clip(&step, CURRENT).to_owned()).or_else(|| self.task.clone())
    }

    /// How far it is.
    #[must_use]
    pub fn steps(&self) -> Steps {
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let counted = if self.planned.is_some() { 0 } else { self.tasks };
        let (done, total) = match counted {
            0 => (self.done, self.total.max(1)),
            tasks if self.done > 0 => (tasks, tasks),
            // Nobody knows how many come: the one that it is at is the last that is known.
            tasks => (tasks - 1, tasks),
        };
        let open = counted > 0 && done < total;
        let text = if open { format!("{done}/…") } else { format!("{done}/{total}") };
        Steps { done: number(done), total: number(total), current: self.current(), text }
    }

    /// What the runner says of it in the status of the operation.
    #[must_use]
    pub fn status(&self) -> Value {
        let marks = [
            (PROGRESSING, &self.progressing),
            (PRECHECKED, &self.prechecked),
            (HOST_KEYS_PINNED, &self.pinned),
            (STEP_FAILED, &self.stepped),
        ];
        let conditions: Vec<Condition> =
            marks.iter().filter_map(|(kind, mark)| Some(mark.as_ref()?.condition(kind))).collect();
        let mut status = json!({"steps": self.steps(), "conditions": conditions});
        if !self.findings.is_empty() {
            status["findings"] = json!(self.findings);
        }
        status
    }
}

/// `3 new: 10.0.0.1 SHA256:…, …`, whole keys only.
fn counted(keys: &[String]) -> String {
    const MORE: &str = ", …";
    let mut text = format!("{} new: ", keys.len());
    for (at, key) in keys.iter().enumerate() {
        let between = if at == 0 { "" } else { ", " };
        if text.len() + between.len() + key.len() + MORE.len() > PINNED {
            return text + MORE;
        }
        text.push_str(between);
        text.push_str(key);
    }
    text
}

#[cfg(test)]
mod tests;
