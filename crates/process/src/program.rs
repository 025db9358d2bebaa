//! One run of a program.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::ProgramError;
use crate::foreground::{ForegroundProgram, ProgramEnd, ProgramEvents, ProgramStopper};
use crate::output::{OutputPipe, OutputTail, ProgramOutput};

/// Time between SIGTERM and SIGKILL for programs that die with this process.
const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// How long a program whose file is open for writing is tried again, and the pause after each attempt.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A program to run once. Its standard input is empty unless [`ProgramRun::input`] sets it.
#[derive(Debug)]
pub struct ProgramRun {
    command: Command,
    name: String,
    limit: Duration,
    grace_period: Duration,
    own_group: bool,
    input: Option<Vec<u8>>,
    log: Option<File>,
    inherits_stderr: bool,
    noise: Option<&'static str>,
    events: ProgramEvents,
}

impl ProgramRun {
    /// A program in a process group of its own. At the limit the whole group gets SIGKILL.
    pub fn new(program: impl AsRef<OsStr>, limit: Duration) -> Self {
        let program = program.as_ref();
        Self::of(Command::new(program), program, limit, Duration::ZERO)
    }

    /// A program that also ends when this process does, even by SIGKILL.
    ///
    /// `setpriv` asks the kernel to end `timeout` when the thread that called [`ProgramRun::run`] ends, and `timeout` ends the
    /// program and its children. When either is missing, the program may outlive this process; the limit still applies. At
    /// the limit the group gets SIGTERM, and SIGKILL 10 s later.
    pub fn dying_with_parent(program: impl AsRef<OsStr>, limit: Duration) -> Self {
        let program = program.as_ref();
        let command = match (find_on_path("setpriv"), find_on_path("timeout")) {
            (Some(_), Some(timeout)) => {
                let mut command = die_with_parent("TERM", timeout);
                // This process enforces the limit. The later limit of `timeout` must not race with it.
                let later = limit + GRACE_PERIOD;
                command.args(["--kill-after", "10"]).arg(later.as_secs_f64().to_string()).arg(program);
                command
            }
            _ => Command::new(program),
        };
        Self::of(command, program, limit, GRACE_PERIOD)
    }

    fn of(command: Command, program: &OsStr, limit: Duration, grace_period: Duration) -> Self {
        let name = program.to_string_lossy().into_owned();
        Self {
            command,
            name,
            limit,
            grace_period,
            own_group: true,
            input: None,
            log: None,
            inherits_stderr: false,
            noise: None,
            events: ProgramEvents::new(),
        }
    }

    /// Runs the program in the process group of this process, so that Ctrl-C of the terminal reaches it. At the limit only the
    /// program itself is killed.
    #[must_use]
    pub fn in_our_group(mut self) -> Self {
        self.own_group = false;
        self
    }

    /// Sets the standard input.
    #[must_use]
    pub fn input(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.input = Some(text.into());
        self
    }

    /// Writes both outputs to `log`. [`ProgramRun::run`] then returns when the program itself ends: children that
    /// still run keep writing to it.
    #[must_use]
    pub fn output_to(mut self, log: File) -> Self {
        self.log = Some(log);
        self
    }

    /// Discards standard output, and lets the program write to the standard error of this process.
    #[must_use]
    pub fn inherit_stderr(mut self) -> Self {
        self.inherits_stderr = true;
        self
    }

    /// Omits lines that begin with `prefix` from errors.
    #[must_use]
    pub fn without_noise(mut self, prefix: &'static str) -> Self {
        self.noise = Some(prefix);
        self
    }

    /// Changes the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// A handle that stops the run from another thread.
    #[must_use]
    pub fn stopper(&self) -> ProgramStopper {
        self.events.stopper()
    }

    /// The command, to add arguments, environment variables and a working directory.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Runs the program to its end. An exit code other than 0 is not an error.
    ///
    /// # Errors
    /// When the program cannot be started, does not end in time, or is stopped.
    pub fn run(self) -> Result<ProgramOutput, ProgramError> {
        self.run_with(|_, _| ())
    }

    /// Runs the program and calls `on_line` for each line as it arrives, with its line end.
    ///
    /// # Errors
    /// When the program cannot be started, does not end in time, or is stopped.
    pub fn run_with(
        mut self,
        mut on_line: impl FnMut(OutputPipe, &str),
    ) -> Result<ProgramOutput, ProgramError> {
        self.command.stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() });
        let start = |source| ProgramError::start(&self.name, source);
        let (stdout, stderr) = match self.log.take() {
            Some(log) => (log.try_clone().map_err(start)?.into(), log.into()),
            None if self.inherits_stderr => (Stdio::null(), Stdio::inherit()),
            None => (Stdio::piped(), Stdio::piped()),
        };
        self.command.stdout(stdout).stderr(stderr);
        if self.own_group {
            self.command.process_group(0);
        }
        let begin = Instant::now();
        let child = match spawn(&mut self.command, self.limit, &self.events).map_err(start)? {
            Some(child) => child,
            None => return Err(ProgramError::Stopped { program: self.name }),
        };
        let mut running = ForegroundProgram::new(child, self.own_group, self.input, self.events);
        match running.follow(self.limit.saturating_sub(begin.elapsed()), &mut on_line) {
            Ok(ProgramEnd::Exited(output)) => Ok(output),
            Ok(ProgramEnd::Limit) => {
                running.stop(self.grace_period);
                Err(ProgramError::Timeout { program: self.name, limit: self.limit })
            }
            Ok(ProgramEnd::Stopped) => {
                running.stop(self.grace_period);
                Err(ProgramError::Stopped { program: self.name })
            }
            Err(source) => Err(ProgramError::start(&self.name, source)),
        }
    }

    /// Runs the program and returns its standard output.
    ///
    /// # Errors
    /// The same as [`ProgramRun::run`], and when the exit code is not 0.
    pub fn stdout(self) -> Result<String, ProgramError> {
        let (program, noise) = (self.name.clone(), self.noise);
        let output = self.run()?;
        if output.success() {
            return Ok(output.stdout);
        }
        let stderr_tail =
            output.stderr.lines().filter(|line| !is_noise(noise, line)).collect::<OutputTail>().text();
        Err(ProgramError::Failed { program, status: output.status.to_string(), stderr_tail })
    }

    /// Runs the program and calls `on_line` for each line of its standard error. An error contains the last lines for which
    /// `on_line` returned false.
    ///
    /// # Errors
    /// The same as [`ProgramRun::stdout`].
    pub fn stderr_lines(self, mut on_line: impl FnMut(&str) -> bool) -> Result<(), ProgramError> {
        let (program, noise) = (self.name.clone(), self.noise);
        let mut tail = OutputTail::default();
        let output = self.run_with(|pipe, line| {
            let line = line.trim_end();
            if pipe == OutputPipe::Stderr && !on_line(line) && !is_noise(noise, line) {
                tail.push(line);
            }
        })?;
        if output.success() {
            return Ok(());
        }
        Err(ProgramError::Failed { program, status: output.status.to_string(), stderr_tail: tail.text() })
    }
}

/// Starts a program; `None` when it was stopped before. A file that this process has just written may still be open for writing in
/// another program that it starts at the same time: between fork and exec that has all its open files.
fn spawn(command: &mut Command, limit: Duration, events: &ProgramEvents) -> io::Result<Option<Child>> {
    let end = Instant::now() + limit.min(BUSY_LIMIT);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                if events.is_stopped_within(BUSY_PAUSE) {
                    return Ok(None);
                }
            }
            result => return result.map(Some),
        }
    }
}

fn is_noise(noise: Option<&str>, line: &str) -> bool {
    noise.is_some_and(|prefix| line.starts_with(prefix))
}

/// A command that runs `program` through `setpriv`: the kernel sends it the signal when the thread that starts it ends.
pub fn die_with_parent(signal: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", signal, "--"]).arg(program);
    command
}

/// The first executable file of this name in the folders of `path`, which has the form of `PATH`.
#[must_use]
pub fn find_program(program: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(program)).find(|file| is_executable(file))
}

/// The same in the folders of this process's `PATH`.
#[must_use]
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let path: OsString = std::env::var_os("PATH")?;
    find_program(program, &path)
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
