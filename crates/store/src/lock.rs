//! The lock that allows one writer per cluster.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use jiff::{Timestamp, Unit};
use kubeon_api::ClusterName;

use crate::error::StoreError;
use crate::holder::{Holder, host_name};

/// Attempts to read the holder, and the pause between them: it is written just after the lock is taken.
const HOLDER_ATTEMPTS: u32 = 5;
const HOLDER_PAUSE: Duration = Duration::from_millis(20);

/// The lock of a cluster's state. It is released when dropped, or by the kernel when the process ends. The lock file
/// stays: without it two processes could hold the lock.
#[derive(Debug)]
pub struct ClusterLock {
    cluster: ClusterName,
    file: File,
}

impl ClusterLock {
    /// The cluster that it covers.
    #[must_use]
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// A second handle of the open file.
    #[cfg(test)]
    pub(crate) fn second_handle(&self) -> File {
        self.file.try_clone().unwrap()
    }

    pub(crate) fn take(path: &Path, cluster: &ClusterName, command: &str) -> Result<Self, StoreError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(StoreError::file("open lock", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked { cluster: cluster.clone(), holder: read_holder(&mut file) });
            }
            Err(TryLockError::Error(source)) => return Err(StoreError::file("lock", path)(source)),
        }
        let since = Timestamp::now();
        let holder = Holder {
            pid: std::process::id(),
            command: command.to_owned(),
            host: host_name(),
            since: since.round(Unit::Second).unwrap_or(since),
        };
        write_holder(&mut file, &holder).map_err(StoreError::file("write lock", path))?;
        Ok(Self { cluster: cluster.clone(), file })
    }
}

impl Drop for ClusterLock {
    /// Unlocks explicitly: a child process shares the open file between fork and exec.
    fn drop(&mut self) {
        // On failure the kernel releases it when the last copy is closed.
        let _ = self.file.unlock();
    }
}

fn write_holder(file: &mut File, holder: &Holder) -> std::io::Result<()> {
    let line = serde_json::to_string(holder)? + "\n";
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(line.as_bytes())
}

/// The holder. It may not be written yet, so reading is attempted several times.
fn read_holder(file: &mut File) -> Holder {
    for _ in 0..HOLDER_ATTEMPTS {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        if read.is_ok()
            && let Ok(holder) = serde_json::from_str(&text)
        {
            return holder;
        }
        thread::sleep(HOLDER_PAUSE);
    }
    Holder { pid: 0, command: "an unknown program".to_owned(), host: host_name(), since: Timestamp::now() }
}
