//! A program that runs in the background.

use std::fs::File;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

/// A running program with its output in a file. It keeps running when this value is dropped.
#[derive(Debug)]
pub struct BackgroundProgram {
    child: Child,
}

impl BackgroundProgram {
    /// Starts the command with an empty standard input. Both outputs go to `log`.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(mut command: Command, log: File) -> io::Result<Self> {
        let stderr = log.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(log).stderr(stderr).spawn()?;
        Ok(Self { child })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit code or the signal; `None` while the program runs.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn exit_status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Kills the program itself with SIGKILL and waits until the kernel has ended it.
    pub fn kill(&mut self) {
        // Both fail only when the program has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }

    /// Waits for the end in a thread, so that the program leaves no zombie while this process runs.
    pub fn reap(mut self) {
        thread::spawn(move || drop(self.child.wait()));
    }
}
