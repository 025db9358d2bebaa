//! The units that kubeon wrote.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use super::failures::ResetFailures;
use crate::durable::{read_text, remove_file};
use crate::job::Job;
use crate::journal::{self, Mark};
use crate::root::Root;
use crate::{paths, units};

/// How long units may take to stop before they are killed. Nothing of what they would save is kept, and an
/// API server whose etcd stops with it would wait for a minute.
const STOP: Duration = Duration::from_secs(1);

/// Stops the units; what does not stop is killed.
pub(super) fn stop(job: &Job<'_>, failures: &mut ResetFailures) {
    let Some(names) = failures.record(names(&job.host.root)) else { return };
    let own = own_cgroup();
    let names: Vec<_> = names.into_iter().filter(|name| !own.contains(&format!("/{name}"))).collect();
    let deadline = job.deadline.min(Instant::now() + STOP);
    failures.record(job.host.services.stop(&names, deadline));
}

/// Removes the units' files and what enables them.
pub(super) fn remove(job: &Job<'_>, failures: &mut ResetFailures) {
    let root = &job.host.root;
    let Some(names) = failures.record(names(root)) else { return };
    let mut changed = false;
    for name in &names {
        let file = units::file(root, name);
        let text = failures.record(read_text(&file)).flatten().unwrap_or_default();
        for link in units::wants(root, name, &text) {
            failures.record(remove_file(&link));
        }
        changed |= failures.record(remove_file(&file)).unwrap_or(false);
    }
    if changed {
        failures.record(job.host.services.reload());
    }
}

/// From the records, the journal, and by name.
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

/// The unit that this program runs in must not be stopped by it.
fn own_cgroup() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}
