//! Lets a running unit read its files again.

use kubeon_wire::{Check, StepFailure};

use crate::checks::{self, since_1970};
use crate::durable::lstat;
use crate::failure::failed;
use crate::job::{Job, StepEffect};
use crate::units;

/// Reloads the unit if one of its files changed after its start, then waits for the checks.
///
/// # Errors
/// If the unit does not run, or refuses its new files: the failure contains the last lines of its log.
pub fn run(job: &Job<'_>, name: &str, files: &[String], ready: &[Check]) -> Result<StepEffect, StepFailure> {
    let services = &job.host.services;
    units::check_name(name)?;
    let state = services.states(&[name.to_owned()])?.remove(name).unwrap_or_default();
    if state.active != "active" {
        return Err(failed(format!("{name} does not run: {}", state.verdict())));
    }
    let changed = last_change(job, files)? >= since_1970(state.started);
    if changed {
        services
            .reload_unit(name, job.deadline)
            .map_err(|failure| StepFailure { log: services.log(name), ..failure })?;
    }
    checks::wait_for(job, ready, &|| Ok(()))?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

/// When the newest of the files was changed, in microseconds since 1970. A link counts, not its target.
fn last_change(job: &Job<'_>, files: &[String]) -> Result<i64, StepFailure> {
    use std::os::unix::fs::MetadataExt as _;

    let mut newest = 0;
    for file in files {
        let found = lstat(&job.host.root.given(file)?)?;
        let time = found.map_or(0, |found| found.ctime() * 1_000_000 + found.ctime_nsec() / 1000);
        newest = newest.max(time);
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;

    fn now() -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap()
    }

    #[test]
    fn a_unit_reads_files_again_that_changed_after_its_start() {
        let bench = Bench::new();
        let files = ["/etc/haproxy.cfg".to_owned(), "/etc/absent".to_owned()];
        let reload = || run(&bench.job(), "haproxy.service", &files, &[]);
        bench.write("/etc/haproxy.cfg", "a");
        assert!(reload().unwrap_err().cause.starts_with("haproxy.service does not run"));

        bench.services.running.lock().insert("haproxy.service".into());
        *bench.services.started.lock() = now() + 10_000;
        assert!(!reload().unwrap().changed);
        assert_eq!(bench.calls(), Vec::<String>::new());

        *bench.services.started.lock() = now() - 1_000_000;
        bench.write("/etc/haproxy.cfg", "b");
        assert!(reload().unwrap().changed);
        assert_eq!(bench.calls(), ["reload haproxy.service"]);
    }

    #[test]
    fn a_refused_file_is_an_error_with_the_log() {
        let bench = Bench::new();
        bench.services.running.lock().insert("haproxy.service".into());
        bench.services.refusing.lock().insert("haproxy.service".into());
        bench.write("/etc/haproxy.cfg", "a");
        let failure =
            run(&bench.job(), "haproxy.service", &["/etc/haproxy.cfg".to_owned()], &[]).unwrap_err();
        assert_eq!(failure.log, ["log of haproxy.service"]);
    }
}
