//! `kubeon-node facts`: the facts of this host that only this program can read. It changes nothing. It takes at most
//! three seconds, or ten where an API server answers slowly. A check that does not finish in time is reported in
//! `unchecked`.

mod certificates;
mod cluster;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Facts, JournalEntry, ResultState, StepFailure};

use crate::drift::Look;
use crate::host::HostSystem;
use crate::journal::{self, Entry};
use crate::{fence, parts};

/// The time limit for checking the results of all steps.
const BOUND: Duration = Duration::from_millis(2900);

/// Reads the facts.
///
/// # Errors
/// When the claim or the journal cannot be read.
pub fn collect(host: &Arc<HostSystem>) -> Result<Facts, StepFailure> {
    let begun = Instant::now();
    let entries = journal::all(&host.root)?;
    let cluster = begin(host, cluster::look);
    let journal = {
        let entries = entries.clone();
        begin(host, move |host| check_journal(host, entries))
    };
    let (claim, parts) = (fence::claim(&host.root)?, parts::whole(&host.root)?);
    let certificates = certificates::look(&host.root)?;
    let checked = before(begun + BOUND, &journal).unwrap_or_else(|| assume_up_to_date(&entries));
    let asked = before(begun + cluster::BOUND, &cluster);
    let mut unchecked = checked.unchecked;
    if asked.is_none() {
        unchecked
            .push(format!("got no status of etcd and the API server within {} s", cluster::BOUND.as_secs()));
    }
    Ok(Facts {
        claim,
        parts,
        certificates,
        kubelet: certificates::kubelet(&host.root),
        journal: checked.journal,
        cluster: asked.flatten(),
        unchecked,
        ..Facts::default()
    })
}

/// The journal, and the checks that did not finish in time.
struct CheckedJournal {
    journal: Vec<JournalEntry>,
    unchecked: Vec<String>,
}

fn begin<T: Send + 'static>(
    host: &Arc<HostSystem>,
    look: impl FnOnce(&HostSystem) -> T + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    let host = Arc::clone(host);
    // The receiver may have reached its deadline.
    thread::spawn(move || drop(sender.send(look(&host))));
    receiver
}

fn before<T>(end: Instant, answer: &Receiver<T>) -> Option<T> {
    answer.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}

fn check_journal(host: &HostSystem, entries: Vec<Result<Entry, String>>) -> CheckedJournal {
    let readable: Vec<&Entry> = entries.iter().flatten().collect();
    let look = Look::at(host, &readable);
    let checked = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, look.state_of(entry)),
        Err(id) => broken(id),
    };
    CheckedJournal { journal: entries.iter().map(checked).collect(), unchecked: look.unchecked() }
}

/// The journal when the check did not finish in time: every readable entry is assumed to be up to date, and the
/// assumption is reported.
fn assume_up_to_date(entries: &[Result<Entry, String>]) -> CheckedJournal {
    let assumed = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, ResultState::UpToDate),
        Err(id) => broken(id),
    };
    let text = format!(
        "could not check its {1} steps within {0:.1} s (is systemd or a disk hanging?); assumed up to date",
        BOUND.as_secs_f64(),
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
