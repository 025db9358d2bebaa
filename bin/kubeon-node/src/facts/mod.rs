//! `kubeon-node facts`: what stands on this host, as far as only this program can tell. Changes nothing,
//! and takes no longer than three seconds whatever hangs.

mod certificates;
mod cluster;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Facts, JournalEntry, Standing, StepFailure};

use crate::host::Host;
use crate::journal::{self, Entry};
use crate::standing::Look;
use crate::{fence, parts};

/// How long the look may take in all.
const BOUND: Duration = Duration::from_millis(2900);

/// What stands on the host.
///
/// # Errors
/// When the claim or the journal cannot be read.
pub fn collect(host: &Arc<Host>) -> Result<Facts, StepFailure> {
    let end = Instant::now() + BOUND;
    let entries = journal::all(&host.root)?;
    let cluster = begin(host, cluster::look);
    let standing = {
        let entries = entries.clone();
        begin(host, move |host| stand(host, entries))
    };
    Ok(Facts {
        claim: fence::claim(&host.root)?,
        parts: parts::whole(&host.root)?,
        certificates: certificates::look(&host.root)?,
        journal: before(end, &standing).unwrap_or_else(|| untold(&entries)),
        cluster: before(end, &cluster).flatten(),
        ..Facts::default()
    })
}

fn begin<T: Send + 'static>(host: &Arc<Host>, look: impl FnOnce(&Host) -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    let host = Arc::clone(host);
    // Whoever waited may have given up.
    thread::spawn(move || drop(sender.send(look(&host))));
    receiver
}

fn before<T>(end: Instant, answer: &Receiver<T>) -> Option<T> {
    answer.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}

fn stand(host: &Host, entries: Vec<Result<Entry, String>>) -> Vec<JournalEntry> {
    let sound: Vec<&Entry> = entries.iter().flatten().collect();
    let look = Look::at(host, &sound);
    let told = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, look.standing(entry)),
        Err(id) => broken(id),
    };
    entries.iter().map(told).collect()
}

/// Where looking took too long: what cannot be told counts as standing.
fn untold(entries: &[Result<Entry, String>]) -> Vec<JournalEntry> {
    let told = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, Standing::Stands),
        Err(id) => broken(id),
    };
    entries.iter().map(told).collect()
}

fn row(id: &str, digest: &str, standing: Standing) -> JournalEntry {
    JournalEntry { id: id.to_owned(), digest: digest.to_owned(), standing }
}

fn broken(id: &str) -> JournalEntry {
    row(id, "", Standing::Drifted("its journal entry cannot be read".to_owned()))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
