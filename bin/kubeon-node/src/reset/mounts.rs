//! Removes the mounts of pods, the deepest first.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use kubeon_wire::StepFailure;
use rustix::mount::{UnmountFlags, unmount};

use super::failures::ResetFailures;
use crate::durable::remove_file;
use crate::failure::{Doing, failed};
use crate::job::Job;
use crate::paths;
use crate::root::Root;

/// All mounts below these folders belong to pods or containerd. The folders themselves may be mounted disks
/// and stay mounted.
const FOLDERS: [&str; 5] =
    ["/var/lib/kubelet", "/run/containerd", "/var/lib/containerd", "/var/lib/etcd", paths::STATE];
/// The path prefix of the mounts of pods' network namespaces.
const NAMESPACES: &str = "/run/netns/cni-";
/// The time limit of one unmount, which hangs if the server of the mount is gone; the mount is then detached.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(5);

/// Unmounts all mounts of pods and containerd.
pub(super) fn detach(job: &Job<'_>, failures: &mut ResetFailures) {
    let root = &job.host.root;
    let Some(mounts) = failures.record(cluster_mounts(root)) else { return };
    for mount in &mounts {
        failures.record(detach_one(mount));
    }
    if let Ok(names) = fs::read_dir(root.at("/run/netns")) {
        for name in names.flatten().filter(|name| name.file_name().to_string_lossy().starts_with("cni-")) {
            failures.record(remove_file(&name.path()));
        }
    }
}

/// The mounts below a folder, without the folder itself.
///
/// # Errors
/// If the table of mounts cannot be read.
pub(super) fn below(folder: &Path) -> Result<Vec<PathBuf>, StepFailure> {
    let mounts = all()?;
    Ok(mounts.into_iter().filter(|mount| mount != folder && mount.starts_with(folder)).collect())
}

fn cluster_mounts(root: &Root) -> Result<Vec<PathBuf>, StepFailure> {
    let folders = FOLDERS.map(|folder| root.at(folder));
    let namespaces = root.at(NAMESPACES).to_string_lossy().into_owned();
    let inside = |mount: &PathBuf| {
        folders.iter().any(|folder| mount != folder && mount.starts_with(folder))
            || mount.to_string_lossy().starts_with(&namespaces)
    };
    // The table lists a mount after the mounts below which it is mounted.
    Ok(all()?.into_iter().rev().filter(inside).collect())
}

fn all() -> Result<Vec<PathBuf>, StepFailure> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read(table).doing("read", table)?;
    let point = |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).map(unescape);
    Ok(text.split(|byte| *byte == b'\n').filter_map(point).collect())
}

/// Decodes the kernel's octal escapes, such as `\040` for a space.
fn unescape(text: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match digits {
            Some(digits) if *first == b'\\' => {
                let code = digits.iter().fold(0_u32, |code, digit| code * 8 + u32::from(digit - b'0'));
                bytes.push(code.to_le_bytes()[0]);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn detach_one(mount: &Path) -> Result<(), StepFailure> {
    let (sender, receiver) = channel();
    let place = mount.to_owned();
    thread::spawn(move || sender.send(unmount(&place, UnmountFlags::NOFOLLOW)).is_ok());
    match receiver.recv_timeout(UNMOUNT_TIMEOUT) {
        // No longer a mount: it was unmounted together with another one.
        Ok(Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT)) => Ok(()),
        // Busy or hanging: detach it now; it is unmounted when its last user ends.
        _ => match unmount(mount, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(format!("cannot unmount {}: {error}", mount.display()))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_the_escapes_of_the_kernel() {
        assert_eq!(unescape(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescape(b"/plain\\"), Path::new("/plain\\"));
    }
}
