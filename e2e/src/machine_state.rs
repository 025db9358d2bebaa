//! Reads the state of the machine without kubeon, to find leftovers of a lab.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::program::must;

/// The mounts and network namespaces of the machine.
pub struct MachineState {
    mounts: BTreeSet<String>,
    namespaces: BTreeSet<PathBuf>,
}

impl MachineState {
    /// Reads the current state.
    ///
    /// # Errors
    /// When the files of the kernel cannot be read.
    pub fn now() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        // Other labs may start and end at the same time: the source of a mount shows its lab.
        let mounts = mounts.lines().map(|line| line.split(' ').skip(3).collect::<Vec<_>>().join(" "));
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.path());
        Ok(Self { mounts: mounts.collect(), namespaces: names.collect() })
    }

    /// The leftovers of a lab with this name and these addresses.
    ///
    /// # Errors
    /// When the state of the machine cannot be read.
    pub fn left(&self, lab: &str, home: &Path, addresses: &[String]) -> Result<Vec<String>> {
        let (now, home) = (Self::now()?, home.to_string_lossy().into_owned());
        let of_lab = |text: &str| text.contains(&home) || text.contains(&format!("/{lab}/"));
        let mut left: Vec<String> = now
            .mounts
            .difference(&self.mounts)
            .filter(|mount| of_lab(mount))
            .map(|mount| format!("mount {mount}"))
            .collect();
        let namespaces =
            now.namespaces.difference(&self.namespaces).filter(|path| of_lab(&path.to_string_lossy()));
        left.extend(namespaces.map(|path| format!("namespace {}", path.display())));
        left.extend(
            cgroups(Path::new("/sys/fs/cgroup"), lab).iter().map(|path| format!("cgroup {}", path.display())),
        );
        left.extend(processes(lab));
        left.extend(links(lab, &home)?.iter().map(|link| format!("link {link}")));
        let nets: BTreeSet<&str> =
            addresses.iter().filter_map(|address| Some(address.rsplit_once('.')?.0)).collect();
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

/// The machine's links to a lab, found by their aliases.
///
/// # Errors
/// When the links cannot be read.
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
    let children = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    let folders = children.filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir()));
    for child in folders.map(|child| child.path()) {
        if child.file_name().is_some_and(|name| name.to_string_lossy() == lab) {
            found.push(child);
        } else {
            found.extend(cgroups(&child, lab));
        }
    }
    found
}

/// Processes with the lab's environment variable or in one of its cgroups.
fn processes(lab: &str) -> Vec<String> {
    let mark = format!("KUBEON_LAB_PROCESS={lab}");
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let read = |file: &str| fs::read(process.path().join(file)).unwrap_or_default();
        // Skips zombies.
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
            continue;
        }
        let marked = read("environ").split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes());
        let inside = String::from_utf8_lossy(&read("cgroup"))
            .lines()
            .any(|line| line.split('/').any(|part| part == lab));
        if marked || inside {
            let line = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            found.push(format!("process {} {line}", process.file_name().to_string_lossy()));
        }
    }
    found
}
