//! `kubeon-node facts`: what stands on this host, as far as only this program can tell. Changes nothing,
//! and takes no longer than three seconds whatever hangs; ten where an API server answers, slowly. What is not told
//! in time is said to be untold.

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

/// How long the look at what stands may take in all.
const BOUND: Duration = Duration::from_millis(2900);

/// What stands on the host.
///
/// # Errors
/// When the claim or the journal cannot be read.
pub fn collect(host: &Arc<Host>) -> Result<Facts, StepFailure> {
    let begun = Instant::now();
    let entries = journal::all(&host.root)?;
    let cluster = begin(host, cluster::look);
    let standing = {
        let entries = entries.clone();
        begin(host, move |host| stand(host, entries))
    };
    let (claim, parts) = (fence::claim(&host.root)?, parts::whole(&host.root)?);
    let certificates = certificates::look(&host.root)?;
    let stood = before(begun + BOUND, &standing).unwrap_or_else(|| hung(&entries));
    let asked = before(begun + cluster::BOUND, &cluster);
    let mut untold = stood.untold;
    if asked.is_none() {
        untold.push(format!(
            "did not tell within {} s what etcd and the API server say",
            cluster::BOUND.as_secs()
        ));
    }
    Ok(Facts {
        claim,
        parts,
        certificates,
        kubelet: certificates::kubelet(&host.root),
        journal: stood.journal,
        cluster: asked.flatten(),
        untold,
        ..Facts::default()
    })
}

/// The journal, and in words what could not be looked at.
struct Stood {
    journal: Vec<JournalEntry>,
    untold: Vec<String>,
}

fn begin<T: Send + 'static>(host: &Arc<Host>, look: impl FnOnce(&Host) -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    let host = Arc::clone(host);
    // The receiver may have reached its deadline.
    thread::spawn(move || drop(sender.send(look(&host))));
    receiver
}

fn before<T>(end: Instant, answer: &Receiver<T>) -> Option<T> {
    answer.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
}

fn stand(host: &Host, entries: Vec<Result<Entry, String>>) -> Stood {
    let sound: Vec<&Entry> = entries.iter().flatten().collect();
    let look = Look::at(host, &sound);
    let told = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, look.standing(entry)),
        Err(id) => broken(id),
    };
    Stood { journal: entries.iter().map(told).collect(), untold: look.untold() }
}

/// Where looking took too long: what cannot be told counts as standing, and it is said that it was not told.
fn hung(entries: &[Result<Entry, String>]) -> Stood {
    let told = |entry: &Result<Entry, String>| match entry {
        Ok(entry) => row(&entry.id, &entry.digest, Standing::Stands),
        Err(id) => broken(id),
    };
    let said = format!(
        "did not tell within {:.1} s whether its {} steps still stand (does systemd or a disk hang?): they are taken \
         for standing",
        BOUND.as_secs_f64(),
        entries.len()
    );
    Stood { journal: entries.iter().map(told).collect(), untold: vec![said] }
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
