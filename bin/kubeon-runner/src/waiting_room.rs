//! Where the program `kubeon`, somewhere under a script, waits until its state is kept (`--hold-for`).
//!
//! ```text
//!   kubeon ─► sh hold NAME ──asks──► NAME ─► the runner saves
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

/// Longest line that is read: a name.
const LINE: usize = 4096;

/// Somebody who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The cluster whose state is to be kept.
    pub cluster: String,
    who: String,
}

/// Two pipes with names, and the program that knows them.
pub struct WaitingRoom {
    program: PathBuf,
    asks: Mutex<BufReader<Receiver>>,
    answers: Sender,
}

impl WaitingRoom {
    /// Opens one in a folder of its own.
    ///
    /// # Errors
    /// When files cannot be made there.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let [asks, answers, program] = ["asks", "answers", "hold"].map(|name| folder.join(name));
        for pipe in [&asks, &answers] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        // Whoever asks says who it is: an answer that nobody took any more is not the next one's.
        let text = r#"#!/bin/sh
here=${0%/*}
printf '%s %s\n' "$1" $$ >"$here/asks" || exit 1
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
        let asks = BufReader::new(both().open_receiver(&asks)?);
        Ok(Self { program, asks: Mutex::new(asks), answers: both().open_sender(&answers)? })
    }

    /// What the program runs, with the cluster's name.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Who waits next.
    pub async fn next(&self) -> Asked {
        let mut asks = self.asks.lock().await;
        let mut line = Vec::new();
        loop {
            let taken = match asks.fill_buf().await {
                Ok(bytes) if !bytes.is_empty() => bytes,
                // Both ends are held here: nothing else can end it.
                _ => std::future::pending().await,
            };
            let end = taken.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(taken.len(), |at| at + 1);
            line.extend_from_slice(&taken[..end.unwrap_or(count)]);
            asks.consume(count);
            line.truncate(LINE);
            if end.is_some() {
                let text = String::from_utf8_lossy(&line);
                let (cluster, who) = text.split_once(' ').unwrap_or((&text, ""));
                return Asked { cluster: cluster.to_owned(), who: who.to_owned() };
            }
        }
    }

    /// Tells whoever waits how it went.
    pub fn answer(&self, asked: &Asked, well: bool) {
        let word = if well { "ok" } else { "no" };
        // A pipe takes a line at once; whoever waits has a patience of its own.
        let _ = self.answers.try_write(format!("{word} {}\n", asked.who).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_waits_hears_how_it_went() {
        let folder = tempfile::tempdir().unwrap();
        let room = WaitingRoom::open(folder.path()).unwrap();
        for well in [true, false, true] {
            let mut hold = tokio::process::Command::new(room.program()).arg("demo").spawn().unwrap();
            let asked = room.next().await;
            assert_eq!(asked.cluster, "demo");
            let late = Asked { who: "1".into(), ..asked.clone() };
            room.answer(&late, !well);
            room.answer(&asked, well);
            assert_eq!(hold.wait().await.unwrap().success(), well);
        }
    }
}
