//! kubeon's block in the hosts file, and the block of the way to the API that stands in while its Service does not answer. Lines
//! outside the blocks are never changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{HostsEntry, StepFailure};

use crate::durable::{read_text, sha256, stage_file};
use crate::failure::{Doing, failed};
use crate::job::{Job, StepEffect};
use crate::journal::Mark;
use crate::paths;
use crate::root::Root;

/// The first and the last line of a block.
struct Limits {
    begin: &'static str,
    end: &'static str,
}

const OWN: Limits = Limits { begin: "# kubeon begin", end: "# kubeon end" };
const STAND_IN: Limits = Limits { begin: "# kubeon stand-in begin", end: "# kubeon stand-in end" };
/// Locked while a program changes the file: an operation of kubeon and the unit of the stand-in may do so at the same time.
const LOCK: &str = "/var/lib/kubeon/hosts.lock";
/// A change of the file takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// Replaces the block.
///
/// # Errors
/// If a name is not a host name, or the file cannot be written.
pub fn run(job: &Job<'_>, entries: &[HostsEntry]) -> Result<StepEffect, StepFailure> {
    let block = block(&OWN, entries)?;
    let _guard = job.host.shared_files.lock();
    let changed = replace_block(&job.host.root, &block)?;
    for line in conflicting_lines(&read_text(&job.host.root.at(paths::HOSTS))?.unwrap_or_default(), entries) {
        job.note(format!("/etc/hosts also contains `{line}`; kubeon does not change this line"));
    }
    let marks = vec![Mark::HostsBlock { sha256: sha256(block.as_bytes()) }];
    Ok(StepEffect { changed, marks })
}

/// SHA-256 of the block's lines in the file; of an empty text if there is no block.
///
/// # Errors
/// If the file cannot be read.
pub fn block_sha256(root: &Root) -> Result<String, StepFailure> {
    let text = read_text(&root.at(paths::HOSTS))?.unwrap_or_default();
    Ok(sha256(split(&OWN, &text).1.as_bytes()))
}

/// Replaces the old block with `block`, or appends it. An empty `block` removes the old one. Returns whether
/// the file changed.
///
/// # Errors
/// If the file cannot be read or written.
pub fn replace_block(root: &Root, block: &str) -> Result<bool, StepFailure> {
    let place = root.at(paths::HOSTS);
    let _lock = lock(root)?;
    let text = read_text(&place)?.unwrap_or_default();
    let (before, present, after) = split(&OWN, &text);
    if present == block {
        return Ok(false);
    }
    write(&place, &format!("{before}{}{block}{after}", gap(before, block)))?;
    Ok(true)
}

/// Replaces the stand-in, or adds it before kubeon's block, because the first address of a name counts. `None` removes it.
/// Returns whether the file changed.
///
/// # Errors
/// If a name is not a host name, or the file cannot be read or written.
pub fn stand_in(root: &Root, entry: Option<&HostsEntry>) -> Result<bool, StepFailure> {
    let place = root.at(paths::HOSTS);
    let block = block(&STAND_IN, entry.map(std::slice::from_ref).unwrap_or_default())?;
    let _lock = lock(root)?;
    let text = read_text(&place)?.unwrap_or_default();
    let (before, present, after) = split(&STAND_IN, &text);
    if present == block {
        return Ok(false);
    }
    let others = format!("{before}{after}");
    let (before, own, after) = split(&OWN, &others);
    write(&place, &format!("{before}{}{block}{own}{after}", gap(before, &block)))?;
    Ok(true)
}

/// Waits up to [`LOCK_TIMEOUT`] until no other program changes the file. The lock ends with the returned value.
fn lock(root: &Root) -> Result<File, StepFailure> {
    let place = root.at(LOCK);
    let folder = place.parent().unwrap_or(&place);
    fs::create_dir_all(folder).doing("create", folder)?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&place);
    let file = file.doing("open", &place)?;
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error).doing("lock", &place),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                let (file, waited) = (place.display(), LOCK_TIMEOUT.as_secs());
                return Err(failed(format!("another program has held the lock {file} for {waited} s")));
            }
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
        }
    }
}

fn gap(before: &str, block: &str) -> &'static str {
    if before.is_empty() || before.ends_with('\n') || block.is_empty() { "" } else { "\n" }
}

fn block(limits: &Limits, entries: &[HostsEntry]) -> Result<String, StepFailure> {
    if entries.is_empty() {
        return Ok(String::new());
    }
    let mut block = format!("{}\n", limits.begin);
    for entry in entries {
        let good = |name: &String| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        };
        if entry.names.is_empty() || !entry.names.iter().all(good) {
            return Err(failed(format!("{}: {:?} are not host names", entry.address, entry.names)));
        }
        writeln!(block, "{}\t{}", entry.address, entry.names.join(" ")).map_err(|e| failed(e.to_string()))?;
    }
    block.push_str(limits.end);
    block.push('\n');
    Ok(block)
}

/// The text before the block, the block, and the text after it. A block without an end marker is not a block:
/// its end is unknown, so its lines are not changed.
fn split<'t>(limits: &Limits, text: &'t str) -> (&'t str, &'t str, &'t str) {
    let mut at = 0;
    let mut begin = None;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        match (line.trim_end(), begin) {
            (line, _) if line == limits.begin => begin = Some(at),
            (line, Some(begin)) if line == limits.end => {
                return (&text[..begin], &text[begin..end], &text[end..]);
            }
            _ => {}
        }
        at = end;
    }
    (text, "", "")
}

/// Lines outside the block that map a name of `entries` to another address.
fn conflicting_lines(text: &str, entries: &[HostsEntry]) -> Vec<String> {
    let pair = |entry: &HostsEntry| -> Vec<(String, String)> {
        entry.names.iter().map(|name| (name.clone(), entry.address.to_string())).collect()
    };
    let names: BTreeMap<String, String> = entries.iter().flat_map(pair).collect();
    let (before, _, after) = split(&STAND_IN, text);
    let others = format!("{before}{after}");
    let (before, _, after) = split(&OWN, &others);
    let conflicts = |line: &str| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let address = words.next();
        words.any(|name| names.get(name).is_some_and(|expected| address != Some(expected)))
    };
    before.lines().chain(after.lines()).filter(|line| conflicts(line)).map(str::to_owned).collect()
}

fn write(place: &Path, text: &str) -> Result<(), StepFailure> {
    let mode = fs::metadata(place).map_or(0o644, |found| found.permissions().mode());
    match stage_file(place, text.as_bytes(), mode)?.commit(place) {
        Ok(()) => Ok(()),
        // In a container the hosts file is a mount and cannot be replaced.
        Err(error) if matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices) => {
            write_in_place(place, text).doing("write", place)
        }
        Err(error) => Err(error).doing("replace", place),
    }
}

fn write_in_place(place: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(place)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "127.0.0.1 localhost\n10.0.0.1 test1\n10.0.0.10 test10 # mine";

    fn entry(address: &str, names: &[&str]) -> HostsEntry {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        HostsEntry { address: address.parse().unwrap(), names }
    }

    fn host(text: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        fs::create_dir(folder.path().join("etc")).unwrap();
        fs::write(root.at(paths::HOSTS), text).unwrap();
        (folder, root)
    }

    #[test]
    fn does_not_change_lines_outside_the_block() {
        let Limits { begin, end } = OWN;
        let (_folder, root) = host(OTHERS);
        let one = block(&OWN, &[entry("172.30.0.11", &["test1", "h1"])]).unwrap();
        assert!(replace_block(&root, &one).unwrap());
        assert!(!replace_block(&root, &one).unwrap(), "the second run changes nothing");
        let text = fs::read_to_string(root.at(paths::HOSTS)).unwrap();
        assert_eq!(text, format!("{OTHERS}\n{begin}\n172.30.0.11\ttest1 h1\n{end}\n"));
        assert_eq!(block_sha256(&root).unwrap(), sha256(one.as_bytes()));

        fs::write(root.at(paths::HOSTS), format!("{text}10.9.9.9 later\n")).unwrap();
        let two = block(&OWN, &[entry("172.30.0.12", &["h2"])]).unwrap();
        assert!(replace_block(&root, &two).unwrap());
        assert!(replace_block(&root, "").unwrap());
        assert_eq!(fs::read_to_string(root.at(paths::HOSTS)).unwrap(), format!("{OTHERS}\n10.9.9.9 later\n"));
    }

    #[test]
    fn a_block_without_an_end_does_not_remove_other_lines() {
        let (_folder, root) = host(&format!("{}\n10.0.0.1 h1\n10.0.0.2 theirs\n", OWN.begin));
        replace_block(&root, &block(&OWN, &[entry("10.0.0.1", &["h1"])]).unwrap()).unwrap();
        replace_block(&root, "").unwrap();
        let text = fs::read_to_string(root.at(paths::HOSTS)).unwrap();
        assert!(text.contains("10.0.0.2 theirs"), "{text}");
    }

    #[test]
    fn the_stand_in_comes_first_and_goes_without_a_trace() {
        let (_folder, root) = host("127.0.0.1 localhost\n10.9.9.9 api # mine\n");
        let text = || fs::read_to_string(root.at(paths::HOSTS)).unwrap();
        let own = block(&OWN, &[entry("10.64.0.15", &["api"])]).unwrap();
        replace_block(&root, &own).unwrap();
        let before = text();
        for address in ["10.0.0.1", "10.0.0.2"] {
            let master = entry(address, &["api"]);
            assert!(stand_in(&root, Some(&master)).unwrap());
            assert!(!stand_in(&root, Some(&master)).unwrap(), "the second time nothing changes");
            let text = text();
            assert!(text.find(&format!("{address}\tapi")) < text.find("10.64.0.15"), "{text}");
            assert_eq!(text.matches("stand-in begin").count(), 1, "{text}");
            assert_eq!(block_sha256(&root).unwrap(), sha256(own.as_bytes()));
            assert_eq!(conflicting_lines(&text, &[entry("10.64.0.15", &["api"])]), ["10.9.9.9 api # mine"]);
        }
        assert!(stand_in(&root, None).unwrap());
        assert_eq!(text(), before);
    }

    #[test]
    fn reports_conflicts_of_whole_names_only() {
        let found = conflicting_lines(OTHERS, &[entry("172.30.0.11", &["test1"])]);
        assert_eq!(found, ["10.0.0.1 test1"]);
        assert!(
            conflicting_lines(OTHERS, &[entry("10.0.0.1", &["test1"])]).is_empty(),
            "the same address is fine"
        );
    }

    #[test]
    fn refuses_invalid_names() {
        assert!(block(&OWN, &[entry("10.0.0.1", &["a\n10.0.0.2 b"])]).is_err());
        assert!(block(&OWN, &[entry("10.0.0.1", &[])]).is_err());
    }

    #[test]
    fn creates_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(replace_block(&root, &block(&OWN, &[entry("10.0.0.1", &["h1"])]).unwrap()).unwrap());
        assert!(replace_block(&root, "").unwrap());
        assert_eq!(fs::read_to_string(root.at(paths::HOSTS)).unwrap(), "");
    }
}
