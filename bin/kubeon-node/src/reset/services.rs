//! Stops and removes the units that kubeon wrote.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::failures::ResetFailures;
use crate::job::Job;
use crate::journal::{self, Mark};
use crate::root::Root;
use crate::{paths, units};

/// The time for units to stop before they are killed. It is short because their data is deleted anyway, and
/// an API server whose etcd stops at the same time would wait for a minute.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The time for the slices of pods, which are empty, to end.
const SLICES_TIMEOUT: Duration = Duration::from_secs(10);

/// Stops the units, and kills those that do not stop in time.
pub(super) fn stop(job: &Job<'_>, failures: &mut ResetFailures) {
    let Some(names) = failures.record(names(&job.host.root)) else { return };
    let own = own_cgroup();
    let names: Vec<_> = names.into_iter().filter(|name| !own.contains(&format!("/{name}"))).collect();
    let deadline = job.deadline.min(Instant::now() + STOP_TIMEOUT);
    failures.record(job.host.services.stop(&names, deadline));
}

/// Ends the slices of pods, which systemd keeps after their last process where it manages the control groups.
pub(super) fn end_pod_slices(job: &Job<'_>, failures: &mut ResetFailures) {
    let deadline = job.deadline.min(Instant::now() + SLICES_TIMEOUT);
    failures.record(job.host.services.stop(&["kubepods.slice".to_owned()], deadline));
}

/// Removes the unit files and the links that enable them.
pub(super) fn remove(job: &Job<'_>, failures: &mut ResetFailures) {
    let root = &job.host.root;
    let Some(names) = failures.record(names(root)) else { return };
    let mut changed = false;
    for name in &names {
        changed |= failures.record(units::remove(root, name)).unwrap_or(false);
    }
    if changed {
        failures.record(job.host.services.reload());
    }
}

/// The names of kubeon's units: from the records, from the journal, and every unit file named `kubeon*`.
fn names(root: &Root) -> Result<BTreeSet<String>, kubeon_wire::StepFailure> {
    let mut names: BTreeSet<String> = units::remembered(root)?.into_iter().collect();
    for entry in journal::all(root)?.into_iter().flatten() {
        names.extend(entry.marks.into_iter().filter_map(|mark| match mark {
            Mark::Unit { name, .. } => Some(name),
            _ => None,
        }));
    }
    if let Ok(files) = fs::read_dir(root.at(paths::UNIT_FILES)) {
        let files = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
        names.extend(files.filter(|name| name.starts_with("kubeon")));
    }
    names.retain(|name| units::check_name(name).is_ok());
    Ok(names)
}

/// The control groups of this program, because it must not stop the unit that it runs in.
fn own_cgroup() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}
