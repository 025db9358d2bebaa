//! The host's service manager: a trait, and its implementation with `systemctl`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kubeon_process::{ProgramError, ProgramOutput};
use kubeon_wire::{Category, StepFailure};
use parking_lot::{Condvar, Mutex};

use crate::command::{run, step_failure};
use crate::failure::{failed, of};

/// The time limit of `systemctl` for commands that do not start a unit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// The operations of a service manager.
pub trait Services: Send + Sync {
    /// The state of each unit, by name.
    ///
    /// # Errors
    /// If the service manager does not answer.
    fn states(&self, units: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure>;

    /// Makes the service manager read its unit files again. Concurrent calls share one reload.
    ///
    /// # Errors
    /// If the reload fails.
    fn reload(&self) -> Result<(), StepFailure>;

    /// Starts or restarts a unit and waits until it is ready or has failed.
    ///
    /// # Errors
    /// [`NotStarted`].
    fn restart(&self, unit: &str, deadline: Instant) -> Result<(), NotStarted>;

    /// Lets a running unit read its files again.
    ///
    /// # Errors
    /// If the unit does not run, or its files have an error.
    fn reload_unit(&self, unit: &str, deadline: Instant) -> Result<(), StepFailure>;

    /// Stops units and kills those that do not stop in time. Missing units are ignored.
    ///
    /// # Errors
    /// If a unit is still running.
    fn stop(&self, units: &[String], deadline: Instant) -> Result<(), StepFailure>;

    /// The last lines of a unit's log, oldest first; empty if it has no log.
    fn log(&self, unit: &str) -> Vec<String>;
}

/// The reason why a unit did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// The unit failed; the value is the last line of the output of `systemctl`.
    Failed(String),
    /// The unit was not ready by the deadline.
    Timeout,
    /// The service manager did not answer.
    NoAnswer(StepFailure),
}

/// The state of a unit, in systemd's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `loaded`, `not-found`, `masked`, `bad-setting`, …
    pub load: String,
    /// `active`, `inactive`, `failed`, `activating`, …
    pub active: String,
    /// `running`, `auto-restart`, `dead`, …
    pub sub: String,
    /// `success`, `exit-code`, `timeout`, …
    pub result: String,
    /// Exit code of the main process.
    pub status: String,
    /// The number of automatic restarts since the last requested start.
    pub restarts: u32,
    /// When its main process was last started, in microseconds of the monotonic clock; 0 if it never was.
    pub started: u64,
    /// Whether the unit file has changed since systemd read it.
    pub needs_reload: bool,
}

impl UnitState {
    /// Whether the last completed run failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        !matches!(self.result.as_str(), "success" | "")
    }

    /// A short text about the state or failure: `exit-code (status 1)`.
    #[must_use]
    pub fn verdict(&self) -> String {
        match (self.result.as_str(), self.status.as_str()) {
            ("success" | "", _) => format!("{} ({})", self.active, self.sub),
            (result, "" | "0") => result.to_owned(),
            // Status codes of systemd itself for a program that it could not start.
            (_, "203") => "its program cannot be run (status 203)".to_owned(),
            (_, "200") => "its working directory does not exist (status 200)".to_owned(),
            (_, "209" | "214" | "217" | "226") => {
                format!("systemd cannot apply the settings of its unit (status {})", self.status)
            }
            (result, status) => format!("{result} (status {status})"),
        }
    }
}

/// systemd of this host.
#[derive(Debug, Default)]
pub struct Systemd {
    reload: Mutex<Reload>,
    reloaded: Condvar,
}

#[derive(Debug, Default)]
struct Reload {
    requested: u64,
    completed: u64,
    running: bool,
    failure: Option<StepFailure>,
}

impl Services for Systemd {
    fn states(&self, units: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure> {
        const FIELDS: &str = "--property=Id,Names,LoadState,ActiveState,SubState,Result,ExecMainStatus,\
                              NRestarts,NeedDaemonReload,ExecMainStartTimestampMonotonic";
        if units.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut arguments = vec!["show", FIELDS, "--"];
        arguments.extend(units.iter().map(String::as_str));
        let output = systemctl(&arguments)?;
        Ok(parse_states(&output))
    }

    fn reload(&self) -> Result<(), StepFailure> {
        let mut state = self.reload.lock();
        state.requested += 1;
        let request = state.requested;
        loop {
            if state.completed >= request {
                return state.failure.clone().map_or(Ok(()), Err);
            }
            if state.running {
                self.reloaded.wait(&mut state);
                continue;
            }
            state.running = true;
            let covered = state.requested;
            drop(state);
            let outcome = systemctl(&["daemon-reload"]);
            state = self.reload.lock();
            state.running = false;
            state.completed = covered;
            state.failure = outcome.err();
            self.reloaded.notify_all();
        }
    }

    fn restart(&self, unit: &str, deadline: Instant) -> Result<(), NotStarted> {
        match run("systemctl", &["restart", "--", unit], None, deadline) {
            Ok(done) if done.success() => Ok(()),
            Ok(done) => Err(NotStarted::Failed(done.last_line())),
            Err(ProgramError::Timeout { .. }) => Err(NotStarted::Timeout),
            Err(other) => Err(NotStarted::NoAnswer(step_failure(other))),
        }
    }

    fn reload_unit(&self, unit: &str, deadline: Instant) -> Result<(), StepFailure> {
        match run("systemctl", &["reload", "--", unit], None, deadline) {
            Ok(done) if done.success() => Ok(()),
            Ok(done) => Err(failed(format!("{unit} was not reloaded: {}", done.last_line()))),
            Err(other) => Err(step_failure(other)),
        }
    }

    fn stop(&self, units: &[String], deadline: Instant) -> Result<(), StepFailure> {
        if units.is_empty() {
            return Ok(());
        }
        let names = units.iter().map(String::as_str);
        let with = |words: &[&'static str]| words.iter().copied().chain(names.clone()).collect::<Vec<_>>();
        match run("systemctl", &with(&["stop", "--"]), None, deadline) {
            Ok(_) => {}
            Err(ProgramError::Timeout { .. }) => {
                systemctl_any(&with(&["kill", "--signal=KILL", "--"]))?;
                // Waits for the end of the killed processes.
                systemctl_any(&with(&["stop", "--"]))?;
            }
            Err(other) => return Err(step_failure(other)),
        }
        // Otherwise systemd would keep the failed units and their start limits.
        systemctl_any(&with(&["reset-failed", "--"]))?;
        let states = self.states(units)?;
        let running = |state: &UnitState| !matches!(state.active.as_str(), "inactive" | "failed" | "");
        let left: Vec<_> =
            states.iter().filter(|(_, state)| running(state)).map(|(name, _)| &**name).collect();
        if left.is_empty() { Ok(()) } else { Err(failed(format!("still running: {}", left.join(", ")))) }
    }

    fn log(&self, unit: &str) -> Vec<String> {
        let arguments = ["-u", unit, "-n", "20", "--no-pager", "-o", "cat"];
        let output = run("journalctl", &arguments, None, Instant::now() + Duration::from_secs(5));
        output.map(|done| done.stdout.lines().map(str::to_owned).collect()).unwrap_or_default()
    }
}

fn systemctl_any(arguments: &[&str]) -> Result<ProgramOutput, StepFailure> {
    run("systemctl", arguments, None, Instant::now() + ANSWER_TIMEOUT).map_err(step_failure)
}

fn systemctl(arguments: &[&str]) -> Result<String, StepFailure> {
    let done = systemctl_any(arguments)?;
    if done.success() {
        return Ok(done.stdout);
    }
    Err(failed(format!("systemctl {} failed: {}", arguments.first().unwrap_or(&""), done.last_line())))
}

fn parse_states(text: &str) -> BTreeMap<String, UnitState> {
    let mut states = BTreeMap::new();
    for block in text.split("\n\n") {
        let (mut names, mut state) = (Vec::new(), UnitState::default());
        for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
            let text = value.to_owned();
            match key {
                "Id" | "Names" => names.extend(value.split(' ').map(str::to_owned)),
                "LoadState" => state.load = text,
                "ActiveState" => state.active = text,
                "SubState" => state.sub = text,
                "Result" => state.result = text,
                "ExecMainStatus" => state.status = text,
                "NRestarts" => state.restarts = value.parse().unwrap_or(0),
                "ExecMainStartTimestampMonotonic" => state.started = value.parse().unwrap_or(0),
                "NeedDaemonReload" => state.needs_reload = value == "yes",
                _ => {}
            }
        }
        states.extend(names.into_iter().map(|name| (name, state.clone())));
    }
    states
}

/// A host without services, for a root other than `/`.
#[derive(Debug)]
pub struct NoServices;

impl Services for NoServices {
    fn states(&self, _: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure> {
        Ok(BTreeMap::new())
    }

    fn reload(&self) -> Result<(), StepFailure> {
        Ok(())
    }

    fn restart(&self, unit: &str, _: Instant) -> Result<(), NotStarted> {
        Err(NotStarted::NoAnswer(of(
            Category::Unsupported,
            format!("{unit}: this host has no service manager"),
        )))
    }

    fn reload_unit(&self, unit: &str, _: Instant) -> Result<(), StepFailure> {
        Err(of(Category::Unsupported, format!("{unit}: this host has no service manager")))
    }

    fn stop(&self, _: &[String], _: Instant) -> Result<(), StepFailure> {
        Ok(())
    }

    fn log(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_states_of_several_units() {
        let text = "Id=etcd.service\nNames=etcd.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n\
                    Result=exit-code\nExecMainStatus=1\nNRestarts=4\nNeedDaemonReload=yes\n\
                    ExecMainStartTimestampMonotonic=7200000\n\n\
                    Id=x.service\nNames=x.service y.service\nLoadState=not-found\nActiveState=inactive\n";
        let states = parse_states(text);
        let etcd = &states["etcd.service"];
        assert_eq!((etcd.restarts, etcd.needs_reload, etcd.started), (4, true, 7_200_000));
        assert_eq!(etcd.verdict(), "exit-code (status 1)");
        let missing = UnitState { status: "203".into(), ..etcd.clone() };
        assert_eq!(missing.verdict(), "its program cannot be run (status 203)");
        assert_eq!(states["y.service"].load, "not-found");
        assert_eq!(states["y.service"].verdict(), "inactive ()");
    }
}
