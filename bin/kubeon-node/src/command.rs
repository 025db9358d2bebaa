//! Runs a program of the host to its end: bounded in time and output, in a group of its own.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use kubeon_wire::{Category, StepFailure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::failure::{failed, of, plain};

/// Where programs are looked for: a login without a shell often lacks the `sbin` folders. What the host lacks may be
/// among the bundle's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/kubeon/tools";
/// More output than this is cut.
const OUTPUT_LIMIT: u64 = 8 << 20;
/// How long a program that ended may keep its output open through a child of its own.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// A program that ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Whether it ended with code 0.
    pub success: bool,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Finished {
    /// The last line it said about a failure, or that it said nothing.
    #[must_use]
    pub fn complaint(&self) -> String {
        let said = |text: &str| text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
        said(&self.stderr).or_else(|| said(&self.stdout)).unwrap_or_else(|| "it said nothing".to_owned())
    }
}

/// Why a program did not run to its end.
#[derive(Debug)]
pub enum NotRun {
    /// The host does not have it.
    Missing(String),
    /// It was killed at the deadline.
    TooLong(String),
    /// It could not be started.
    Start(String, io::Error),
}

impl From<NotRun> for StepFailure {
    fn from(error: NotRun) -> Self {
        match error {
            NotRun::Missing(program) => {
                of(Category::Unsupported, format!("the host has no program {program}"))
            }
            NotRun::TooLong(program) => of(Category::Timeout, format!("{program} did not end in time")),
            NotRun::Start(program, error) => failed(format!("cannot start {program}: {}", plain(&error))),
        }
    }
}

/// Runs a program with `input` on its standard input until `deadline`.
///
/// # Errors
/// [`NotRun`]; a program that ended with another code than 0 is no error.
pub fn run(
    program: &str,
    arguments: &[&str],
    input: Option<String>,
    deadline: Instant,
) -> Result<Finished, NotRun> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH).env("LC_ALL", "C.UTF-8").env("SYSTEMD_COLORS", "0");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NotRun::Missing(program.to_owned()),
        _ => NotRun::Start(program.to_owned(), error),
    })?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        // A program that does not read all of its input says so by its exit code.
        thread::spawn(move || drop(pipe.write_all(input.as_bytes())));
    }
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let ended = wait(&mut child, deadline);
    if !matches!(ended, Ok(Some(_))) {
        kill_group(&mut child);
    }
    let said = |pipe: Option<Receiver<String>>| {
        pipe.and_then(|text| text.recv_timeout(OUTPUT_GRACE).ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (said(stdout), said(stderr));
    match ended {
        Ok(Some(success)) => Ok(Finished { success, stdout, stderr }),
        Ok(None) => Err(NotRun::TooLong(program.to_owned())),
        Err(error) => Err(NotRun::Start(program.to_owned(), error)),
    }
}

fn collect(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth telling.
        drop(pipe.take(OUTPUT_LIMIT).read_to_end(&mut bytes));
        drop(sender.send(String::from_utf8_lossy(&bytes).into_owned()));
    });
    receiver
}

/// Whether it ended well; `None` when the deadline came first.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<bool>> {
    let watch = Pid::from_raw(child.id().cast_signed()).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        match &watch {
            Some(Ok(fd)) => {
                let pause = Timespec::try_from(left.min(Duration::from_secs(1))).unwrap_or_default();
                match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&pause)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            // Kernels before 5.3 have no process descriptors.
            _ => thread::sleep(left.min(Duration::from_millis(5))),
        }
    }
}

fn kill_group(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // The group may be gone already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_ms(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    #[test]
    fn tells_output_and_code() {
        let done = run("sh", &["-c", "cat; echo bad >&2; exit 3"], Some("in".into()), in_ms(9000)).unwrap();
        assert!(!done.success);
        assert_eq!((done.stdout.as_str(), done.complaint().as_str()), ("in", "bad"));
    }

    #[test]
    fn ends_a_program_and_its_children_at_the_deadline() {
        let start = Instant::now();
        let late = run("sh", &["-c", "sleep 60 & sleep 60"], None, in_ms(100)).unwrap_err();
        assert!(matches!(late, NotRun::TooLong(_)), "{late:?}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn says_which_program_is_missing() {
        let failure = StepFailure::from(run("no-such-program", &[], None, in_ms(900)).unwrap_err());
        assert_eq!(failure.category, Category::Unsupported);
        assert!(failure.cause.contains("no-such-program"), "{failure}");
    }
}
