//! The hosts file of the control machine: one name for each cluster with the addresses of all its masters, so
//! that kubectl reaches the cluster while any one master is down. Other lines are never changed.
//!
//! Commands on different clusters change the same file. Each command holds a lock while it reads and replaces
//! the file. The lock is on the folder, because every change replaces the file and because no lock file is
//! left behind.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of waiting for the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between attempts to lock.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// A hosts file.
#[derive(Debug, Clone)]
pub struct HostsFile {
    path: PathBuf,
}

impl HostsFile {
    /// The hosts file of this machine.
    pub fn of_this_machine() -> Self {
        Self { path: PathBuf::from("/etc/hosts") }
    }

    /// A hosts file at another path.
    #[cfg(test)]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// Replaces the addresses of `name`. Writes only if the addresses differ.
    ///
    /// # Errors
    /// When the file cannot be read, locked or replaced. The file is then unchanged.
    pub fn set(&self, cluster: &str, name: &str, addresses: &[Ipv4Addr]) -> io::Result<()> {
        let mut block = String::new();
        for address in addresses {
            let _ = writeln!(block, "{address}\t{name}");
        }
        self.replace(cluster, &block)
    }

    /// Removes the entry of the cluster.
    ///
    /// # Errors
    /// When the file cannot be read, locked or replaced. The file is then unchanged.
    pub fn forget(&self, cluster: &str) -> io::Result<()> {
        self.replace(cluster, "")
    }

    fn replace(&self, cluster: &str, block: &str) -> io::Result<()> {
        // A command that changes nothing does not wait for the lock.
        if self.with_block(cluster, block)?.is_none() {
            return Ok(());
        }
        let _lock = lock(self.path.parent().unwrap_or(Path::new("/")))?;
        match self.with_block(cluster, block)? {
            Some(new) => replace(&self.path, &new),
            None => Ok(()),
        }
    }

    /// The new content of the file; `None` when it is up to date.
    fn with_block(&self, cluster: &str, block: &str) -> io::Result<Option<String>> {
        let old = std::fs::read_to_string(&self.path)?;
        let new = with_block(&old, cluster, block);
        Ok((new != old).then_some(new))
    }
}

/// Locks the folder until the returned file is dropped.
fn lock(folder: &Path) -> io::Result<File> {
    let folder_file = File::open(folder)?;
    let begin = Instant::now();
    loop {
        match folder_file.try_lock() {
            Ok(()) => return Ok(folder_file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begin.elapsed() >= LOCK_TIMEOUT => {
                let what = format!(
                    "another program has held the lock of {} for {} s",
                    folder.display(),
                    LOCK_TIMEOUT.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL),
        }
    }
}

fn with_block(text: &str, cluster: &str, block: &str) -> String {
    let (begin, end) = (format!("# kubeon {cluster} begin"), format!("# kubeon {cluster} end"));
    let mut kept = String::with_capacity(text.len() + block.len());
    let mut inside = false;
    // kubeon did not write a block without an end marker: such a block stays.
    let complete = text.lines().any(|line| line == begin) && text.lines().any(|line| line == end);
    for line in text.lines() {
        inside |= complete && line == begin;
        if !inside {
            kept.push_str(line);
            kept.push('\n');
        }
        inside &= line != end;
    }
    if !block.is_empty() {
        let _ = write!(kept, "{begin}\n{block}{end}\n");
    }
    kept
}

/// Replaces the file and keeps its mode.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    kubeon_atomic_file::write_atomically(path, text.as_bytes(), mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "127.0.0.1 localhost\n10.0.0.1 demo-foreign\n";

    fn file() -> (tempfile::TempDir, HostsFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = HostsFile::at(folder.path().join("hosts"));
        std::fs::write(&file.path, OTHERS).unwrap();
        (folder, file)
    }

    fn text(file: &HostsFile) -> String {
        std::fs::read_to_string(&file.path).unwrap()
    }

    #[test]
    fn keeps_other_lines() {
        let (_folder, file) = file();
        let addresses = [Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 1, 0, 2)];
        file.set("demo", "demo.api", &addresses).unwrap();
        file.set("demo2", "demo2.api", &addresses[..1]).unwrap();
        file.set("demo", "demo.api", &addresses[1..]).unwrap();
        let content = text(&file);
        assert!(content.starts_with(OTHERS), "{content}");
        assert_eq!(content.matches("demo.api").count(), 1, "{content}");
        assert_eq!(content.matches("demo2.api").count(), 1, "{content}");
        file.forget("demo").unwrap();
        file.forget("demo2").unwrap();
        assert_eq!(text(&file), OTHERS);
    }

    #[test]
    fn removes_nothing_when_a_block_has_no_end() {
        let text = "127.0.0.1 localhost\n# kubeon demo begin\n10.0.0.9 theirs\n";
        assert!(with_block(text, "demo", "").contains("10.0.0.9 theirs"));
    }

    #[test]
    fn concurrent_commands_lose_no_block() {
        let (_folder, file) = file();
        let address = [Ipv4Addr::new(10, 1, 0, 1)];
        thread::scope(|scope| {
            for n in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..20 {
                        let cluster = format!("c{n}-{round}");
                        file.set(&cluster, &format!("{cluster}.api"), &address).unwrap();
                    }
                });
            }
        });
        assert_eq!(text(&file).matches(" end\n").count(), 160);
        assert_eq!(std::fs::read_dir(file.path.parent().unwrap()).unwrap().count(), 1, "no file is left");
    }

    #[test]
    fn waits_for_another_command_up_to_the_time_limit() {
        let (folder, file) = file();
        let other_lock = lock(folder.path()).unwrap();
        let address = [Ipv4Addr::new(10, 1, 0, 1)];
        let error = file.set("demo", "demo.api", &address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert_eq!(text(&file), OTHERS);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| file.set("demo", "demo.api", &address));
            thread::sleep(Duration::from_millis(100));
            drop(other_lock);
            waiting.join().unwrap().unwrap();
        });
        assert!(text(&file).contains("demo.api"));
        let _held = lock(folder.path()).unwrap();
        file.set("demo", "demo.api", &address).unwrap();
    }
}
