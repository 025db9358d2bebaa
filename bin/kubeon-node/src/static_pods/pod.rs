//! One static pod: its start, its end, its state and its log.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{MANIFESTS, StepFailure, program_of_unit};
use rustix::process::{Pid, Signal, kill_process};

use super::process::PodProcess;
use super::{manifest, process};
use crate::durable::{read_text, remove_file, write_file};
use crate::failure::failed;
use crate::paths;
use crate::root::Root;
use crate::systemd::{NotStarted, UnitState};

/// The interval between two looks at the processes of a pod.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a start waits for the first process. The step goes on waiting by itself.
const START_WAIT: Duration = Duration::from_secs(5);
/// How long the pod that another one replaces may take to end: longer than the 30 s that the kubelet gives it.
const REPLACE_WAIT: Duration = Duration::from_secs(45);
/// How long a killed process may exist.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// Lines of a log.
const LOG_LINES: usize = 20;
/// The folder of the logs of containers: one folder for each pod, `NAMESPACE_NAME_UID`.
const LOGS: &str = "/var/log/pods";
/// The namespace of the static pods.
const NAMESPACE: &str = "kube-system";

/// The file that the kubelet reads.
fn manifest_of(root: &Root, unit: &str) -> PathBuf {
    root.at(&format!("{MANIFESTS}/{}.yaml", program_of_unit(unit)))
}

/// What this program wrote into it.
fn written_of(root: &Root, unit: &str) -> PathBuf {
    root.at(&format!("{}/{}.yaml", paths::POD_UNITS, program_of_unit(unit)))
}

/// How often the program of the pod had been started when this program last started it.
fn starts_of(root: &Root, unit: &str) -> PathBuf {
    root.at(&format!("{}/{}.starts", paths::POD_UNITS, program_of_unit(unit)))
}

/// Starts the pod with its current text and files. `restart_kubelet` lets the kubelet forget what it waits for.
///
/// A pod with the same manifest keeps its identity, and only its program starts again. Otherwise the kubelet ends the pod that runs,
/// which it does not do before it has reached an API server since its own start: then the pod is ended here, and the kubelet
/// starts again. The pod that runs may be one of kubeadm.
pub(super) fn start(
    root: &Root,
    unit: &str,
    deadline: Instant,
    restart_kubelet: &dyn Fn() -> Result<(), NotStarted>,
) -> Result<(), NotStarted> {
    let text = manifest::make(root, unit, deadline).map_err(NotStarted::NoAnswer)?;
    let before = current(root, unit).map_err(NotStarted::NoAnswer)?;
    if let Some(uid) = before.uid_in_place().filter(|_| before.is_made_of(&text)) {
        return start_again(root, unit, uid, deadline, restart_kubelet);
    }
    let new = manifest::with_new_uid(&text).map_err(NotStarted::NoAnswer)?;
    let old = before.uid_that_runs(root, unit);
    replace(root, unit, &new).map_err(NotStarted::NoAnswer)?;
    let Some(uid) = manifest::uid(&new) else { return Err(NotStarted::Timeout) };
    let Some(old) = old else {
        return await_start(root, uid, None, deadline.min(Instant::now() + START_WAIT));
    };
    let replaced = await_start(root, uid, None, deadline.min(Instant::now() + REPLACE_WAIT));
    if replaced.is_ok() {
        return Ok(());
    }
    kill(root, &old);
    restart_kubelet()?;
    await_start(root, uid, None, deadline.min(Instant::now() + START_WAIT))
}

/// Starts the program of a pod again. The kubelet waits up to five minutes before it starts one that failed: after its own start it
/// does not.
fn start_again(
    root: &Root,
    unit: &str,
    uid: &str,
    deadline: Instant,
    restart_kubelet: &dyn Fn() -> Result<(), NotStarted>,
) -> Result<(), NotStarted> {
    let starts = logs(root, unit, uid).last().map_or(0, |(number, _)| *number).saturating_add(1);
    write_file(&starts_of(root, unit), starts.to_string().as_bytes(), 0o600).map_err(NotStarted::NoAnswer)?;
    let before = process::main_of(root, uid);
    match before.and_then(|process| Pid::from_raw(process.pid)).filter(|_| root.is_live()) {
        Some(pid) => {
            // The process may have ended; the kubelet starts another one in any case.
            let _ = kill_process(pid, Signal::TERM);
        }
        None => restart_kubelet()?,
    }
    await_start(root, uid, before, deadline.min(Instant::now() + REPLACE_WAIT))
}

/// What is known of the pod of a unit: the manifest that the kubelet reads, and the one that this program wrote.
struct CurrentPod {
    found: Option<String>,
    written: Option<String>,
}

impl CurrentPod {
    /// The identity of the pod, if the kubelet reads what this program wrote.
    fn uid_in_place(&self) -> Option<&str> {
        self.found.as_deref().filter(|_| self.found == self.written).and_then(manifest::uid)
    }

    /// The identity of the pod that a new one replaces.
    fn uid_that_runs(&self, root: &Root, unit: &str) -> Option<String> {
        match &self.written {
            Some(written) => manifest::uid(written).map(str::to_owned),
            None => self.found.as_ref().and_then(|_| uid_of_other(root, unit)),
        }
    }

    fn is_made_of(&self, manifest: &str) -> bool {
        let made = manifest::without_uid(manifest);
        self.written.as_deref().is_some_and(|written| manifest::without_uid(written) == made)
    }
}

/// The identity of the running pod of a unit whose manifest another program wrote. The kubelet made it out of hexadecimal digits; those
/// of pods that come from an API server have dashes.
fn uid_of_other(root: &Root, unit: &str) -> Option<String> {
    let begin = format!("{NAMESPACE}_{}-", program_of_unit(unit));
    let pods = fs::read_dir(root.at(LOGS)).ok()?;
    let mut uids = pods.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let (pod, uid) = name.to_str()?.rsplit_once('_')?;
        (pod.starts_with(&begin) && !uid.contains('-')).then(|| uid.to_owned())
    });
    uids.find(|uid| process::main_of(root, uid).is_some())
}

fn current(root: &Root, unit: &str) -> Result<CurrentPod, StepFailure> {
    let (found, written) = (read_text(&manifest_of(root, unit))?, read_text(&written_of(root, unit))?);
    Ok(CurrentPod { found, written })
}

/// Gives the kubelet another manifest.
fn replace(root: &Root, unit: &str, text: &str) -> Result<(), StepFailure> {
    remove_file(&starts_of(root, unit))?;
    for place in [written_of(root, unit), manifest_of(root, unit)] {
        write_file(&place, text.as_bytes(), 0o600)?;
    }
    Ok(())
}

/// Waits for a process of the pod other than the one that ran before.
fn await_start(root: &Root, uid: &str, before: Option<PodProcess>, end: Instant) -> Result<(), NotStarted> {
    while process::main_of(root, uid).filter(|process| Some(*process) != before).is_none() {
        if Instant::now() >= end {
            return Err(NotStarted::Timeout);
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Kills the processes of a pod.
fn kill(root: &Root, uid: &str) {
    let processes = process::of_pod(root, uid);
    for pid in processes.iter().filter_map(|process| Pid::from_raw(process.pid)).filter(|_| root.is_live()) {
        // The process may have ended; the next look tells.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Removes the manifest, so that the kubelet ends the pod. Returns the identity of the pod; `None` if it was never started.
pub(super) fn withdraw(root: &Root, unit: &str) -> Result<Option<String>, StepFailure> {
    let uid = current(root, unit)?.uid_that_runs(root, unit);
    remove_file(&manifest_of(root, unit))?;
    Ok(uid)
}

/// Waits until no process of a withdrawn pod is left, and kills those that are left at the deadline: no kubelet may run.
pub(super) fn await_end(root: &Root, uid: &str, deadline: Instant) -> Result<(), StepFailure> {
    let last = deadline.max(Instant::now()) + KILL_WAIT;
    loop {
        let left = process::of_pod(root, uid);
        let now = Instant::now();
        if left.is_empty() {
            return Ok(());
        }
        if now >= last {
            return Err(failed(format!("still running: {} processes of a static pod", left.len())));
        }
        if now >= deadline {
            kill(root, uid);
        }
        thread::sleep(INTERVAL);
    }
}

/// Lets the program of the pod read its files again.
pub(super) fn reload(root: &Root, unit: &str) -> Result<(), StepFailure> {
    let written = read_text(&written_of(root, unit))?;
    let process = written.as_deref().and_then(manifest::uid).and_then(|uid| process::main_of(root, uid));
    let pid = process.and_then(|process| Pid::from_raw(process.pid));
    let pid = pid.ok_or_else(|| failed(format!("{unit} does not run")))?;
    kill_process(pid, Signal::USR2).map_err(|error| failed(format!("{unit} was not reloaded: {error}")))
}

/// The state of the pod in the terms of systemd.
pub(super) fn state(root: &Root, unit: &str) -> Result<UnitState, StepFailure> {
    let pod = current(root, unit)?;
    let stopped = |sub: &str| UnitState {
        load: "loaded".to_owned(),
        active: "inactive".to_owned(),
        sub: sub.to_owned(),
        ..UnitState::default()
    };
    if pod.found.is_none() {
        return Ok(stopped("dead"));
    }
    if pod.written.is_none()
        && let Some(process) = uid_of_other(root, unit).and_then(|uid| process::main_of(root, &uid))
    {
        let (active, sub, started) = ("active".to_owned(), "running".to_owned(), process.started);
        return Ok(UnitState { active, sub, started, ..stopped("") });
    }
    let Some(uid) = pod.uid_in_place() else { return Ok(stopped("its manifest was changed")) };
    let expected = read_text(&starts_of(root, unit))?.and_then(|text| text.parse().ok()).unwrap_or(0);
    let restarts = logs(root, unit, uid).last().map_or(0, |(number, _)| number.saturating_sub(expected));
    let (active, sub, started) = match process::main_of(root, uid) {
        Some(process) => ("active", "running", process.started),
        None if restarts > 0 => ("activating", "auto-restart", 0),
        None => ("activating", "start", 0),
    };
    let (active, sub) = (active.to_owned(), sub.to_owned());
    Ok(UnitState { active, sub, started, restarts, ..stopped("") })
}

/// The last lines of the log of the pod.
pub(super) fn log(root: &Root, unit: &str) -> Vec<String> {
    let written = read_text(&written_of(root, unit)).unwrap_or_default().unwrap_or_default();
    let Some(uid) = manifest::uid(&written) else { return Vec::new() };
    let mut lines: Vec<String> = Vec::new();
    for (_, place) in logs(root, unit, uid).iter().rev().take(2).rev() {
        let text = fs::read(place).unwrap_or_default();
        lines.extend(String::from_utf8_lossy(&text).lines().map(message));
    }
    lines.split_off(lines.len().saturating_sub(LOG_LINES))
}

/// The text of a line of a log: `TIME STREAM TAG TEXT`.
fn message(line: &str) -> String {
    line.splitn(4, ' ').nth(3).unwrap_or(line).to_owned()
}

/// The logs of the program of the pod, one for each of its starts, in order.
fn logs(root: &Root, unit: &str, uid: &str) -> Vec<(u32, PathBuf)> {
    let of_pod = |name: &str| name.ends_with(&format!("_{uid}"));
    let Ok(pods) = fs::read_dir(root.at(LOGS)) else { return Vec::new() };
    let folder = pods.flatten().find(|entry| entry.file_name().to_str().is_some_and(of_pod));
    let Some(folder) = folder.map(|entry| entry.path().join(program_of_unit(unit))) else {
        return Vec::new();
    };
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<(u32, PathBuf)> = files
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kubeon_wire::StaticPod;

    use super::*;
    use crate::testing::Bench;

    const UNIT: &str = "etcd.pod";
    const TEXT: &str = "metadata:\n  uid: \"abc123\"\n  name: etcd\n";

    /// A pod with this manifest, and one process.
    fn running(bench: &Bench) {
        for place in [format!("{}/etcd.yaml", paths::POD_UNITS), format!("{MANIFESTS}/etcd.yaml")] {
            bench.write(&place, TEXT);
        }
        bench.write("/proc/7/cgroup", "0::/kubepods/burstable/podabc123/1\n");
        bench.write("/proc/7/cmdline", "/usr/local/bin/etcd\0");
        bench.write("/proc/7/stat", &format!("7 (etcd) S {}500 0\n", "0 ".repeat(18)));
    }

    fn word(bench: &Bench) -> String {
        let state = state(&bench.host.root, UNIT).unwrap();
        format!("{} {} {}", state.active, state.sub, state.restarts)
    }

    #[test]
    fn the_state_of_a_pod_is_that_of_its_process() {
        let bench = Bench::new();
        assert_eq!(word(&bench), "inactive dead 0");
        running(&bench);
        assert_eq!(word(&bench), "active running 0");
        assert_eq!(state(&bench.host.root, UNIT).unwrap().started, 5_000_000);
        fs::remove_dir_all(bench.host.root.at("/proc/7")).unwrap();
        assert_eq!(word(&bench), "activating start 0");
        bench.write("/var/log/pods/kube-system_etcd-h1_abc123/etcd/0.log", "T stderr F first\n");
        bench.write("/var/log/pods/kube-system_etcd-h1_abc123/etcd/1.log", "T stderr F second\n");
        assert_eq!(word(&bench), "activating auto-restart 1");
        assert_eq!(log(&bench.host.root, UNIT), ["first", "second"]);
    }

    /// A unit whose manifest is this text.
    fn unit(bench: &Bench, text: &str) {
        let pod = StaticPod::Text { text: text.to_owned(), environment_file: None };
        bench.write(&format!("{}/{UNIT}", paths::POD_UNITS), &serde_json::to_string(&pod).unwrap());
    }

    #[test]
    fn a_pod_keeps_its_identity_while_its_manifest_stays() {
        let bench = Bench::new();
        let root = &bench.host.root;
        running(&bench);
        fs::remove_dir_all(root.at("/proc/7")).unwrap();
        unit(&bench, &manifest::without_uid(TEXT));
        let restarts = Cell::new(0);
        let restart_kubelet = || -> Result<(), NotStarted> {
            restarts.set(restarts.get() + 1);
            running(&bench);
            Ok(())
        };
        let soon = || Instant::now() + Duration::from_millis(300);
        start(root, UNIT, soon(), &restart_kubelet).unwrap();
        assert_eq!((restarts.get(), bench.read(&format!("{MANIFESTS}/etcd.yaml")).as_str()), (1, TEXT));
        bench.write("/var/log/pods/kube-system_etcd-h1_abc123/etcd/1.log", "");
        assert_eq!(word(&bench), "active running 0", "the start that was asked for is no restart");

        unit(&bench, "metadata:\n  name: other\n");
        let nothing = || -> Result<(), NotStarted> { Ok(()) };
        assert!(matches!(start(root, UNIT, soon(), &nothing), Err(NotStarted::Timeout)));
        let new = bench.read(&format!("{MANIFESTS}/etcd.yaml"));
        assert!(new.contains("name: other") && manifest::uid(&new) != Some("abc123"), "{new}");
        assert_eq!(word(&bench), "activating start 0", "the process is of the pod before");
    }

    #[test]
    fn a_manifest_that_another_program_wrote_is_no_running_pod() {
        let bench = Bench::new();
        running(&bench);
        bench.write(&format!("{MANIFESTS}/etcd.yaml"), &TEXT.replace("name: etcd", "name: other"));
        assert_eq!(word(&bench), "inactive its manifest was changed 0");
    }

    /// A pod that another program made, and its process.
    fn made_by_kubeadm(bench: &Bench) {
        running(bench);
        fs::remove_file(bench.host.root.at(&format!("{}/etcd.yaml", paths::POD_UNITS))).unwrap();
        bench.write(&format!("{MANIFESTS}/etcd.yaml"), "metadata:\n  name: etcd\nspec: {}\n");
        bench.write("/var/log/pods/kube-system_etcd-h1_abc123/etcd/0.log", "");
        bench.write("/var/log/pods/kube-system_etcd-backup_a-b/etcd/0.log", "");
    }

    #[test]
    fn a_pod_of_kubeadm_runs_until_another_one_replaces_it() {
        let bench = Bench::new();
        let root = &bench.host.root;
        made_by_kubeadm(&bench);
        assert_eq!(word(&bench), "active running 0");
        unit(&bench, "metadata:\n  name: etcd\n");
        let restarts = Cell::new(0);
        let restart_kubelet = || -> Result<(), NotStarted> {
            restarts.set(restarts.get() + 1);
            Ok(())
        };
        let end = Instant::now() + Duration::from_millis(300);
        assert!(matches!(start(root, UNIT, end, &restart_kubelet), Err(NotStarted::Timeout)));
        assert_eq!(restarts.get(), 1, "the kubelet forgets the pod that it did not replace");
        assert_eq!(word(&bench), "activating start 0", "the process is of the pod of kubeadm");
    }

    #[test]
    fn a_withdrawn_pod_of_kubeadm_is_waited_for() {
        let bench = Bench::new();
        made_by_kubeadm(&bench);
        assert_eq!(withdraw(&bench.host.root, UNIT).unwrap().as_deref(), Some("abc123"));
        assert!(!manifest_of(&bench.host.root, UNIT).exists());
    }

    #[test]
    fn a_withdrawn_pod_ends_with_its_last_process() {
        let bench = Bench::new();
        running(&bench);
        let root = &bench.host.root;
        assert_eq!(withdraw(root, UNIT).unwrap().as_deref(), Some("abc123"));
        assert!(!manifest_of(root, UNIT).exists());
        fs::remove_dir_all(root.at("/proc/7")).unwrap();
        await_end(root, "abc123", Instant::now() + Duration::from_secs(1)).unwrap();
        assert_eq!(withdraw(root, "other.pod").unwrap(), None);
        assert!(reload(root, UNIT).unwrap_err().cause.contains("does not run"));
    }
}
