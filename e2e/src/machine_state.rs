//! The machine under a lab, seen without kubeon: what of a lab is on it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::program::must;

/// What the machine had before a lab.
pub struct MachineState {
    mounts: BTreeSet<String>,
    namespaces: BTreeSet<PathBuf>,
}

impl MachineState {
    /// What it has now.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn now() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        // Other labs may come and go meanwhile: what a mount is of tells whose it is.
        let mounts = mounts.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" "));
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
        Ok(Self { mounts: mounts.collect(), namespaces: names.collect() })
    }

    /// Everything that a lab of this name and with these addresses has left behind.
    ///
    /// # Errors
    /// When the machine cannot be looked at.
    pub fn left(&self, lab: &str, home: &Path, addresses: &[String]) -> Result<Vec<String>> {
        let (now, home) = (Self::now()?, home.to_string_lossy().into_owned());
        let ours = |text: &str| text.contains(&home) || text.contains(&format!("/{lab}/"));
        let mut left: Vec<String> = now
            .mounts
            .difference(&self.mounts)
            .filter(|mount| ours(mount))
            .map(|it| format!("mount {it}"))
            .collect();
        let named = now.namespaces.difference(&self.namespaces).filter(|path| ours(&path.to_string_lossy()));
        left.extend(named.map(|path| format!("namespace {}", path.display())));
        left.extend(
            cgroups(Path::new("/sys/fs/cgroup"), lab).iter().map(|it| format!("cgroup {}", it.display())),
        );
        left.extend(processes(lab));
        left.extend(links(lab, &home)?.iter().map(|link| format!("link {link}")));
        let nets: BTreeSet<&str> =
            addresses.iter().filter_map(|it| it.rsplit_once('.')).map(|it| it.0).collect();
        let routes = must("ip", &["route", "show", "table", "all"], &[])?;
        left.extend(
            routes
                .lines()
                .filter(|route| nets.iter().any(|net| route.contains(&format!("{net}."))))
                .map(|route| format!("route {route}")),
        );
        let folder = Path::new(&home).join("lab").join(lab);
        left.extend(folder.exists().then(|| format!("folder {}", folder.display())));
        Ok(left)
    }
}

/// The machine's links to a lab, by what they say of themselves.
///
/// # Errors
/// When the kernel does not tell.
pub fn links(lab: &str, home: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for link in fs::read_dir("/sys/class/net")?.flatten() {
        let alias = fs::read_to_string(link.path().join("ifalias")).unwrap_or_default();
        if alias.trim_end().ends_with(&format!("/lab/{lab}")) && alias.contains(home) {
            found.push(link.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

fn cgroups(folder: &Path, lab: &str) -> Vec<PathBuf> {
    let below = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for child in below.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())).map(|it| it.path()) {
        if child.file_name().is_some_and(|name| name.to_string_lossy() == lab) {
            found.push(child);
        } else {
            found.extend(cgroups(&child, lab));
        }
    }
    found
}

/// Processes that carry the lab's mark or are in a cgroup of it.
fn processes(lab: &str) -> Vec<String> {
    let mark = format!("KUBEON_LAB_PROCESS={lab}");
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read(process.path().join(file)).unwrap_or_default();
        // What has ended but is not yet collected by the machine's init is no process any more.
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
            continue;
        }
        let marked = read("environ").split(|&byte| byte == 0).any(|it| it == mark.as_bytes());
        let inside =
            String::from_utf8_lossy(&read("cgroup")).lines().any(|it| it.split('/').any(|part| part == lab));
        if marked || inside {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push(format!("process {} {line}", process.file_name().to_string_lossy()));
        }
    }
    found
}
