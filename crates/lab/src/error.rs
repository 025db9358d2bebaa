//! What can go wrong, one variant per failed action.

use std::{fmt::Write as _, io, path::PathBuf, time::Duration};

use crate::leftover::Leftover;

/// Result of every operation on a lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a lab failed. Each message names the object, the cause and, where there is one, the way out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name given for a lab cannot be one.
    #[error("lab name {name:?}: {reason}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
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
    #[error("missing programs: {}; install them with: apt-get install {}", .programs.join(", "), .packages.join(" "))]
    MissingPrograms {
        /// The programs.
        programs: Vec<String>,
        /// The Debian packages that hold them.
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
    /// A name stands for nothing.
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
    #[error(
        "the hosts of lab {lab} are {present}, not {asked}; use another --lab NAME, or end it with: kubeon lab down --lab {lab}"
    )]
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
        /// The environment variable that would name it.
        variable: &'static str,
    },
    /// The folder of the lab cannot hold disks of hosts.
    #[error("{}: {reason}; choose another folder with {variable}", .path.display())]
    UnfitPlace {
        /// The folder.
        path: PathBuf,
        /// Why it does not serve.
        reason: &'static str,
        /// The environment variable that moves it.
        variable: &'static str,
    },
    /// Another command works on the same thing.
    #[error("{what} is in use by another kubeon command; waited {}", seconds(.waited))]
    Busy {
        /// The lab or the base.
        what: String,
        /// How long this command waited for it.
        waited: Duration,
    },
    /// A lab of this name belongs to another state folder.
    #[error("lab {name} exists already, with its state in {}; use another --lab NAME", .folder.display())]
    ForeignLab {
        /// The lab's name.
        name: String,
        /// The folder of that lab.
        folder: PathBuf,
    },
    /// No such lab.
    #[error("there is no lab {name}; make it with: kubeon lab up --hosts N --lab {name}")]
    NoLab {
        /// The name asked for.
        name: String,
    },
    /// No such host in the lab.
    #[error("lab {lab} has no host {host}; it has {}", .known.join(", "))]
    NoHost {
        /// The lab.
        lab: String,
        /// The name asked for.
        host: String,
        /// The hosts that exist.
        known: Vec<String>,
    },
    /// The operation needs a running host.
    #[error("{host} of lab {lab} is not running; boot it with: kubeon lab start {host} --lab {lab}")]
    HostDead {
        /// The lab.
        lab: String,
        /// The host.
        host: String,
    },
    /// All candidate subnets overlap routes or addresses of the machine.
    #[error("no free /24 for a lab in 172.28.0.0/14: every one overlaps a route or address of this machine")]
    NoSubnet,
    /// The subnet recorded for this lab is now used by something else.
    #[error(
        "the subnet {subnet} of lab {lab} overlaps {other} of this machine; end the lab with: kubeon lab down --lab {lab}"
    )]
    SubnetTaken {
        /// The lab.
        lab: String,
        /// Its subnet.
        subnet: String,
        /// The route or address in the way.
        other: String,
    },
    /// No usable cgroup hierarchy.
    #[error("cgroups: {0}")]
    Cgroup(&'static str),
    /// A file operation failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// Verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A file of the lab does not hold what it should.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: serde_json::Error,
    },
    /// The lab was made by a kubeon that keeps other state.
    #[error("{} has version {version}, this kubeon knows 1: end the lab with: kubeon lab down", .path.display())]
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
        /// Cause.
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
    /// Something that was waited for did not happen.
    #[error("{what}: waited {}{}", seconds(.waited), log_tail(.log))]
    Wait {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
        /// Last lines of the log that may explain it; may be empty.
        log: String,
    },
    /// A host ended while it was booting.
    #[error("{host} ended during boot ({status}){}", log_tail(.log))]
    Boot {
        /// The host.
        host: String,
        /// How its supervisor ended.
        status: String,
        /// Last lines of its console.
        log: String,
    },
    /// Some hosts failed; the others are up.
    #[error("{}", list("hosts failed", .0.iter().map(|(host, error)| format!("{host}: {}", chain(error)))))]
    Hosts(Vec<(String, Error)>),
    /// `down` could not remove everything.
    #[error("{}", list("lab could not be removed whole; still there", .0.iter().map(ToString::to_string)))]
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
