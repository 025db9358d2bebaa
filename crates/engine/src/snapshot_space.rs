//! Disk space for a snapshot of etcd: on the host of its member, whose disk may be that of etcd itself, and on this machine. It is
//! asked for before the snapshot begins, because a full disk stops etcd.

use std::path::Path;

use crate::error::EngineError;

/// The database of a member. A snapshot is as large.
pub(crate) const DATABASE: &str = "/var/lib/etcd/member/snap/db";
/// What must stay free on the host of a member, in bytes: etcd may write to the same disk.
const RESERVE: u64 = 512 << 20;

/// Shell lines that fail with the reason when `folder` on the host of a member has no space for a snapshot.
pub(crate) fn on_member(folder: &str) -> String {
    lines(DATABASE, folder, RESERVE)
}

fn lines(database: &str, folder: &str, reserve: u64) -> String {
    format!(
        "need=$(($(stat -c %s {database}) + {reserve})); \
         free=$(($(df -B1 --output=avail {folder} | tail -n 1))); \
         if [ \"$free\" -lt \"$need\" ]; then echo \"{folder} has $((free >> 20)) MiB free, and $((need >> 20)) MiB are \
         needed: the snapshot and a reserve for etcd\" >&2; exit 1; fi"
    )
}

/// Checks that the folder of a file on this machine has space for a snapshot of `bytes`. A folder that cannot be asked is found
/// by the first write.
///
/// # Errors
/// When it has less.
pub(crate) fn require_here(file: &Path, bytes: u64) -> Result<(), EngineError> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(disk) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let error = EngineError::failed(format!("{} has too little space for the snapshot", folder.display()));
    let (free, needed) = (free >> 20, bytes.div_ceil(1 << 20));
    Err(error.row("cause", format!("{free} MiB are free, and {needed} MiB are needed")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_member_without_space_writes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("db");
        std::fs::write(&database, [0_u8; 4096]).unwrap();
        let run = |reserve: u64| {
            let lines = lines(database.to_str().unwrap(), folder.path().to_str().unwrap(), reserve);
            let line = format!("set -e; {lines}; echo taken");
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            (output.status.code(), text(output.stdout), text(output.stderr))
        };
        assert_eq!(run(0), (Some(0), "taken\n".to_owned(), String::new()));
        let (code, taken, why) = run(1 << 60);
        assert_eq!((code, taken.as_str()), (Some(1), ""));
        assert!(why.contains("MiB free, and 1099511627776 MiB are needed"), "{why}");
        std::fs::remove_file(&database).unwrap();
        assert_ne!(run(0).0, Some(0), "a member without its database");
    }

    #[test]
    fn this_machine_is_asked_for_space() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("snapshot.db");
        assert!(require_here(&file, 1).is_ok());
        let error = require_here(&file, u64::MAX).unwrap_err();
        assert!(error.title.ends_with("has too little space for the snapshot"), "{error}");
        assert!(require_here(Path::new("/nowhere/snapshot.db"), u64::MAX).is_ok());
    }
}
