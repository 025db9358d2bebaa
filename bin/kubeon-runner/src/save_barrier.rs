//! The barrier at which the program `kubeon`, started by a script, waits until its state is saved (`--hold-for`).
//!
//! ```text
//!   kubeon ─► sh hold NAME ──requests──► NAME ─► the runner saves
//!                  │ ◄──answers── ok, or no ◄──┘
//! ```

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};
use tokio::sync::Mutex;

/// The longest accepted line in bytes.
const LINE: usize = 4096;

/// A program that waits at the barrier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaveRequest {
    /// The cluster whose state must be saved.
    pub cluster: String,
    pid: String,
}

/// Two named pipes, and the shell script that uses them.
pub(crate) struct SaveBarrier {
    program: PathBuf,
    requests: Mutex<BufReader<Receiver>>,
    answers: Sender,
}

impl SaveBarrier {
    /// Creates the barrier in a folder.
    ///
    /// # Errors
    /// When its files cannot be created.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let [requests, answers, program] = ["requests", "answers", "hold"].map(|name| folder.join(name));
        for pipe in [&requests, &answers] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        // Requests and answers carry the process ID: an answer to a process that has ended must not release the next one.
        let text = r#"#!/bin/sh
here=${0%/*}
printf '%s %s\n' "$1" $$ >"$here/requests" || exit 1
while read -r answer; do
    case $answer in
    "ok $$") exit 0 ;;
    "no $$") exit 1 ;;
    esac
done <"$here/answers"
exit 1
"#;
        fs::write(&program, text)?;
        fs::set_permissions(&program, Permissions::from_mode(0o700))?;
        let both = || {
            let mut options = OpenOptions::new();
            options.read_write(true);
            options
        };
        let requests = BufReader::new(both().open_receiver(&requests)?);
        Ok(Self { program, requests: Mutex::new(requests), answers: both().open_sender(&answers)? })
    }

    /// The script that the program runs with the cluster's name as its argument.
    #[must_use]
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Waits for the next request.
    pub(crate) async fn next_request(&self) -> SaveRequest {
        let mut requests = self.requests.lock().await;
        let mut line = Vec::new();
        loop {
            let taken = match requests.fill_buf().await {
                Ok(bytes) if !bytes.is_empty() => bytes,
                // The runner holds both ends of the pipe, so it cannot end.
                _ => std::future::pending().await,
            };
            let end = taken.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(taken.len(), |at| at + 1);
            line.extend_from_slice(&taken[..end.unwrap_or(count)]);
            requests.consume(count);
            line.truncate(LINE);
            if end.is_some() {
                let text = String::from_utf8_lossy(&line);
                let (cluster, pid) = text.split_once(' ').unwrap_or((&text, ""));
                return SaveRequest { cluster: cluster.to_owned(), pid: pid.to_owned() };
            }
        }
    }

    /// Answers a request: whether the state was saved.
    pub(crate) fn answer(&self, request: &SaveRequest, saved: bool) {
        let word = if saved { "ok" } else { "no" };
        // A pipe accepts a line at once; the waiting program has its own timeout.
        let _ = self.answers.try_write(format!("{word} {}\n", request.pid).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_waiting_program_receives_the_answer() {
        let folder = tempfile::tempdir().unwrap();
        let barrier = SaveBarrier::open(folder.path()).unwrap();
        for saved in [true, false, true] {
            let mut hold = tokio::process::Command::new(barrier.program()).arg("demo").spawn().unwrap();
            let request = barrier.next_request().await;
            assert_eq!(request.cluster, "demo");
            let late = SaveRequest { pid: "1".into(), ..request.clone() };
            barrier.answer(&late, !saved);
            barrier.answer(&request, saved);
            assert_eq!(hold.wait().await.unwrap().success(), saved);
        }
    }
}
