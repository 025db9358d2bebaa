//! What process 1 owes to the others: every process that ends is waited for, every signal reaches the work.
//!
//! ```text
//!   SIGCHLD ─► reap: wait for any ─┬─ one that was started here ─► its `Child::ended`
//!                                  └─ an orphan ─► nothing is left of it
//! ```
//!
//! Starting and reaping exclude each other, so that a child is known before its end can be seen.

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
pub enum Ending {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

impl Ending {
    /// The exit code that stands for it: a shell's.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(number),
        }
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(9) => f.write_str("killed by signal 9 (SIGKILL; out of memory?)"),
            Self::Signal(number) => write!(f, "ended by signal {number}"),
        }
    }
}

/// Who waits for a process.
#[derive(Debug)]
struct Listener {
    tell: oneshot::Sender<Ending>,
    hears: bool,
}

type Waiting = HashMap<Pid, Listener>;

/// All processes that were started here.
#[derive(Debug, Clone, Default)]
pub struct Family {
    waiting: Arc<Mutex<Waiting>>,
}

/// A process of its own group.
#[derive(Debug)]
pub struct Child {
    /// Its number, and its group's.
    pub pid: Pid,
    /// Told once, when it was reaped.
    pub ended: oneshot::Receiver<Ending>,
    /// Its standard input, where it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, where it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, where it is a pipe.
    pub stderr: Option<ChildStderr>,
}

impl Family {
    /// Takes the duty: from now on this process is the parent of every orphan below it, and waits for each.
    ///
    /// # Errors
    /// When the kernel does not let it.
    pub fn adopt() -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let family = Self::default();
        let mut ended = signal(SignalKind::child())?;
        let reaper = family.clone();
        tokio::spawn(async move {
            loop {
                reaper.reap();
                if ended.recv().await.is_none() {
                    return;
                }
            }
        });
        Ok(family)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    fn reap(&self) {
        let mut waiting = self.waiting();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let listener = waiting.remove(&pid);
            // Nobody listens for one that was given up.
            let _ = listener.map(|listener| listener.tell.send(ending(status)));
        }
    }

    /// Starts a program in a process group of its own. Signals are sent on to it when it `hears`.
    ///
    /// # Errors
    /// When it is not there or cannot be run.
    #[allow(clippy::zombie_processes, reason = "whatever ends is reaped, this one too")]
    pub fn start(&self, command: &mut Command, hears: bool) -> io::Result<Child> {
        let mut waiting = self.waiting();
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        let (tell, ended) = oneshot::channel();
        waiting.insert(pid, Listener { tell, hears });
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Child { pid, ended, stdin, stdout, stderr })
    }

    /// Sends a signal to every group that hears and whose first process lives.
    pub fn signal(&self, signal: Signal) {
        for (pid, _) in self.waiting().iter().filter(|(_, listener)| listener.hears) {
            send(*pid, signal);
        }
    }
}

/// Sends a signal to a process group. That none of it lives any more is no error.
pub fn send(group: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(group, signal);
}

fn ending(status: WaitStatus) -> Ending {
    let small = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match (status.exit_status(), status.terminating_signal()) {
        (_, Some(number)) => Ending::Signal(small(number)),
        (code, None) => Ending::Code(small(code.unwrap_or(1))),
    }
}
