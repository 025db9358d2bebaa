//! Resets a host: removes everything that kubeon put on it.
//!
//! ```text
//!   units ─► processes ─► mounts ─► network, parameters ─► folders, files, links ─► parts ─► journal ─► claim
//! ```
//!
//! Every part can be repeated, and a failure of one part does not stop the others. The journal and the claim
//! are removed only when nothing else is left, so that an interrupted reset can continue.

mod failures;
mod folders;
mod iptables;
mod mounts;
mod network;
mod processes;
mod programs;
mod services;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use kubeon_api::ClusterName;
use kubeon_wire::{Category, SESSION_GRACE, StepFailure};

use crate::events::Events;
use crate::failure::{failed, of};
use crate::fence::{self, Lock};
use crate::host::HostSystem;
use crate::job::{Job, StepEffect};
use crate::timeout_extension::TimeoutExtension;
use crate::{firewall, original, paths};
use failures::ResetFailures;

/// The time limit of a reset by hand.
const BY_HAND: Duration = Duration::from_secs(300);

/// How long a reset by hand waits for the lock: an interrupted session may still be ending.
const LOCK_TIMEOUT: Duration = SESSION_GRACE.saturating_add(Duration::from_secs(2));

/// Resets the host if it belongs to `cluster`.
///
/// # Errors
/// [`Category::Fenced`] if it belongs to another cluster. Otherwise one failure whose log holds every cause.
pub fn run(job: &Job<'_>, cluster: &ClusterName) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    match fence::claim(root)? {
        Some(claim) if claim.cluster != *cluster => {
            let cause = format!("the host belongs to cluster {}, not to {cluster}", claim.cluster);
            return Err(of(Category::Fenced, cause));
        }
        Some(_) => {}
        // The claim is removed last: without a claim, no other file of a cluster is on the host.
        None => {
            let changed = root.at(paths::STATE).join("parts").exists();
            folders::remove_state(root)?;
            return Ok(StepEffect { changed, marks: Vec::new() });
        }
    }
    let mut failures = ResetFailures::default();
    // A claimed host to which kubeon never wrote may have files of other programs in the same paths.
    if root.at(paths::TOUCHED).exists() {
        services::stop(job, &mut failures);
        processes::kill(job, &mut failures);
        services::remove(job, &mut failures);
        services::end_pod_slices(job, &mut failures);
        mounts::detach(job, &mut failures);
        network::clear(job, &mut failures);
        failures.record(firewall::close(root, Instant::now() + job.left()));
        failures.record(original::restore_parameters(job));
        folders::clear(job, &mut failures);
    }
    if failures.is_empty() {
        folders::forget(root, &mut failures);
    }
    if failures.is_empty() {
        return Ok(StepEffect { changed: true, marks: Vec::new() });
    }
    let causes = failures.into_causes();
    let cause = format!("the reset is not complete ({}): {}", count(causes.len()), causes[0]);
    Err(StepFailure { log: causes, ..failed(cause) })
}

/// Resets the host by hand: takes the lock and returns whether anything was removed.
///
/// # Errors
/// As for [`run`], and if another session holds the lock.
pub fn by_hand(host: &HostSystem, cluster: &ClusterName) -> Result<bool, StepFailure> {
    if !host.root.at(paths::STATE).exists() {
        return Ok(false);
    }
    let claim = fence::claim(&host.root)?;
    let (uid, generation) = claim.map(|claim| (claim.uid, claim.generation)).unwrap_or_default();
    let lock = Lock::take(&host.root, &uid, generation, LOCK_TIMEOUT)?;
    let (events, stop) = (Events::with_writer(Box::new(std::io::sink())), AtomicBool::new(false));
    let deadline = Instant::now() + BY_HAND;
    let extension = TimeoutExtension::none();
    let job = Job { host, id: "reset", deadline, extension, events: &events, stop: &stop };
    let effect = run(&job, cluster)?;
    drop(lock);
    Ok(effect.changed)
}

fn count(number: usize) -> String {
    if number == 1 { "1 failure".to_owned() } else { format!("{number} failures") }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
