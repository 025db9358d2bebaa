//! Removes folders, files and links, and finally kubeon's own folder.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use kubeon_wire::StepFailure;

use super::failures::ResetFailures;
use super::mounts;
use crate::durable::{lstat, remove_file};
use crate::failure::{Doing, failed};
use crate::job::Job;
use crate::journal::{self, Mark};
use crate::ops::{hosts, swap};
use crate::paths;
use crate::root::Root;

/// Folders that belong completely to the node of a cluster.
const FOLDERS: [&str; 16] = [
    "/etc/kubernetes",
    "/etc/cni/net.d",
    "/var/lib/kubelet",
    "/var/lib/etcd",
    "/var/lib/containerd",
    "/var/lib/cni",
    "/run/containerd",
    "/run/flannel",
    "/run/kubeon",
    "/run/kubernetes",
    "/run/nri",
    "/usr/libexec/kubernetes",
    "/var/log/pods",
    "/var/log/containers",
    "/var/log/kubernetes",
    "/etc/kubeon",
];
/// Folders that contain links to parts and files of other programs.
const LINKED: [&str; 4] = ["/usr/local/bin", "/opt/cni/bin", "/usr/local/sbin", "/usr/bin"];
/// Folders that are removed if they are empty.
const EMPTY: [&str; 10] = [
    "/opt/cni/bin",
    "/opt/cni",
    "/opt/containerd/bin",
    "/opt/containerd/lib",
    "/opt/containerd",
    "/etc/cni",
    "/etc/containerd/certs.d",
    "/etc/containerd",
    "/etc/haproxy",
    "/run/netns",
];

/// Removes everything except kubeon's own folder.
pub(super) fn clear(job: &Job<'_>, failures: &mut ResetFailures) {
    let root = &job.host.root;
    for entry in failures.record(journal::all(root)).unwrap_or_default().into_iter().flatten() {
        for mark in &entry.marks {
            failures.record(remove_mark(root, mark));
        }
    }
    for folder in LINKED {
        failures.record(remove_links(&root.at(folder)));
    }
    std::thread::scope(|scope| {
        let removing = FOLDERS.map(|folder| scope.spawn(move || remove(&root.at(folder))));
        for thread in removing {
            failures
                .record(thread.join().unwrap_or_else(|_| Err(failed("the removal of a folder panicked"))));
        }
    });
    failures.record(remove_empty_inside(&root.at("/etc/containerd/certs.d")));
    for folder in EMPTY {
        // Fails if other files are in it, which must stay.
        drop(fs::remove_dir(root.at(folder)));
    }
    for path in [paths::SYSCTL, paths::MODULES_LOAD] {
        failures.record(remove_file(&root.at(path)));
    }
    failures.record(hosts::stand_in(root, None));
    failures.record(hosts::replace_block(root, ""));
    failures.record(swap::restore(root));
    if root.is_live() {
        remove_groups(&root.at("/sys/fs/cgroup"), 2);
    }
}

/// Removes kubeon's own folder. The journal is removed near the end and the claim last.
pub(super) fn forget(root: &Root, failures: &mut ResetFailures) {
    for folder in [paths::PARTS, paths::UNITS, paths::JOURNAL] {
        failures.record(remove(&root.at(folder)));
    }
    if failures.is_empty() {
        failures.record(remove_file(&root.at(paths::TOUCHED)));
        failures.record(remove_file(&root.at(paths::CLAIM)));
        failures.record(remove_state(root));
    }
}

/// Removes kubeon's own folder. The lock goes last: a session that makes a new one in between keeps the folder.
///
/// # Errors
/// If anything else is left.
pub(super) fn remove_state(root: &Root) -> Result<(), StepFailure> {
    let (state, lock) = (root.at(paths::STATE), root.at(paths::LOCK));
    if lstat(&state)?.is_none() {
        return Ok(());
    }
    for entry in fs::read_dir(&state).doing("read the folder", &state)? {
        let entry = entry.doing("read the folder", &state)?;
        let (path, is_folder) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
        if is_folder {
            remove(&path)?;
        } else if path != lock {
            remove_file(&path)?;
        }
    }
    remove_file(&lock)?;
    match fs::remove_dir(&state) {
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty && lock.exists() => Ok(()),
        // It is a mount point, and empty.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) => Ok(()),
        removed => removed.doing("remove", &state),
    }
}

/// Removes a folder and its content, unless a mount is below it. A folder that is a mount point is emptied.
///
/// # Errors
/// If anything is left.
pub(super) fn remove(folder: &Path) -> Result<(), StepFailure> {
    if lstat(folder)?.is_none() {
        return Ok(());
    }
    if let Some(mount) = mounts::below(folder)?.first() {
        return Err(failed(format!(
            "cannot remove {}: {} is mounted below it",
            folder.display(),
            mount.display()
        )));
    }
    match fs::remove_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            let left = fs::read_dir(folder).doing("read the folder", folder)?.count();
            if left == 0 { Ok(()) } else { Err(error).doing("remove", folder) }
        }
        Err(error) => Err(error).doing("remove", folder),
    }
}

fn remove_mark(root: &Root, mark: &Mark) -> Result<(), StepFailure> {
    match mark {
        Mark::File { path, .. } => remove_file(&root.given(path)?).map(drop),
        Mark::Link { path, target } => {
            let place = root.given(path)?;
            match fs::read_link(&place) {
                Ok(now) if now == Path::new(target) => remove_file(&place).map(drop),
                // The link does not exist, or another program has changed it.
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Removes the empty folders in a folder.
fn remove_empty_inside(folder: &Path) -> Result<(), StepFailure> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.doing("read the folder", folder)?.path();
        match fs::remove_dir(&path) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory | ErrorKind::NotFound
                ) => {}
            Err(error) => return Err(error).doing("remove", &path),
        }
    }
    Ok(())
}

/// Removes the links in a folder that point into kubeon's folder.
fn remove_links(folder: &Path) -> Result<(), StepFailure> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for place in entries.flatten().map(|entry| entry.path()) {
        if fs::read_link(&place).is_ok_and(|target| target.starts_with(paths::STATE)) {
            remove_file(&place)?;
        }
    }
    Ok(())
}

/// Removes the empty control groups of pods. The others disappear with their last process.
fn remove_groups(folder: &Path, depth: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("kubepods") || name == "k8s.io" {
            remove_group(&entry.path());
        } else if depth > 1 {
            remove_groups(&entry.path(), depth - 1);
        }
    }
}

fn remove_group(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    drop(fs::remove_dir(folder));
}
