//! Writes a systemd unit, starts it, and waits until it is ready.
//!
//! ```text
//!   record ─► unit file ─► enable ─► reload if needed ─► (re)start if content differs ─► record ─► ready
//! ```
//!
//! A member of etcd restarts only while the other members are a quorum without it.

use std::cell::Cell;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Check, StepFailure};

use super::member_clients::MemberClients;
use super::{etcd, member_restart, member_start};
use crate::durable::{read_text, sha256, write_if_different};
use crate::failure::{failed, of};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::root::Root;
use crate::systemd::{NotStarted, UnitState};
use crate::{checks, units};

/// The number of automatic restarts after which a unit counts as failed.
const RESTART_LIMIT: u32 = 3;
/// The interval at which the state of a unit is read while the step waits for its checks.
const HEALTH_INTERVAL: Duration = Duration::from_millis(700);
/// The folders of the units of packages.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];
/// How long a unit that does not report readiness must stay up.
const SETTLE: Duration = Duration::from_millis(200);

/// A unit to run.
pub struct Service<'a> {
    /// Its name with suffix.
    pub name: &'a str,
    /// The text of its unit file.
    pub unit: &'a str,
    /// Paths whose change needs a restart.
    pub watches: &'a [String],
    /// The checks that must pass before the step is complete.
    pub ready: &'a [Check],
}

/// Starts the unit with its current content, or restarts it if the content changed.
///
/// # Errors
/// If the unit does not start. The failure contains the unit, its result, and the last lines of its log. A member of etcd whose
/// restart would cost the quorum is not restarted.
pub fn run(job: &Job<'_>, service: &Service<'_>) -> Result<StepEffect, StepFailure> {
    let (root, services) = (&job.host.root, &job.host.services);
    units::check_name(service.name)?;
    let started = units::started(root, service.name)?;
    units::remember(root, service.name, started.as_deref())?;
    let place = units::file(root, service.name);
    let known = read_text(&place)?.is_some();
    let written = write_if_different(&place, service.unit.as_bytes(), 0o644)?;
    let enabled = units::enable(root, service.name, service.unit)?;
    let mut state = state(job, service)?;
    let replaces = known || is_packaged(root, service.name);
    if (written && replaces) || state.needs_reload || state.load == "not-found" {
        services.reload()?;
        state = self::state(job, service)?;
    }
    if !matches!(state.load.as_str(), "loaded" | "") {
        return Err(failed(format!(
            "systemd cannot load {}: its load state is {}",
            service.name, state.load
        )));
    }
    let content = units::content(root, service.unit, service.watches)?;
    let current = units::is_current(root, service.name, service.unit, service.watches)?;
    // An earlier attempt may have started it: another start would interrupt a slow one.
    let starting = current && is_starting(&state);
    let up_to_date = current && is_up(service.unit, &state);
    let stale = !(starting || up_to_date);
    let (mut up, mut clients) = (!starting, None);
    if stale {
        if etcd::UNITS.contains(&service.name) {
            member_restart::wait_until_harmless(job)?;
            clients = Some(MemberClients::of(job));
        }
        // Until the start is recorded, the unit may run with its content of before or with this one.
        units::remember(root, service.name, None)?;
        up = if member_start::joins(root, service.name) {
            member_start::with_record(job, || start(job, service))?
        } else {
            start(job, service)?
        };
    }
    units::remember(root, service.name, Some(&content))?;
    if !up {
        wait_until_up(job, service)?;
    }
    let last_check = Cell::new(Instant::now());
    checks::wait_for(job, service.ready, &|| {
        if last_check.get().elapsed() < HEALTH_INTERVAL {
            return Ok(());
        }
        last_check.set(Instant::now());
        check_alive(job, service)
    })
    .map_err(|failure| with_log(job, service, failure))?;
    if stale && service.ready.is_empty() && !reports_ready(service.unit) {
        job.pause(SETTLE, || format!("{} was just started", service.name))?;
        check_alive(job, service)?;
    }
    if let Some(clients) = clients {
        clients.wait_until_back(job);
    }
    let mark = Mark::Unit {
        name: service.name.to_owned(),
        sha256: sha256(service.unit.as_bytes()),
        watches: service.watches.to_vec(),
    };
    Ok(StepEffect { changed: written || enabled || stale, marks: vec![mark] })
}

/// Stops the units in order. A unit that does not exist or does not run is not an error.
///
/// # Errors
/// If a unit does not stop in time.
pub fn stop(job: &Job<'_>, names: &[String]) -> Result<StepEffect, StepFailure> {
    let services = &job.host.services;
    let states = services.states(names)?;
    let runs = |name: &&String| {
        states.get(*name).is_some_and(|state| !matches!(state.active.as_str(), "inactive" | "failed" | ""))
    };
    let running: Vec<&String> = names.iter().filter(runs).collect();
    for name in &running {
        units::check_name(name)?;
        services.stop(std::slice::from_ref(*name), job.deadline)?;
    }
    Ok(StepEffect { changed: !running.is_empty(), ..StepEffect::default() })
}

/// Whether a package of the host has a unit of this name: systemd knows that one and not the file that comes before it now.
fn is_packaged(root: &Root, name: &str) -> bool {
    PACKAGED.iter().any(|folder| root.at(&format!("{folder}/{name}")).exists())
}

fn state(job: &Job<'_>, service: &Service<'_>) -> Result<UnitState, StepFailure> {
    let mut states = job.host.services.states(&[service.name.to_owned()])?;
    Ok(states.remove(service.name).unwrap_or_default())
}

/// Starts the unit and returns whether it is up. If not, it is still starting: a first failure is ignored if
/// systemd restarts the unit, and a slow start continues after the time limit of `systemctl`.
fn start(job: &Job<'_>, service: &Service<'_>) -> Result<bool, StepFailure> {
    match job.host.services.restart(service.name, job.deadline) {
        Ok(()) => Ok(true),
        Err(NotStarted::NoAnswer(failure)) => Err(failure),
        Err(NotStarted::Timeout) => {
            let seen = state(job, service)?;
            if is_starting(&seen) || is_up(service.unit, &seen) {
                return Ok(false);
            }
            let cause = format!("{} was not ready in time: {} ({})", service.name, seen.active, seen.sub);
            Err(with_log(job, service, of(Category::Timeout, cause)))
        }
        Err(NotStarted::Failed(message)) => {
            let seen = state(job, service)?;
            if matches!(seen.active.as_str(), "activating" | "active") {
                return Ok(false);
            }
            let why = if seen.active.is_empty() { message } else { seen.verdict() };
            Err(with_log(job, service, failed(format!("{} failed: {why}", service.name))))
        }
    }
}

/// Waits until the unit is up. A unit that is still starting at the time limit keeps starting: the next
/// attempt waits for it.
fn wait_until_up(job: &Job<'_>, service: &Service<'_>) -> Result<(), StepFailure> {
    loop {
        let seen = state(job, service)?;
        if is_up(service.unit, &seen) {
            return Ok(());
        }
        check_alive(job, service)?;
        let describe = || {
            if is_starting(&seen) {
                format!("{} was not ready in time: {} ({})", service.name, seen.active, seen.sub)
            } else {
                format!("{} does not stay up: {}", service.name, seen.verdict())
            }
        };
        job.pause(Duration::from_millis(200), describe).map_err(|f| with_log(job, service, f))?;
    }
}

/// Whether the program of the unit runs and has not reported that it is ready.
fn is_starting(state: &UnitState) -> bool {
    state.active == "activating" && state.sub != "auto-restart"
}

/// Fails if the unit has ended or systemd restarted it too often.
fn check_alive(job: &Job<'_>, service: &Service<'_>) -> Result<(), StepFailure> {
    let seen = state(job, service)?;
    let ended = matches!(seen.active.as_str(), "failed" | "inactive") && !is_up(service.unit, &seen);
    if ended || seen.restarts >= RESTART_LIMIT {
        let cause = match seen.restarts {
            0 => format!("{} failed: {}", service.name, seen.verdict()),
            // Between two restarts the state may describe the next start, not the last failure.
            times => {
                let why = if seen.has_failed() { format!(": {}", seen.verdict()) } else { String::new() };
                format!("{} does not stay up: it was restarted {times} times{why}", service.name)
            }
        };
        return Err(with_log(job, service, failed(cause)));
    }
    Ok(())
}

/// Whether a unit with this text is running, or is a oneshot unit that succeeded or runs at the moment.
#[must_use]
pub fn is_up(unit: &str, state: &UnitState) -> bool {
    let succeeded = || state.active == "inactive" && state.result == "success";
    let done = || kind(unit) == Some("oneshot") && (succeeded() || state.active == "activating");
    matches!(state.active.as_str(), "active" | "reloading") || done()
}

/// Whether systemd itself waits until a unit with this text is ready.
fn reports_ready(unit: &str) -> bool {
    matches!(kind(unit), Some("notify" | "notify-reload" | "oneshot" | "forking" | "dbus"))
}

fn kind(unit: &str) -> Option<&str> {
    unit.lines().filter_map(|line| line.trim().strip_prefix("Type=")).next_back().map(str::trim)
}

fn with_log(job: &Job<'_>, service: &Service<'_>, failure: StepFailure) -> StepFailure {
    if failure.log.is_empty() {
        return StepFailure { log: job.host.services.log(service.name), ..failure };
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    const UNIT: &str = "[Service]\nType=notify\nExecStart=/x\n[Install]\nWantedBy=multi-user.target\n";

    fn etcd<'a>(unit: &'a str, watches: &'a [String]) -> Service<'a> {
        Service { name: "etcd.service", unit, watches, ready: &[] }
    }

    #[test]
    fn starts_once_and_restarts_only_on_change() {
        let bench = Bench::new();
        bench.write("/etc/etcd.yaml", "a");
        let watches = ["/etc/etcd.yaml".to_owned()];
        assert!(run(&bench.job(), &etcd(UNIT, &watches)).unwrap().changed);
        assert_eq!(bench.calls(), ["restart etcd.service"], "a new unit needs no reload");
        let link = bench.host.root.at("/etc/systemd/system/multi-user.target.wants/etcd.service");
        assert!(link.is_symlink());

        assert!(!run(&bench.job(), &etcd(UNIT, &watches)).unwrap().changed);
        assert_eq!(bench.calls(), Vec::<String>::new());

        bench.write("/etc/etcd.yaml", "b");
        assert!(run(&bench.job(), &etcd(UNIT, &watches)).unwrap().changed);
        assert_eq!(bench.calls(), ["restart etcd.service"], "a watched file changed");

        let other = UNIT.replace("/x", "/y");
        assert!(run(&bench.job(), &etcd(&other, &watches)).unwrap().changed);
        assert_eq!(bench.calls(), ["reload", "restart etcd.service"], "the unit changed");

        bench.services.running.lock().clear();
        assert!(run(&bench.job(), &etcd(&other, &watches)).unwrap().changed);
        assert_eq!(bench.calls(), ["restart etcd.service"], "another program stopped it");
    }

    #[test]
    fn a_start_without_an_end_is_taken_back_by_another_start() {
        let bench = Bench::new();
        let other = UNIT.replace("/x", "/y");
        run(&bench.job(), &etcd(UNIT, &[])).unwrap();
        bench.services.broken.lock().insert("etcd.service".into());
        run(&bench.job(), &etcd(&other, &[])).unwrap_err();
        bench.services.broken.lock().clear();
        bench.services.running.lock().insert("etcd.service".into());
        bench.calls();
        assert!(run(&bench.job(), &etcd(UNIT, &[])).unwrap().changed);
        assert!(bench.calls().contains(&"restart etcd.service".to_owned()), "it may run the other content");
    }

    #[test]
    fn the_failure_of_a_unit_contains_its_name_and_log() {
        let bench = Bench::new();
        bench.services.broken.lock().insert("etcd.service".into());
        let failure = run(&bench.job(), &etcd(UNIT, &[])).unwrap_err();
        assert_eq!(failure.cause, "etcd.service failed: exit-code");
        assert_eq!(failure.log, ["log of etcd.service"]);
        assert_eq!(units::started(&bench.host.root, "etcd.service").unwrap(), None);
        assert_eq!(units::remembered(&bench.host.root).unwrap(), ["etcd.service"], "a reset removes it");
    }

    #[test]
    fn does_not_wait_for_a_failed_unit() {
        let bench = Bench::new();
        let missing = Check::Path { path: "/run/never".into() };
        let service = Service { ready: &[missing], ..etcd(UNIT, &[]) };
        let breaker = std::sync::Arc::clone(&bench.services);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            breaker.broken.lock().insert("etcd.service".into());
        });
        let start = Instant::now();
        let failure = run(&bench.job(), &service).unwrap_err();
        assert!(failure.cause.starts_with("etcd.service failed"), "{failure}");
        assert!(start.elapsed() < Duration::from_secs(3), "the deadline is 5 s away");
    }

    #[test]
    fn a_slow_start_is_waited_for_and_not_started_again() {
        let bench = Bench::new();
        bench.services.starting.lock().insert("etcd.service".into());
        let soon = || Job { deadline: Instant::now() + Duration::from_millis(50), ..bench.job() };
        let failure = run(&soon(), &etcd(UNIT, &[])).unwrap_err();
        assert_eq!(failure.category, Category::Timeout);
        assert_eq!(failure.cause, "etcd.service was not ready in time: activating (start)");
        assert_eq!(bench.calls(), ["restart etcd.service"]);
        assert!(run(&soon(), &etcd(UNIT, &[])).is_err());
        assert_eq!(bench.calls(), Vec::<String>::new(), "the start is not interrupted");
        bench.services.starting.lock().clear();
        bench.services.running.lock().insert("etcd.service".into());
        run(&bench.job(), &etcd(UNIT, &[])).unwrap();
        assert_eq!(bench.calls(), Vec::<String>::new());
    }

    #[test]
    fn refuses_invalid_unit_names() {
        let bench = Bench::new();
        for name in ["../x.service", "x", "-H.service", "a b.service"] {
            let service = Service { name, ..etcd(UNIT, &[]) };
            assert!(run(&bench.job(), &service).is_err(), "{name}");
        }
    }
}
