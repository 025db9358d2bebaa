//! What everything here works with, and how a program is run under it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::activity::Activity;
use crate::args::Settings;
use crate::board::Board;
use crate::family::{Child, Ending, Family, send};
use crate::masks::Masks;
use crate::meta::Meta;
use crate::sinks::{Output, Plain};
use crate::spans::Spans;
use crate::stop::Stop;
use crate::stream::{LINE, Lines, Pumps, Sink};
use crate::tail::Tail;
use crate::voice::Voice;

/// How long pipes are waited for that others hold after the work ended.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a program may take that only reads or writes files.
const HELPER: Duration = Duration::from_secs(60);

/// What is known of the work, told to whoever watches it.
pub type Boards = Arc<watch::Sender<Board>>;

/// What everything here works with.
pub struct Job {
    /// What was said from outside.
    pub settings: Settings,
    /// What is never shown.
    pub masks: Arc<Masks>,
    /// The runner's own words.
    pub voice: Voice,
    /// All processes.
    pub family: Family,
    /// Whether it was told to stop.
    pub stop: Stop,
    /// What is known of the work.
    pub board: Boards,
    /// What took how long.
    pub spans: Spans,
    /// When something was last said.
    pub activity: Activity,
    /// The last lines of standard output.
    pub stdout: Tail,
    /// The last lines of standard error.
    pub stderr: Tail,
    /// The meta cluster, when there is a way to it.
    pub meta: Option<Meta>,
}

/// A program could not be started, or went wrong before it did anything.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}: {source}{}", hint(.source))]
pub struct StartError {
    program: String,
    source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    let missing = error.kind() == io::ErrorKind::NotFound;
    if missing { " (it, or the interpreter that its first line names)" } else { "" }
}

impl StartError {
    /// The exit code for it: a shell's.
    #[must_use]
    pub fn code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// Why a program that only reads or writes files did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its output could not be read.
    #[error("cannot read what {0} says: {1}")]
    Read(String, #[source] io::Error),
    /// It ended otherwise than well.
    #[error("{0}: {1}")]
    Ended(String, Ending),
    /// It did not end.
    #[error("{0}: no end in time")]
    Late(String),
    /// It said more than it should.
    #[error("{0}: more than {1} bytes")]
    Large(String, u64),
}

/// A program at work.
pub struct Running {
    /// The process.
    pub child: Child,
    pumps: Pumps,
}

impl Running {
    /// Waits for its end. One that nobody saw end counts as failed. To be asked once.
    pub async fn ended(&mut self) -> Ending {
        (&mut self.child.ended).await.unwrap_or(Ending::Code(1))
    }

    /// Ends it: SIGTERM, and SIGKILL after the time of grace.
    pub async fn give_up(&mut self, grace: Duration) -> Ending {
        self.child.stdin = None;
        send(self.child.pid, Signal::TERM);
        if let Ok(ending) = timeout(grace, self.ended()).await {
            return ending;
        }
        send(self.child.pid, Signal::KILL);
        self.ended().await
    }

    /// After its end: takes the rest of what it said, and kills what it left running in its group.
    pub async fn settle(self) {
        self.pumps.finish(DRAIN).await;
        send(self.child.pid, Signal::KILL);
    }
}

impl Job {
    /// The runner's standard output, for a program.
    #[must_use]
    pub fn to_stdout(&self) -> Output {
        Output::stdout(self.masks.clone(), self.stdout.clone(), self.activity.clone(), self.spans.clone())
    }

    /// The runner's standard error, for a program.
    #[must_use]
    pub fn to_stderr(&self) -> Output {
        Output::stderr(self.masks.clone(), self.stderr.clone(), self.activity.clone(), self.spans.clone())
    }

    /// Starts a program. Its lines are cut at `longest`.
    ///
    /// # Errors
    /// When it is not there or cannot be run.
    pub fn start(
        &self,
        command: &mut Command,
        stdout: impl Sink,
        stderr: impl Sink,
        longest: usize,
    ) -> Result<Running, StartError> {
        let mut child = self.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let refused = |source| StartError { program: name(command), source };
        let mut pumps = Pumps::new().map_err(refused)?;
        if let Some(pipe) = child.stdout.take() {
            pumps.add(pipe, Lines::new(longest, self.masks.clone()), stdout).map_err(refused)?;
        }
        if let Some(pipe) = child.stderr.take() {
            pumps.add(pipe, Lines::new(longest, self.masks.clone()), stderr).map_err(refused)?;
        }
        Ok(Running { child, pumps })
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, StartError> {
        let child = self.family.start(command, true);
        let child = child.map_err(|source| StartError { program: name(command), source })?;
        // The signal may have come between the question and the start.
        if let Some(told) = self.stop.told() {
            send(child.pid, told.signal);
        }
        Ok(child)
    }

    /// Runs a program that only reads or writes files, and gives what it writes to standard output: at most `most`
    /// bytes.
    ///
    /// # Errors
    /// When it does not start, does not end well in time, or writes more.
    pub async fn helper(
        &self,
        command: &mut Command,
        input: Option<File>,
        most: u64,
    ) -> Result<Vec<u8>, HelperError> {
        let called = name(command);
        command.stdin(input.map_or_else(Stdio::null, Stdio::from));
        let started = self.family.start(command.stdout(Stdio::piped()).stderr(Stdio::piped()), false);
        let mut child = started.map_err(|source| StartError { program: called.clone(), source })?;
        let read = |error| HelperError::Read(called.clone(), error);
        let mut pumps = Pumps::new().map_err(read)?;
        if let Some(pipe) = child.stderr.take() {
            let lines = Lines::new(LINE, self.masks.clone());
            pumps.add(pipe, lines, Plain(self.to_stderr())).map_err(read)?;
        }
        let output = child.stdout.take().map(|pipe| take(pipe.into(), most));
        let pid = child.pid;
        let all = async move {
            let bytes = match output {
                Some(bytes) => bytes.await.unwrap_or_else(|_| Err(io::Error::other("the reader is gone"))),
                None => Ok(Vec::new()),
            };
            (bytes, child.ended.await.unwrap_or(Ending::Code(1)))
        };
        let (bytes, ending) = tokio::select! {
            ended = all => ended,
            () = self.stop.last_word(HELPER) => {
                send(pid, Signal::KILL);
                return Err(HelperError::Late(called));
            }
        };
        pumps.finish(DRAIN).await;
        let bytes = bytes.map_err(read)?;
        match ending {
            _ if bytes.len() as u64 > most => Err(HelperError::Large(called, most)),
            Ending::Code(0) => Ok(bytes),
            other => Err(HelperError::Ended(called, other)),
        }
    }
}

/// Reads a pipe to its end, or to one byte more than it may hold.
fn take(pipe: OwnedFd, most: u64) -> oneshot::Receiver<io::Result<Vec<u8>>> {
    let (tell, told) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let read = File::from(pipe).take(most + 1).read_to_end(&mut bytes);
        // The one that asked may have lost its patience.
        let _ = tell.send(read.map(|_| bytes));
    });
    told
}

/// A program with its first words, for people: `kubeon state export`.
fn name(command: &Command) -> String {
    let program = command.get_program();
    let file = std::path::Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    let words = words.take_while(|word| !word.starts_with('-')).take(2);
    words.fold(file.into_owned(), |all, word| format!("{all} {word}"))
}
