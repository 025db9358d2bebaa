//! Errors of a lab, one variant per failed action.

use std::{fmt::Write as _, io, path::PathBuf, time::Duration};

use crate::leftover::Leftover;

/// Result of every operation on a lab.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed operation on a lab. Each message names the object and the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The given name is not a valid lab name.
    #[error("lab name {name:?}: {reason}")]
    Name {
        /// The given name.
        name: String,
        /// The violated rule.
        reason: &'static str,
    },
    /// The number of hosts is out of range.
    #[error("{requested} hosts: a lab has 1 to {maximum} hosts")]
    HostCount {
        /// The number that was requested.
        requested: u32,
        /// The largest number.
        maximum: u8,
    },
    /// The caller is not root.
    #[error("a lab needs root (namespaces, mounts, cgroups): run it with sudo")]
    NotRoot,
    /// Programs that a lab uses are not installed.
    #[error("missing programs: {}", .programs.join(", "))]
    MissingPrograms {
        /// The programs.
        programs: Vec<String>,
        /// The Debian packages that contain them.
        packages: Vec<String>,
    },
    /// A device of the machine is missing.
    #[error("{device} is missing: load its kernel module with: modprobe {module}")]
    NoDevice {
        /// The device.
        device: &'static str,
        /// The kernel module that makes it.
        module: &'static str,
    },
    /// A name is unknown.
    #[error("{what} {given:?} is unknown; known: {known}")]
    Choice {
        /// What it should name.
        what: &'static str,
        /// What was given.
        given: String,
        /// All names.
        known: String,
    },
    /// Two profiles of virtual machines exclude each other.
    #[error("profiles {first} and {second} exclude each other: {reason}; choose one of them")]
    Profiles {
        /// One profile.
        first: &'static str,
        /// The other one.
        second: &'static str,
        /// Why.
        reason: &'static str,
    },
    /// A lab of this name has hosts of another kind.
    #[error("the hosts of lab {lab} are {present}, not {asked}")]
    OtherKind {
        /// The lab.
        lab: String,
        /// What its hosts are.
        present: String,
        /// What was asked for.
        asked: String,
    },
    /// There is no folder for state or cache.
    #[error("neither {variable} nor HOME is set: set {variable} to a folder")]
    NoPlace {
        /// The environment variable that sets it.
        variable: &'static str,
    },
    /// The folder of the lab cannot hold disks of hosts.
    #[error("{}: {reason}; choose another folder with {variable}", .path.display())]
    UnfitPlace {
        /// The folder.
        path: PathBuf,
        /// The reason why it cannot be used.
        reason: &'static str,
        /// The environment variable that selects another folder.
        variable: &'static str,
    },
    /// Another command uses the same lab or base.
    #[error("{what} is in use by another kubeon command; waited {}", seconds(.waited))]
    Busy {
        /// The lab or the base.
        what: String,
        /// The time for which this command waited.
        waited: Duration,
    },
    /// A lab of this name belongs to another state folder.
    #[error("lab {name} exists already, with its state in {}", .folder.display())]
    ForeignLab {
        /// The lab's name.
        name: String,
        /// The folder of that lab.
        folder: PathBuf,
    },
    /// No such lab.
    #[error("there is no lab {name}")]
    NoLab {
        /// The requested name.
        name: String,
    },
    /// No such host in the lab.
    #[error("lab {lab} has no host {host}; it has {}", .known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// The requested name.
        host: String,
        /// The hosts that exist.
        known: Vec<String>,
    },
    /// The operation needs a running host.
    #[error("{host} of lab {lab} is not running")]
    HostDead {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// All candidate subnets overlap routes or addresses of the machine.
    #[error("no free /24 for a lab in 172.28.0.0/14: every one overlaps a route or address of this machine")]
    NoSubnet,
    /// The subnet of this lab is now used by another route or address.
    #[error("the subnet {subnet} of lab {lab} overlaps {other} of this machine")]
    SubnetTaken {
        /// The lab.
        lab: String,
        /// Its subnet.
        subnet: String,
        /// The overlapping route or address.
        other: String,
    },
    /// The base root file system of the lab is missing.
    #[error("the base root file system of lab {lab} is missing: {}", .path.display())]
    NoBase {
        /// The lab.
        lab: String,
        /// The base root file system.
        path: PathBuf,
    },
    /// No usable cgroup hierarchy.
    #[error("cgroups: {0}")]
    Cgroup(&'static str),
    /// A file operation failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The action, a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file of the lab cannot be parsed.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The state file of the lab has an unsupported version.
    #[error("{} has version {version}, but this kubeon supports only version 1", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A program could not be started, or its input or output failed.
    #[error("cannot run {program}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed with {status}{}", log_tail(.stderr))]
    Program {
        /// The command line.
        command: String,
        /// Exit status.
        status: String,
        /// Its standard error.
        stderr: String,
    },
    /// A program did not end in time.
    #[error("{command} did not end within {}", seconds(.limit))]
    Timeout {
        /// The command line.
        command: String,
        /// The limit.
        limit: Duration,
    },
    /// A condition was not met in time.
    #[error("{what}: waited {}{}", seconds(.waited), log_tail(.log))]
    Wait {
        /// The condition that was not met.
        what: String,
        /// The waiting time.
        waited: Duration,
        /// Last lines of the log that may explain it; may be empty.
        log: String,
    },
    /// A host ended while it was booting.
    #[error("{host} ended during boot ({status}){}", log_tail(.log))]
    Boot {
        /// The host.
        host: String,
        /// Exit status of its supervisor.
        status: String,
        /// Last lines of its console.
        log: String,
    },
    /// Some hosts failed; the others are up.
    #[error("{}", list("hosts failed", .0.iter().map(|(host, error)| format!("{host}: {}", chain(error)))))]
    Hosts(Vec<(String, Error)>),
    /// `down` could not remove everything.
    #[error("{}", list("the lab could not be removed completely; these objects remain", .0.iter().map(ToString::to_string)))]
    Remaining(Vec<Leftover>),
}

impl Error {
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn seconds(time: &Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn log_tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(12)..];
    if tail.is_empty() { String::new() } else { format!("\n  {}", tail.join("\n  ")) }
}

fn list(title: &str, items: impl Iterator<Item = String>) -> String {
    let mut text = title.to_owned();
    for item in items {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {item}");
    }
    text
}

fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}
