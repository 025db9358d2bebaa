//! What is known of the work while it goes on: stage, steps, failures. Status, heartbeat and summary read it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kubeon_api::HostAddress;
use kubeon_api::kubeonkube::{Finding, FindingSeverity, Steps};
use kubeon_wire::{PrecheckReport, PrecheckResult, PrecheckSeverity, Progress};
use serde_json::{Value, json};

use crate::tail::clip;

/// The condition that says whether the runner works on it.
pub const PROGRESSING: &str = "Progressing";
/// The condition that says whether the hosts are fit for it.
pub const PRECHECKED: &str = "Prechecked";
/// The condition that says which hosts were met for the first time.
pub const HOST_KEYS_PINNED: &str = "HostKeysPinned";
/// The condition that says which steps failed, a line for each.
pub const STEP_FAILED: &str = "StepFailed";

/// Findings in the status, and characters of each, at most.
const MOST_FINDINGS: usize = 256;
const MOST_WORDS: usize = 1024;
/// Failures kept: what a person reads, and the hosts of a precheck.
const FAILURES: usize = 200;
/// Bytes of a condition's message.
const MESSAGE: usize = 16 * 1024;
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

/// How something stands, since when and why: what a condition needs.
#[derive(Debug, Clone)]
struct Mark {
    status: &'static str,
    reason: &'static str,
    message: String,
    since: Timestamp,
}

impl Mark {
    fn set(mark: &mut Option<Self>, status: &'static str, reason: &'static str, message: &str) {
        let since =
            mark.as_ref().filter(|old| old.status == status).map_or_else(Timestamp::now, |old| old.since);
        *mark = Some(Self { status, reason, message: clip(message, MESSAGE).to_owned(), since });
    }

    fn condition(&self, kind: &str) -> Condition {
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            last_transition_time: Time(self.since),
            observed_generation: None,
        }
    }
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
    /// Whether a plan said how many there are.
    planned: bool,
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
        let (errors, warnings) = (findings(report, true), findings(report, false));
        let hosts = report.hosts.len();
        let count = format!("{hosts} hosts, {} errors, {} warnings", report.errors, report.warnings);
        let all = [&errors[..], &warnings[..]].concat();
        self.unfit = if report.ok { String::new() } else { errors.join("\n") };
        let message = if report.ok { all.join("\n") } else { self.unfit.clone() };
        let message = if message.is_empty() { "every host is fit".to_owned() } else { message };
        let (status, reason) = if report.ok { ("True", "Passed") } else { ("False", "Failed") };
        Mark::set(&mut self.prechecked, status, reason, &message);
        self.findings = of_machines(report);
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
        Mark::set(&mut self.progressing, "False", reason, message);
        self.running.clear();
        if reason == "Succeeded" {
            self.task = None;
            self.total = self.total.max(1);
            self.done = self.total;
        }
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
                self.planned = true;
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
        let counted = if self.planned { 0 } else { self.tasks };
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

/// Every check that failed, as it stands in the status: bounded, as that is.
fn of_machines(report: &PrecheckReport) -> Vec<Finding> {
    let finding = |(host, check): (HostAddress, &PrecheckResult)| Finding {
        host: host.to_string(),
        check: check.check.clone(),
        severity: match check.severity {
            PrecheckSeverity::Error => FindingSeverity::Error,
            PrecheckSeverity::Warning => FindingSeverity::Warning,
        },
        ignored: check.ignored,
        message: check.message.trim_end().chars().take(MOST_WORDS).collect(),
    };
    failed(report).take(MOST_FINDINGS).map(finding).collect()
}

/// Every check that does not hold, with its host.
fn failed(report: &PrecheckReport) -> impl Iterator<Item = (HostAddress, &PrecheckResult)> {
    let all = report.hosts.iter().flat_map(|host| host.checks.iter().map(move |check| (host.host, check)));
    all.filter(|(_, check)| !check.ok)
}

/// `10.0.0.2 : what is wrong`, for checks that stand in the way or for those that do not.
fn findings(report: &PrecheckReport, in_the_way: bool) -> Vec<String> {
    let wrong = failed(report).filter(|(_, check)| {
        let stands = check.severity == PrecheckSeverity::Error && !check.ignored;
        stands == in_the_way
    });
    wrong.map(|(host, check)| format!("{host} : {}", check.message.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> HostAddress {
        text.parse().unwrap()
    }

    fn started(address: &str, name: &str, stage: &str) -> Progress {
        let (step, why) = (format!("start {stage}"), "it is missing".to_owned());
        Progress::Started { host: host(address), name: name.to_owned(), stage: stage.to_owned(), step, why }
    }

    fn finished(address: &str, step: &str) -> Progress {
        Progress::Finished { host: host(address), step: step.to_owned(), changed: true, milliseconds: 12 }
    }

    #[test]
    fn counts_steps_and_names_the_one_it_is_at() {
        let mut board = Board::default();
        assert_eq!(
            board.take(&Progress::Plan { steps: 24, standing: 3 }),
            "plan: 24 steps to do, 3 stand already"
        );
        assert_eq!(board.take(&started("10.0.0.4", "h4", "etcd")), "[3/27] h4 · start etcd: it is missing");
        board.take(&started("10.0.0.5", "h5", "containerd"));
        assert_eq!(board.current().unwrap(), "containerd on h5");
        assert_eq!(
            board.take(&finished("10.0.0.5", "start containerd")),
            "[4/27] h5 · start containerd done (12 ms)"
        );
        let steps = board.steps();
        assert_eq!((steps.done, steps.total, &*steps.text), (4, 27, "4/27"));
        assert_eq!(steps.current.unwrap(), "etcd on h4");
    }

    #[test]
    fn remembers_what_failed_for_good_only() {
        let mut board = Board::default();
        board.take(&started("10.0.0.4", "h4", "etcd"));
        let failed = |again| Progress::Failed {
            host: host("10.0.0.4"),
            step: "etcd".to_owned(),
            cause: "port 2379 is taken".to_owned(),
            log: vec!["bind: address in use".to_owned()],
            again,
        };
        assert!(board.take(&failed(true)).contains("(it is tried again)\n    bind: address in use"));
        assert!(board.failures().is_empty());
        board.take(&failed(false));
        assert_eq!(board.failures()[0].name.as_deref(), Some("h4"));
        board.take(&failed(false));
        let conditions = board.status()["conditions"].clone();
        let told = conditions.as_array().unwrap().iter().find(|one| one["type"] == "StepFailed").unwrap();
        let line = "h4: etcd: port 2379 is taken";
        assert_eq!(
            told["message"],
            format!("{line}; it is tried again\n{line}"),
            "one line for each outcome"
        );
        assert_eq!(told["reason"], "Failed");
    }

    #[test]
    fn counts_the_tasks_of_a_script_of_which_nobody_knows_how_many_come() {
        let mut board = Board::default();
        board.stage("Running", "");
        assert_eq!(board.steps().text, "0/1");
        board.heading("TASK [ping]");
        board.heading("TASK [pong]");
        assert_eq!(board.steps().text, "1/…");
        assert_eq!(board.steps().current.unwrap(), "TASK [pong]");
        board.ended("Succeeded", "");
        assert_eq!(board.steps().text, "2/2");
    }

    fn report(ok: bool) -> Progress {
        let check = |name: &str, severity: &str, message: &str| json!({"check": name, "severity": severity, "ok": ok, "found": "3.9", "wanted": "3.10", "message": message});
        let checks = [
            check("kernel", "error", "kernel version is minor < 3.10"),
            check("swap", "warning", "swap is on"),
        ];
        let host = json!({"host": "10.0.0.2", "role": "worker", "ok": ok, "checks": checks});
        let report = json!({"cluster": "demo", "ok": ok, "errors": 1, "warnings": 1, "hosts": [host]});
        serde_json::from_value(json!({"event": "precheck", "report": report})).unwrap()
    }

    #[test]
    fn a_precheck_becomes_a_condition_and_lines_and_lets_the_next_stage_begin() {
        let mut board = Board::default();
        board.precheck(Some(("Creating", "makes the cluster")));
        assert_eq!(board.status()["conditions"][1]["status"], "Unknown");
        let told = board.take(&report(false));
        assert!(
            told.contains("1 hosts, 1 errors") && told.contains("warning 10.0.0.2 : swap is on"),
            "{told}"
        );
        assert_eq!(board.unfit(), Some("10.0.0.2 : kernel version is minor < 3.10"));
        let found = json!([
            {"host": "10.0.0.2", "check": "kernel", "severity": "error", "message": "kernel version is minor < 3.10"},
            {"host": "10.0.0.2", "check": "swap", "severity": "warning", "message": "swap is on"},
        ]);
        assert_eq!(board.status()["findings"], found);
        assert_eq!(board.status()["conditions"][0]["reason"], "Prechecking");
        assert_eq!(board.status()["conditions"][1]["message"], "10.0.0.2 : kernel version is minor < 3.10");
        board.take(&report(true));
        assert_eq!(board.unfit(), None);
        assert_eq!(board.status()["conditions"][0]["reason"], "Creating");
        assert_eq!(board.status()["conditions"][1]["status"], "True");
    }

    #[test]
    fn new_keys_are_counted_and_as_many_shown_as_an_event_takes() {
        let mut board = Board::default();
        board.host_keys_pinned(&[]);
        assert_eq!(board.status()["conditions"], json!([]));
        let keys: Vec<String> = (1..=100).map(|n| format!("10.0.0.{n} SHA256:{}", "x".repeat(43))).collect();
        board.host_keys_pinned(&keys[..2]);
        let condition = &board.status()["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("HostKeysPinned"), &json!("True")));
        assert_eq!(condition["message"], format!("2 new: {}, {}", keys[0], keys[1]));
        board.host_keys_pinned(&keys);
        let message = board.status()["conditions"][0]["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("100 new: ") && message.ends_with("x, …"), "{message}");
        assert!((900..=1024).contains(&message.len()), "{}", message.len());
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let mut board = Board::default();
        board.stage("Prechecking", "checks");
        let first = board.progressing.clone().unwrap().since;
        board.stage("Creating", "makes");
        assert_eq!(board.progressing.clone().unwrap().since, first);
        board.ended("Failed", "why");
        let condition = &board.status()["conditions"][0];
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["reason"], "Failed");
        assert_eq!(condition["type"], PROGRESSING);
    }
}
