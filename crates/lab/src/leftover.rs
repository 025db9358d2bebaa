//! An object of a lab that remains on the machine.

use std::{fmt, path::PathBuf};

/// An object of a lab that remains on the machine.
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
    /// The lab's folder, or an unfinished base root file system that no command builds now.
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
