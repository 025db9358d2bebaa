//! Admits one writer at a time, and refuses older writers and writers of other clusters.
//!
//! ```text
//!   Open(fence) ──► flock /var/lib/kubeon/lock ──► compare with claim.json ──► write claim.json
//! ```

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
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

/// How long a session waits for a writer that is about to end. A session of the same cluster whose engine is
/// gone takes longer; an engine that receives [`Category::Held`] retries.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The right to change the host. Dropping it releases the lock.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The process that holds the lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    uid: String,
    generation: u64,
}

impl Lock {
    /// Takes the lock for a generation of the cluster with identity `uid`. Waits up to `timeout` for a writer
    /// that is about to end.
    ///
    /// # Errors
    /// [`Category::Held`] if a writer of the same cluster holds the lock, [`Category::Fenced`] if one of
    /// another cluster does. The cause names the process and the generation.
    pub fn take(root: &Root, uid: &str, generation: u64, timeout: Duration) -> Result<Self, StepFailure> {
        let place = root.at(paths::LOCK);
        make_folders(&root.at(paths::STATE))?;
        let end = Instant::now() + timeout;
        loop {
            let mut file = match open_lock(&place) {
                // A reset removed the folder in between.
                Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < end => {
                    make_folders(&root.at(paths::STATE))?;
                    continue;
                }
                opened => opened.doing("open", &place)?,
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_in_place(&file, &place) => {
                    write_holder(&mut file, uid, generation).doing("write", &place)?;
                    return Ok(Self { _file: file });
                }
                // A reset removed the file in between: the lock is on a deleted file.
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(held(&mut file, uid)),
                Err(error) => return Err(error).doing("lock", &place),
            }
        }
    }
}

fn open_lock(place: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(place)
}

fn is_in_place(file: &File, place: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(place)) {
        (Ok(locked), Ok(current)) => (locked.dev(), locked.ino()) == (current.dev(), current.ino()),
        _ => false,
    }
}

fn write_holder(file: &mut File, uid: &str, generation: u64) -> std::io::Result<()> {
    let holder = Holder { pid: std::process::id(), uid: uid.to_owned(), generation };
    let holder = serde_json::to_vec(&holder)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&holder)
}

/// The failure of a writer of cluster `uid` that does not get the lock.
fn held(file: &mut File, uid: &str) -> StepFailure {
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    let holder = read.ok().and_then(|_| serde_json::from_str::<Holder>(&text).ok());
    let writer = holder.as_ref().map_or_else(
        || "another writer".to_owned(),
        |holder| format!("pid {} (generation {})", holder.pid, holder.generation),
    );
    // A holder that is being written cannot be read; the next attempt reads it.
    let same_cluster = holder.is_none_or(|holder| holder.uid == uid);
    let category = if same_cluster { Category::Held } else { Category::Fenced };
    of(category, format!("the host is being changed by {writer}; wait until it ends"))
}

/// The claim of the cluster that the host belongs to; `None` for a free host.
///
/// # Errors
/// If the claim exists and cannot be read.
pub fn claim(root: &Root) -> Result<Option<Claim>, StepFailure> {
    let place = root.at(paths::CLAIM);
    let Some(text) = read_text(&place)? else { return Ok(None) };
    let claim = serde_json::from_str(&text);
    claim.map(Some).map_err(|error| failed(format!("{} is not a claim: {error}", place.display())))
}

/// Takes the lock and the claim for the fence's cluster and generation.
///
/// # Errors
/// [`Category::Fenced`] if the host belongs to another cluster, another cluster changes it, or the host has
/// seen a newer generation; [`Category::Held`] if another writer of this cluster changes it.
pub fn open(root: &Root, fence: &Fence) -> Result<Lock, StepFailure> {
    let lock = Lock::take(root, &fence.uid, fence.generation, LOCK_TIMEOUT)?;
    let current = claim(root)?;
    if let Some(current) = &current {
        admit(current, fence)?;
    }
    let wanted = Claim {
        cluster: fence.cluster.clone(),
        uid: fence.uid.clone(),
        generation: fence.generation,
        version: fence.version,
        role: fence.role.clone(),
    };
    if current.as_ref() != Some(&wanted) {
        let text = serde_json::to_vec_pretty(&wanted).map_err(|error| failed(error.to_string()))?;
        write_file(&root.at(paths::CLAIM), &text, 0o644)?;
    }
    Ok(lock)
}

fn admit(current: &Claim, fence: &Fence) -> Result<(), StepFailure> {
    let refuse = |cause| Err(of(Category::Fenced, cause));
    if current.cluster != fence.cluster {
        return refuse(format!("the host belongs to cluster {}, not to {}", current.cluster, fence.cluster));
    }
    if current.uid != fence.uid {
        return refuse(format!(
            "the host belongs to another cluster with the name {} (uid {}, not {})",
            current.cluster, current.uid, fence.uid
        ));
    }
    if fence.generation < current.generation {
        return refuse(format!(
            "generation {} is older than {}, which the host has seen",
            fence.generation, current.generation
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
            role: kubeon_api::HostRole::Master,
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
            assert_eq!(
                claim(&root).unwrap().unwrap().generation,
                5,
                "a refused writer does not change the claim"
            );
        }
        drop(open(&root, &fence("demo", "u1", 5)).unwrap());
        drop(open(&root, &fence("demo", "u1", 6)).unwrap());
        assert_eq!(claim(&root).unwrap().unwrap().generation, 6);
    }

    #[test]
    fn names_the_writer_and_distinguishes_the_same_cluster_from_another() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let held = open(&root, &fence("demo", "u1", 5)).unwrap();
        let refused = |uid| Lock::take(&root, uid, 6, Duration::ZERO).unwrap_err();
        let who = format!("pid {} (generation 5)", std::process::id());
        for (uid, category) in [("u1", Category::Held), ("u2", Category::Fenced)] {
            assert_eq!(refused(uid).category, category);
            assert!(refused(uid).cause.contains(&who), "{}", refused(uid));
        }
        std::fs::write(root.at(paths::LOCK), "").unwrap();
        assert_eq!(
            refused("u2").category,
            Category::Held,
            "the holder is unknown, so it may be of the same cluster"
        );
        drop(held);
        assert!(open(&root, &fence("demo", "u1", 6)).is_ok());
    }

    #[test]
    fn waits_for_a_writer_that_is_about_to_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let held = open(&root, &fence("demo", "u1", 5)).unwrap();
        let ending = thread::spawn(move || {
            thread::sleep(LOCK_TIMEOUT / 8);
            drop(held);
        });
        assert!(open(&root, &fence("demo", "u1", 6)).is_ok());
        ending.join().unwrap();
    }

    #[test]
    fn a_reset_that_removes_the_folder_meanwhile_does_not_end_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let held = open(&root, &fence("demo", "u1", 5)).unwrap();
        let state = root.at(paths::STATE);
        let reset = thread::spawn(move || {
            // Until the other session opens the lock, and between two of its attempts.
            for _ in 0..200 {
                std::fs::remove_dir_all(&state).ok();
            }
            drop(held);
        });
        assert!(Lock::take(&root, "u1", 6, LOCK_TIMEOUT).is_ok());
        reset.join().unwrap();
    }

    #[test]
    fn a_broken_claim_does_not_mean_a_free_host() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        write_file(&root.at(paths::CLAIM), b"{", 0o644).unwrap();
        assert!(open(&root, &fence("demo", "u1", 5)).is_err());
    }
}
