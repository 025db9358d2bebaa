//! One writer at a time, never an older one, never one of another cluster.
//!
//! ```text
//!   Open(fence) ──► flock /var/lib/kubeon/lock ──► compare with claim.json ──► write claim.json
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, Claim, Fence, StepFailure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::durable::{make_folders, read_text, write_file};
use crate::failure::{Doing, failed, of};
use crate::paths;
use crate::root::Root;

/// How long a writer whose connection broke may take to let go before the next one is refused.
const PATIENCE: Duration = Duration::from_secs(2);

/// The right to write, until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Who holds the lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    generation: u64,
}

impl Lock {
    /// Takes the lock; waits up to two seconds for a writer that is about to end.
    ///
    /// # Errors
    /// [`Category::Fenced`] names the process and the generation that hold it.
    pub fn take(root: &Root, generation: u64) -> Result<Self, StepFailure> {
        let place = root.at(paths::LOCK);
        make_folders(&root.at(paths::STATE))?;
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut open = OpenOptions::new();
            let mut file = open
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&place)
                .doing("open", &place)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_in_place(&file, &place) => {
                    sign(&mut file, generation).doing("write", &place)?;
                    return Ok(Self { _file: file });
                }
                // A reset took the file away in between: the lock is on nothing.
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < patience => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(held_by(&mut file)),
                Err(error) => return Err(error).doing("lock", &place),
            }
        }
    }
}

fn is_in_place(file: &File, place: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(place)) {
        (Ok(mine), Ok(there)) => (mine.dev(), mine.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn sign(file: &mut File, generation: u64) -> std::io::Result<()> {
    let holder = serde_json::to_vec(&Holder { pid: std::process::id(), generation })?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&holder)
}

fn held_by(file: &mut File) -> StepFailure {
    let mut text = String::new();
    let holder = file
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| serde_json::from_str::<Holder>(&text).ok())
        .map_or_else(
            || "another writer".to_owned(),
            |h| format!("pid {} (generation {})", h.pid, h.generation),
        );
    of(Category::Fenced, format!("the host is being changed by {holder}; wait until it ends"))
}

/// Who holds the host; `None` for a free one.
///
/// # Errors
/// When the claim is there and cannot be read.
pub fn claim(root: &Root) -> Result<Option<Claim>, StepFailure> {
    let place = root.at(paths::CLAIM);
    let Some(text) = read_text(&place)? else { return Ok(None) };
    let claim = serde_json::from_str(&text);
    claim.map(Some).map_err(|error| failed(format!("{} is not a claim: {error}", place.display())))
}

/// Takes the lock and the claim for the fence's cluster and generation.
///
/// # Errors
/// [`Category::Fenced`] when another cluster holds the host, a newer generation was seen, or another
/// writer is at work.
pub fn open(root: &Root, fence: &Fence) -> Result<Lock, StepFailure> {
    let lock = Lock::take(root, fence.generation)?;
    let seen = claim(root)?;
    if let Some(seen) = &seen {
        admit(seen, fence)?;
    }
    let wanted = Claim {
        cluster: fence.cluster.clone(),
        uid: fence.uid.clone(),
        generation: fence.generation,
        version: fence.version,
        role: fence.role.clone(),
    };
    if seen.as_ref() != Some(&wanted) {
        let text = serde_json::to_vec_pretty(&wanted).map_err(|error| failed(error.to_string()))?;
        write_file(&root.at(paths::CLAIM), &text, 0o644)?;
    }
    Ok(lock)
}

fn admit(seen: &Claim, fence: &Fence) -> Result<(), StepFailure> {
    let refuse = |cause| Err(of(Category::Fenced, cause));
    if seen.cluster != fence.cluster {
        return refuse(format!("the host belongs to cluster {}, not to {}", seen.cluster, fence.cluster));
    }
    if seen.uid != fence.uid {
        return refuse(format!(
            "the host belongs to another cluster of the name {} (uid {}, not {})",
            seen.cluster, seen.uid, fence.uid
        ));
    }
    if fence.generation < seen.generation {
        return refuse(format!(
            "generation {} is older than {}, which the host has seen",
            fence.generation, seen.generation
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(cluster: &str, uid: &str, generation: u64) -> Fence {
        Fence {
            cluster: cluster.parse().unwrap(),
            uid: uid.into(),
            generation,
            version: "v1.36.3".parse().unwrap(),
            role: "master".into(),
        }
    }

    #[test]
    fn claims_a_free_host_and_refuses_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(claim(&root).unwrap(), None);
        drop(open(&root, &fence("demo", "u1", 5)).unwrap());
        for (stranger, word) in [
            (fence("other", "u1", 9), "cluster demo, not to other"),
            (fence("demo", "u2", 9), "uid u1, not u2"),
            (fence("demo", "u1", 4), "generation 4 is older than 5"),
        ] {
            let refused = open(&root, &stranger).unwrap_err();
            assert_eq!(refused.category, Category::Fenced);
            assert!(refused.cause.contains(word), "{refused}");
            assert_eq!(claim(&root).unwrap().unwrap().generation, 5, "a refused writer leaves the claim");
        }
        drop(open(&root, &fence("demo", "u1", 5)).unwrap());
        drop(open(&root, &fence("demo", "u1", 6)).unwrap());
        assert_eq!(claim(&root).unwrap().unwrap().generation, 6);
    }

    #[test]
    fn names_the_writer_that_is_at_work() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let held = open(&root, &fence("demo", "u1", 5)).unwrap();
        let refused = open(&root, &fence("demo", "u1", 6)).unwrap_err();
        assert_eq!(refused.category, Category::Fenced);
        let who = format!("pid {} (generation 5)", std::process::id());
        assert!(refused.cause.contains(&who), "{refused}");
        drop(held);
        assert!(open(&root, &fence("demo", "u1", 6)).is_ok());
    }

    #[test]
    fn does_not_take_a_broken_claim_for_a_free_host() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        write_file(&root.at(paths::CLAIM), b"{", 0o644).unwrap();
        assert!(open(&root, &fence("demo", "u1", 5)).is_err());
    }
}
