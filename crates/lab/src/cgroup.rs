//! Cgroups of a lab: `kubeon-lab/<lab>/<host>/{supervisor,payload}` in every hierarchy of the machine.
//!
//! `payload` is the root of the host's own cgroup view. It contains no process of the machine, as version 2 requires.

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, LabName, Result, process};

const TOP: &str = "kubeon-lab";
/// Time limit for a cgroup to become removable after its last process ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Hierarchy {
    /// Name of the mount inside a host: controllers, `name=…`, or `unified` for version 2.
    name: String,
    path: PathBuf,
}

/// The hierarchies of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cgroups {
    /// Whether the machine has version 2 only.
    v2: bool,
    hierarchies: Vec<Hierarchy>,
}

impl Cgroups {
    /// Reads the mounts on `/sys/fs/cgroup`.
    pub(crate) fn detect() -> Result<Self> {
        let path = Path::new("/proc/self/mountinfo");
        parse(&fs::read_to_string(path).map_err(Error::file("read", path))?)
    }

    /// `v1` or `v2`: the values that boot.sh expects.
    pub(crate) fn mode(&self) -> &'static str {
        if self.v2 { "v2" } else { "v1" }
    }

    /// The lines that boot.sh expects: mount name, tab, folder of the member.
    pub(crate) fn lines(&self, lab: &LabName, member: &str) -> String {
        let line = |h: &Hierarchy| format!("{}\t{}", h.name, dir(h, lab).join(member).display());
        self.hierarchies.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Creates the cgroups of a member (a host, or the switch), empty and usable.
    pub(crate) fn create(&self, lab: &LabName, member: &str) -> Result<()> {
        for hierarchy in &self.hierarchies {
            for leaf in ["supervisor", "payload"] {
                let path: PathBuf = [TOP, lab.as_str(), member, leaf].iter().collect();
                create(hierarchy, &path, self.v2)?;
            }
        }
        Ok(())
    }

    /// Processes of a member in the given leaf (`""`: in all leaves), in any hierarchy.
    pub(crate) fn processes(&self, lab: &LabName, member: &str, leaf: &str) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for hierarchy in &self.hierarchies {
            collect(&dir(hierarchy, lab).join(member).join(leaf), &mut pids)?;
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Whether both the member's payload and its supervisor run. A payload is ending without a supervisor, or when that was
    /// killed: a command that was killed while it killed a host leaves it so.
    pub(crate) fn is_running(&self, lab: &LabName, member: &str) -> Result<bool> {
        // One hierarchy is enough: a process is in all of them.
        let Some(hierarchy) = self.hierarchies.last() else { return Ok(false) };
        let runs = |leaf: &str| -> Result<bool> {
            let mut pids = Vec::new();
            collect(&dir(hierarchy, lab).join(member).join(leaf), &mut pids)?;
            Ok(pids.into_iter().any(|pid| !process::is_ending(pid)))
        };
        Ok(runs("supervisor")? && runs("payload")?)
    }

    /// Removes the cgroups of a member (`""`: of the whole lab); fails if a cgroup cannot be removed within 5 s.
    pub(crate) fn remove(&self, lab: &LabName, member: &str) -> Result<()> {
        for hierarchy in &self.hierarchies {
            let path = dir(hierarchy, lab).join(member);
            remove_tree(&path).map_err(Error::file("remove cgroup", path))?;
            if member.is_empty() {
                // Fails when another lab exists or when another `down` has removed it.
                let _ = fs::remove_dir(hierarchy.path.join(TOP));
            }
        }
        Ok(())
    }

    /// Cgroup folders of the lab that exist.
    pub(crate) fn existing(&self, lab: &LabName) -> Vec<PathBuf> {
        self.hierarchies.iter().map(|h| dir(h, lab)).filter(|path| path.exists()).collect()
    }
}

fn dir(hierarchy: &Hierarchy, lab: &LabName) -> PathBuf {
    hierarchy.path.join(TOP).join(lab.as_str())
}

fn parse(mountinfo: &str) -> Result<Cgroups> {
    let mut v2 = false;
    let mut hierarchies: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(path), Some((kind, rest))) = (left.split(' ').nth(4), right.split_once(' ')) else {
            continue;
        };
        let options = rest.split(' ').nth(1).unwrap_or_default();
        let name = match kind {
            "cgroup2" => "unified".to_owned(),
            "cgroup" => controllers(options),
            _ => continue,
        };
        if !path.starts_with("/sys/fs/cgroup") || hierarchies.iter().any(|h| h.name == name) {
            continue;
        }
        v2 |= path == "/sys/fs/cgroup" && kind == "cgroup2";
        hierarchies.push(Hierarchy { name, path: path.into() });
    }
    if v2 {
        hierarchies.retain(|h| h.name == "unified");
    } else if !hierarchies.iter().any(|h| h.name == "name=systemd") {
        return Err(Error::Cgroup(
            "systemd in the hosts needs cgroup v2 on /sys/fs/cgroup, or v1 with its own hierarchy; create that hierarchy with: \
             mkdir /sys/fs/cgroup/systemd && mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd",
        ));
    }
    Ok(Cgroups { v2, hierarchies })
}

/// The controllers (or the name) among the mount options of a version 1 hierarchy.
fn controllers(options: &str) -> String {
    let flag = |o: &str| {
        ["rw", "ro", "none", "xattr", "clone_children", "noprefix", "all", "cpuset_v2_mode"].contains(&o)
            || o.starts_with("release_agent=")
    };
    options.split(',').filter(|o| !flag(o)).collect::<Vec<_>>().join(",")
}

fn create(hierarchy: &Hierarchy, path: &Path, v2: bool) -> Result<()> {
    let mut attempts = 0;
    loop {
        match try_create(hierarchy, path, v2) {
            // `down` of another lab may remove the shared top folder at the same time.
            Err(Error::File { source, .. }) if source.kind() == ErrorKind::NotFound && attempts < 5 => {
                attempts += 1
            }
            other => return other,
        }
    }
}

fn try_create(hierarchy: &Hierarchy, path: &Path, v2: bool) -> Result<()> {
    let mut parent = hierarchy.path.clone();
    for part in path {
        if v2 {
            pass_controllers(&parent);
        }
        let child = parent.join(part);
        match fs::create_dir(&child) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::file("create cgroup", child)(error));
            }
            _ => {}
        }
        // A new cpuset of version 1 is empty and accepts no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if !v2 && parent.join(file).exists() {
                let copy = fs::read(parent.join(file)).and_then(|set| fs::write(child.join(file), set));
                copy.map_err(Error::file("fill", child.join(file)))?;
            }
        }
        parent = child;
    }
    Ok(())
}

/// Version 2: enables all controllers of a cgroup for its children.
fn pass_controllers(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        if let Err(error) = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}")) {
            tracing::warn!("{}: hosts get no {controller} controller: {error}", group.display());
        }
    }
}

fn children(path: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("list", path)(error)),
    };
    Ok(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect())
}

fn collect(path: &Path, pids: &mut Vec<i32>) -> Result<()> {
    if let Some(text) = process::read_vanishing(&path.join("cgroup.procs"))? {
        // The kernel writes 0 for a process outside this PID namespace.
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|&pid| pid > 0));
    }
    for child in children(path)? {
        collect(&child, pids)?;
    }
    Ok(())
}

fn remove_tree(path: &Path) -> io::Result<()> {
    for child in children(path).map_err(io::Error::other)? {
        remove_tree(&child)?;
    }
    let begin = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // The kernel has not yet released the last process.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && begin.elapsed() < REMOVAL_TIMEOUT => {
                thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        parse(text).unwrap().hierarchies.into_iter().map(|h| h.name).collect()
    }

    #[test]
    fn reads_version_1_with_joined_controllers_and_a_named_hierarchy() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            42 31 0:29 / /other rw - cgroup cgroup rw,pids\n";
        assert_eq!(names(text), ["cpu,cpuacct", "name=systemd", "unified"]);
        assert_eq!(parse(text).unwrap().mode(), "v1");
    }

    #[test]
    fn reads_version_2() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(names(text), ["unified"]);
        assert_eq!(parse(text).unwrap().mode(), "v2");
    }

    #[test]
    fn refuses_a_machine_where_systemd_would_have_no_hierarchy() {
        let text = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert!(matches!(parse(text), Err(Error::Cgroup(_))));
        assert!(matches!(parse(""), Err(Error::Cgroup(_))));
    }
}
