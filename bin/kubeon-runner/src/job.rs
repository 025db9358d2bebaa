//! The context of a run, and how the runner starts programs.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::activity::Activity;
use crate::args::RunnerSettings;
use crate::log::RunnerLog;
use crate::meta::MetaCluster;
use crate::progress_view::SharedProgress;
use crate::reaper::{Child, ProcessEnd, ProcessReaper, send};
use crate::redactor::Redactor;
use crate::shutdown::Shutdown;
use crate::sinks::{Output, PlainLines};
use crate::spans::RunSpans;
use crate::stream::{LINE, Lines, Pumps, Sink};
use crate::tail::Tail;

/// How long to wait after the end of the work for pipes that other processes still hold open.
const DRAIN: Duration = Duration::from_secs(1);
/// The longest run of a tool: a program that only reads or writes files.
const TOOL_TIMEOUT: Duration = Duration::from_secs(60);

/// The context that every part of a run uses.
pub(crate) struct JobContext {
    /// Flags and environment.
    pub settings: RunnerSettings,
    /// Redacts secrets.
    pub redactor: Arc<Redactor>,
    /// The runner's own messages.
    pub log: RunnerLog,
    /// Starts processes and reaps them.
    pub reaper: ProcessReaper,
    /// Whether a shutdown was requested.
    pub shutdown: Shutdown,
    /// The progress of the work.
    pub view: SharedProgress,
    /// The trace of the run.
    pub spans: RunSpans,
    /// The time of the last line of output.
    pub activity: Activity,
    /// The last lines of standard output.
    pub stdout: Tail,
    /// The last lines of standard error.
    pub stderr: Tail,
    /// The meta cluster, when it can be reached.
    pub meta: Option<MetaCluster>,
}

/// A program could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {program}: {source}{}", hint(.source))]
pub(crate) struct StartError {
    program: String,
    source: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    let missing = error.kind() == io::ErrorKind::NotFound;
    if missing { " (it, or the interpreter that its first line names)" } else { "" }
}

impl StartError {
    /// The exit code that a shell returns for this error.
    #[must_use]
    pub(crate) fn code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

/// The reason why a tool, a program that only reads or writes files, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ToolError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Its output could not be read.
    #[error("cannot read the output of {0}: {1}")]
    Read(String, #[source] io::Error),
    /// It failed.
    #[error("{0}: {1}")]
    Ended(String, ProcessEnd),
    /// It did not finish in time.
    #[error("{0}: did not finish in time")]
    Late(String),
    /// It wrote more than the limit.
    #[error("{0}: more than {1} bytes")]
    Large(String, u64),
}

/// A running program.
pub(crate) struct RunningProgram {
    /// The process.
    pub child: Child,
    pumps: Pumps,
}

impl RunningProgram {
    /// Waits for its end. A program whose end was not observed counts as failed. Call it once.
    pub(crate) async fn ended(&mut self) -> ProcessEnd {
        (&mut self.child.ended).await.unwrap_or(ProcessEnd::Code(1))
    }

    /// Ends it: SIGTERM, and SIGKILL after the grace period.
    pub(crate) async fn terminate(&mut self, grace: Duration) -> ProcessEnd {
        self.child.stdin = None;
        send(self.child.pid, Signal::TERM);
        if let Ok(ending) = timeout(grace, self.ended()).await {
            return ending;
        }
        send(self.child.pid, Signal::KILL);
        self.ended().await
    }

    /// After its end: reads the rest of its output, and kills what still runs in its process group.
    pub(crate) async fn clean_up(self) {
        self.pumps.finish(DRAIN).await;
        send(self.child.pid, Signal::KILL);
    }
}

impl JobContext {
    /// The runner's standard output, for the lines of a program.
    #[must_use]
    pub(crate) fn to_stdout(&self) -> Output {
        Output::stdout(self.log.clone(), self.stdout.clone(), self.activity.clone(), self.spans.clone())
    }

    /// The runner's standard error, for the lines of a program.
    #[must_use]
    pub(crate) fn to_stderr(&self) -> Output {
        Output::stderr(self.log.clone(), self.stderr.clone(), self.activity.clone(), self.spans.clone())
    }

    /// Starts a program. Lines longer than `longest` bytes are split.
    ///
    /// # Errors
    /// When the program is missing or cannot be executed.
    pub(crate) fn start(
        &self,
        command: &mut Command,
        stdout: impl Sink,
        stderr: impl Sink,
        longest: usize,
    ) -> Result<RunningProgram, StartError> {
        let mut child = self.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let start_error = |source| StartError { program: name(command), source };
        let mut pumps = Pumps::new().map_err(start_error)?;
        if let Some(pipe) = child.stdout.take() {
            pumps.add(pipe, Lines::new(longest, self.redactor.clone()), stdout).map_err(start_error)?;
        }
        if let Some(pipe) = child.stderr.take() {
            pumps.add(pipe, Lines::new(longest, self.redactor.clone()), stderr).map_err(start_error)?;
        }
        Ok(RunningProgram { child, pumps })
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, StartError> {
        let child = self.reaper.spawn(command, true);
        let child = child.map_err(|source| StartError { program: name(command), source })?;
        // The signal may have arrived between the last check and the start.
        if let Some(request) = self.shutdown.request() {
            send(child.pid, request.signal);
        }
        Ok(child)
    }

    /// Runs a tool, a program that only reads or writes files, and returns its standard output: at most `most` bytes.
    ///
    /// # Errors
    /// When it does not start, fails, does not end in time, or writes more.
    pub(crate) async fn run_tool(
        &self,
        command: &mut Command,
        input: Option<File>,
        most: u64,
    ) -> Result<Vec<u8>, ToolError> {
        let display_name = name(command);
        command.stdin(input.map_or_else(Stdio::null, Stdio::from));
        let started = self.reaper.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()), false);
        let mut child = started.map_err(|source| StartError { program: display_name.clone(), source })?;
        let read = |error| ToolError::Read(display_name.clone(), error);
        let mut pumps = Pumps::new().map_err(read)?;
        if let Some(pipe) = child.stderr.take() {
            let lines = Lines::new(LINE, self.redactor.clone());
            pumps.add(pipe, lines, PlainLines(self.to_stderr())).map_err(read)?;
        }
        let output = child.stdout.take().map(|pipe| read_limited(pipe.into(), most));
        let pid = child.pid;
        let all = async move {
            let bytes = match output {
                Some(bytes) => {
                    bytes.await.unwrap_or_else(|_| Err(io::Error::other("the reader ended early")))
                }
                None => Ok(Vec::new()),
            };
            (bytes, child.ended.await.unwrap_or(ProcessEnd::Code(1)))
        };
        let (bytes, ending) = tokio::select! {
            ended = all => ended,
            () = self.shutdown.deadline(TOOL_TIMEOUT) => {
                send(pid, Signal::KILL);
                return Err(ToolError::Late(display_name));
            }
        };
        pumps.finish(DRAIN).await;
        let bytes = bytes.map_err(read)?;
        match ending {
            _ if bytes.len() as u64 > most => Err(ToolError::Large(display_name, most)),
            ProcessEnd::Code(0) => Ok(bytes),
            other => Err(ToolError::Ended(display_name, other)),
        }
    }
}

/// Reads a pipe to its end, at most one byte more than the limit.
fn read_limited(pipe: OwnedFd, most: u64) -> oneshot::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        let read = File::from(pipe).take(most + 1).read_to_end(&mut bytes);
        // The send fails if the receiver has timed out.
        let _ = sender.send(read.map(|_| bytes));
    });
    receiver
}

/// A program with its first arguments, for messages: `kubeon state export`.
fn name(command: &Command) -> String {
    let program = command.get_program();
    let file = std::path::Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let words = command.get_args().map(|word| word.to_string_lossy());
    let words = words.take_while(|word| !word.starts_with('-')).take(2);
    words.fold(file.into_owned(), |all, word| format!("{all} {word}"))
}
