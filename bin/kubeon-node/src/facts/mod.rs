//! `kubeon-node facts`: the facts of this host that only this program can read. It changes nothing. It takes
//! less than a second on a usual host, and at most 45 s. A check that does not finish in time is reported in
//! `unchecked`.

pub(crate) mod certificates;
pub(crate) mod cluster;
mod etcd_health;
mod external_etcd;
mod listed_node;
pub(crate) mod node_certificates;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Facts, JournalEntry, ResultState, StepFailure};

use crate::drift::DriftCheck;
use crate::host::HostSystem;
use crate::journal::{self, Entry};
use crate::{fence, parts};

/// The time limit for checking the results of all steps.
const BOUND: Duration = Duration::from_secs(30);

/// Reads the facts.
///
/// # Errors
/// If the claim, the journal, the parts or the certificates cannot be read.
pub fn collect(host: &Arc<HostSystem>) -> Result<Facts, StepFailure> {
    collect_within(host, BOUND)
}

/// The same with another limit for checking the results of all steps.
fn collect_within(host: &Arc<HostSystem>, bound: Duration) -> Result<Facts, StepFailure> {
    let begun = Instant::now();
    let entries = journal::all(&host.root)?;
    let cluster = start(host, cluster::read);
    let journal = {
        let entries = entries.clone();
        start(host, move |host| check_journal(host, entries))
    };
    let (claim, parts) = (fence::claim(&host.root)?, parts::whole(&host.root)?);
    let certificates = certificates::all(&host.root)?;
    let checked = before(begun + bound, &journal).unwrap_or_else(|| assume_up_to_date(&entries, bound));
    let cluster = before(begun + cluster::BOUND, &cluster);
    let mut unchecked = checked.unchecked;
    if cluster.is_none() {
        unchecked
            .push(format!("got no status of etcd and the API server within {} s", cluster::BOUND.as_secs()));
    }
    let cluster = cluster.flatten();
    unchecked.extend(cluster.iter().flat_map(|report| report.unchecked.clone()));
    let (cluster, cluster_steps) = cluster.map_or((None, None), |report| (Some(report.facts), report.steps));
    Ok(Facts {
        claim,
        parts,
        certificates,
        kubelet: certificates::kubelet(&host.root),
        journal: checked.journal,
        cluster,
        cluster_steps,
        unchecked,
        ..Facts::default()
    })
}

/// The journal, and the checks that did not finish in time.
struct CheckedJournal {
    journal: Vec<JournalEntry>,
    unchecked: Vec<String>,
}

fn start<T: Send + 'static>(
    host: &Arc<HostSystem>,
    read: impl FnOnce(&HostSystem) -> T + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    let host = Arc::clone(host);
    // The send fails if the receiver has reached its deadline.
    thread::spawn(move || drop(sender.send(read(&host))));
    receiver
}

fn before<T>(end: Instant, answer: &Receiver<T>) -> Option<T> {
    answer.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}

fn check_journal(host: &HostSystem, entries: Vec<Result<Entry, String>>) -> CheckedJournal {
    let readable: Vec<&Entry> = entries.iter().flatten().collect();
    let drift = DriftCheck::read(host, &readable);
    let checked = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, drift.state_of(entry)),
        Err(id) => broken(id),
    };
    CheckedJournal { journal: entries.iter().map(checked).collect(), unchecked: drift.unchecked() }
}

/// The journal when the check did not finish in time: every readable entry is assumed to be up to date, and the
/// assumption is reported.
fn assume_up_to_date(entries: &[Result<Entry, String>], bound: Duration) -> CheckedJournal {
    let assumed = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, ResultState::UpToDate),
        Err(id) => broken(id),
    };
    let text = format!(
        "could not check its {1} steps within {0:.1} s (is systemd or a disk hanging?); assumed up to date",
        bound.as_secs_f64(),
        entries.len()
    );
    CheckedJournal { journal: entries.iter().map(assumed).collect(), unchecked: vec![text] }
}

fn row(id: &str, digest: &str, state: ResultState) -> JournalEntry {
    JournalEntry { id: id.to_owned(), digest: digest.to_owned(), state }
}

fn broken(id: &str) -> JournalEntry {
    row(id, "", ResultState::Drifted("its journal entry cannot be read".to_owned()))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
