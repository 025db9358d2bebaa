//! What of a lab is on the machine, found by its name alone.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use crate::{Error, LabName, Places, Result, cgroup::Cgroups, net, process, stale};

/// One thing of a lab that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A process, by its id.
    Process(i32, String),
    /// A mount in the machine's own mount namespace.
    Mount(PathBuf),
    /// A cgroup.
    Cgroup(PathBuf),
    /// A network link of the machine.
    Link(String),
    /// A route of the machine.
    Route(String),
    /// The lab's folder, or a base root file system that nobody builds any more.
    File(PathBuf),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid, line) => write!(f, "process {pid} ({line})"),
            Self::Mount(path) => write!(f, "mount {}", path.display()),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
            Self::Link(link) => write!(f, "link {link}"),
            Self::Route(route) => write!(f, "route unreachable {route}"),
            Self::File(path) => write!(f, "folder {}", path.display()),
        }
    }
}

/// Processes of the lab: marked ones and members of its cgroups. Namespaces live and end with them.
pub(crate) fn processes(lab: &LabName, cgroups: &Cgroups) -> Result<Vec<i32>> {
    let mut pids = process::marked(lab, None)?;
    pids.extend(cgroups.processes(lab, "", "")?);
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

/// Mounts at or below a folder, innermost first.
pub(crate) fn mounts(dir: &Path) -> Result<Vec<PathBuf>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).map(PathBuf::from);
    let mut below: Vec<_> = points.filter(|point| point.starts_with(dir)).collect();
    below.reverse();
    Ok(below)
}

/// Everything of the lab that exists now.
pub(crate) fn all(places: &Places, lab: &LabName) -> Result<Vec<Leftover>> {
    let cgroups = Cgroups::detect()?;
    let dir = places.lab(lab);
    let mut found = Vec::new();
    for pid in processes(lab, &cgroups)? {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        found.push(Leftover::Process(
            pid,
            String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned(),
        ));
    }
    found.extend(mounts(&dir)?.into_iter().map(Leftover::Mount));
    found.extend(cgroups.existing(lab).into_iter().map(Leftover::Cgroup));
    found.extend(net::link_exists(lab).then(|| Leftover::Link(lab.link())));
    found.extend(net::routes(lab)?.into_iter().map(Leftover::Route));
    found.extend(dir.exists().then_some(Leftover::File(dir)));
    found.extend(stale::builds(places)?.into_iter().map(Leftover::File));
    Ok(found)
}

/// The kernel writes blanks and backslashes of paths as octal numbers.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
