//! The tasks of process 1: reaps every process that ends, and forwards signals to the work.
//!
//! ```text
//!   SIGCHLD ─► reap: wait for any ─┬─ a child of the runner ─► its `Child::ended`
//!                                  └─ an orphan ─► no zombie is left
//! ```
//!
//! A lock prevents starting and reaping at the same time, so that every child is registered before it is
//! reaped.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl ProcessEnd {
    /// The exit code as a shell reports it.
    #[must_use]
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(9) => f.write_str("killed by signal 9 (SIGKILL; out of memory?)"),
            Self::Signal(number) => write!(f, "ended by signal {number}"),
        }
    }
}

/// A registered child.
#[derive(Debug)]
struct RegisteredChild {
    ended: oneshot::Sender<ProcessEnd>,
    receives_signals: bool,
}

type Registry = HashMap<Pid, RegisteredChild>;

/// Starts child processes and reaps every process that ends.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessReaper {
    children: Arc<Mutex<Registry>>,
}

/// A child process in its own process group.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its process ID, which is also that of its group.
    pub pid: Pid,
    /// Receives the result once, when the process was reaped.
    pub ended: oneshot::Receiver<ProcessEnd>,
    /// Its standard input, when that is a pipe.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, when that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, when that is a pipe.
    pub stderr: Option<ChildStderr>,
}

impl ProcessReaper {
    /// Makes this process the parent of every orphan below it, and starts to reap.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) fn install() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let this = Self::default();
        let mut ended = signal(SignalKind::child())?;
        let reaper = this.clone();
        tokio::spawn(async move {
            loop {
                reaper.reap();
                if ended.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(this)
    }

    fn children(&self) -> MutexGuard<'_, Registry> {
        self.children.lock()
    }

    fn reap(&self) {
        let mut children = self.children();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let child = children.remove(&pid);
            // The send fails if the receiver has timed out.
            let _ = child.map(|child| child.ended.send(process_end(status)));
        }
    }

    /// Starts a program in its own process group. [`Self::signal`] reaches it only if `receives_signals` is
    /// set.
    ///
    /// # Errors
    /// When the program is missing or cannot be executed.
    #[allow(clippy::zombie_processes, reason = "the reaper waits for it")]
    pub(crate) fn spawn(&self, command: &mut Command, receives_signals: bool) -> io::Result<Child> {
        let mut children = self.children();
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without an ID"))?;
        let (sender, ended) = oneshot::channel();
        children.insert(pid, RegisteredChild { ended: sender, receives_signals });
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Child { pid, ended, stdin, stdout, stderr })
    }

    /// Sends a signal to the process group of every child that receives signals and is alive.
    pub(crate) fn signal(&self, signal: Signal) {
        for (pid, _) in self.children().iter().filter(|(_, child)| child.receives_signals) {
            send(*pid, signal);
        }
    }
}

/// Sends a signal to a process group. A group that has already ended is not an error.
pub(crate) fn send(group: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(group, signal);
}

fn process_end(status: WaitStatus) -> ProcessEnd {
    let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(number)) => ProcessEnd::Signal(small(number)),
        (code, None) => ProcessEnd::Code(small(code.unwrap_or(1))),
    }
}
