//! Programs that other people wrote, run so that none outlives us or runs for ever.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Lines of a failed program's last words that an error carries.
const LAST_WORDS: usize = 12;
/// How long programs that were told to end may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It could not be started or spoken to.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It did not end in time and was stopped.
    #[error("{program} was stopped: it ran for more than {seconds} s")]
    TimedOut {
        /// The program.
        program: String,
        /// The limit.
        seconds: u64,
    },
    /// It ended with an error.
    #[error("{program} failed ({status}): {words}")]
    Failed {
        /// The program and its first arguments.
        program: String,
        /// How it ended.
        status: String,
        /// Its last words.
        words: String,
    },
}

/// A program with a time limit that dies with the thread that started it.
///
/// `setpriv` asks the kernel to end `timeout` when this process is gone, even by SIGKILL, and `timeout` ends the
/// program and all its children. Where either is missing the program may outlive this process; the limit is kept all
/// the same, by a thread beside it.
pub(crate) struct Guarded {
    command: Command,
    name: String,
    limit: Duration,
    started: Instant,
}

impl Guarded {
    pub(crate) fn new(program: &str, limit: Duration) -> Self {
        let command = match (find("setpriv"), find("timeout")) {
            (Some(setpriv), Some(timeout)) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "TERM", "--"]).arg(timeout).args(["--kill-after", "10"]);
                command.arg(limit.as_secs().to_string()).arg(program);
                command
            }
            _ => Command::new(program),
        };
        Self::of(command, program, limit)
    }

    /// The program has a group of its own, so that its children can be ended with it.
    fn of(mut command: Command, program: &str, limit: Duration) -> Self {
        command.stdin(Stdio::null()).process_group(0);
        Self { command, name: program.to_owned(), limit, started: Instant::now() }
    }

    /// The command, to add arguments, variables and a folder.
    pub(crate) fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs it and gives its standard output.
    pub(crate) fn output(mut self) -> Result<String, ProcessError> {
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(|source| self.start(source))?;
        let output = within(self.limit, Pid::from_child(&child), || child.wait_with_output());
        let Output { status, stdout, stderr } = output.map_err(|source| self.start(source))?;
        if status.success() {
            return Ok(String::from_utf8_lossy(&stdout).into_owned());
        }
        let mut words = LastWords::default();
        String::from_utf8_lossy(&stderr).lines().for_each(|line| words.hear(line));
        Err(self.failed(status, &words))
    }

    /// Runs it and hands over each line of its standard error. Lines for which `progress` answers false are kept
    /// as possible last words.
    pub(crate) fn lines(mut self, mut progress: impl FnMut(&str) -> bool) -> Result<(), ProcessError> {
        self.command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(|source| self.start(source))?;
        let mut words = LastWords::default();
        let hear = |line: &str| {
            if !progress(line) {
                words.hear(line);
            }
        };
        let ended = within(self.limit, Pid::from_child(&child), || listen(child, hear));
        let status = ended.map_err(|source| self.start(source))?;
        if status.success() {
            return Ok(());
        }
        Err(self.failed(status, &words))
    }

    fn start(&self, source: io::Error) -> ProcessError {
        ProcessError::Start { program: self.name.clone(), source }
    }

    fn failed(&self, status: ExitStatus, words: &LastWords) -> ProcessError {
        let program = self.name.clone();
        // Nothing runs on after its limit but to end, in whatever way.
        if self.started.elapsed() >= self.limit {
            return ProcessError::TimedOut { program, seconds: self.limit.as_secs() };
        }
        ProcessError::Failed { program, status: status.to_string(), words: words.text() }
    }
}

/// Does `work`, which is over when the programs of the group are, and ends these at the limit.
fn within<T>(limit: Duration, group: Pid, work: impl FnOnce() -> T) -> T {
    let (over, news) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let is_running = |time| news.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            // The group may be gone in that moment.
            if is_running(limit) {
                let _ = kill_process_group(group, Signal::TERM);
                if is_running(FAREWELL) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
            }
        });
        let result = work();
        drop(over);
        result
    })
}

/// Hands over each line of a program's standard error and waits for its end.
fn listen(mut child: Child, mut hear: impl FnMut(&str)) -> io::Result<ExitStatus> {
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            hear(&line?);
        }
    }
    child.wait()
}

/// The end of what a program says, without repetitions and news of downloads.
#[derive(Default)]
struct LastWords(VecDeque<String>);

impl LastWords {
    fn hear(&mut self, line: &str) {
        if line.trim().is_empty()
            || line.starts_with("go: downloading ")
            || self.0.iter().any(|known| known == line)
        {
            return;
        }
        if self.0.len() == LAST_WORDS {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n").trim().to_owned()
    }
}

/// Where a program lies on PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_the_last_words_of_a_failure() {
        let mut guarded = Guarded::new("sh", Duration::from_secs(10));
        guarded.command().args(["-c", "echo no such thing >&2; exit 3"]);
        let error = guarded.output().unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains('3'), "{error}");
    }

    #[test]
    fn keeps_the_end_and_drops_repetitions() {
        let mut words = LastWords::default();
        words.hear("go: downloading k8s.io/api v0.36.3");
        (0..20).for_each(|number| words.hear(&number.to_string()));
        (0..20).for_each(|_| words.hear("connection refused"));
        assert!(words.text().starts_with("9\n10\n") && words.text().ends_with("19\nconnection refused"));
    }

    #[test]
    fn keeps_the_limit_where_timeout_is_missing() {
        let mut guarded = Guarded::of(Command::new("sh"), "sh", Duration::from_secs(1));
        guarded.command().args(["-c", "sleep 60 & sleep 60"]);
        let begin = Instant::now();
        let error = guarded.output().unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { seconds: 1, .. }), "{error}");
        // Its child, which holds the pipe open, was ended too.
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn stops_what_runs_too_long() {
        let mut guarded = Guarded::new("sleep", Duration::from_secs(1));
        guarded.command().arg("30");
        let error = guarded.lines(|_| false).unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { seconds: 1, .. }), "{error}");
    }
}
