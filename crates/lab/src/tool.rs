//! Programs of the machine that a lab uses: running them with a limit of time, and naming the missing ones.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// Limit for programs that only talk to the kernel.
pub(crate) const QUICK: Duration = Duration::from_secs(20);

/// Programs and the Debian packages that hold them.
const NEEDED: &[(&str, &str)] = &[
    ("bash", "bash"),
    ("cp", "coreutils"),
    ("find", "findutils"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("pivot_root", "util-linux"),
    ("setpriv", "util-linux"),
    ("setsid", "util-linux"),
    ("ssh", "openssh-client"),
    ("ssh-keygen", "openssh-client"),
    ("umount", "mount"),
    ("unshare", "util-linux"),
];

/// Where programs of root are, whatever PATH the caller came with.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Checks that the programs are there; `extra` for those that only some operations need.
pub(crate) fn check(extra: &[(&str, &str)]) -> Result<()> {
    let absent = |program: &str| !env::split_paths(PATH).any(|dir| dir.join(program).exists());
    let missing: Vec<_> = NEEDED.iter().chain(extra).filter(|(program, _)| absent(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| (*package).to_owned()).collect();
    packages.sort();
    packages.dedup();
    let programs = missing.iter().map(|(program, _)| (*program).to_owned()).collect();
    Err(Error::MissingPrograms { programs, packages })
}

/// One run of a program. Messages are in English, input is empty unless given.
pub(crate) struct Tool {
    command: Command,
    line: String,
    input: Option<String>,
    limit: Duration,
}

impl Tool {
    /// A program by name.
    pub(crate) fn new(program: &str) -> Self {
        let mut command = Command::new(program);
        command.env("PATH", PATH).env("LC_ALL", "C");
        Self { command, line: program.to_owned(), input: None, limit: QUICK }
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        for arg in args {
            self.line.push(' ');
            self.line.push_str(&arg.as_ref().to_string_lossy());
            self.command.arg(arg);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.input = Some(text.into());
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts it and waits for its first process only: what that leaves running belongs to nobody and writes to `log`.
    pub(crate) fn detach(mut self, log: &Path) -> Result<()> {
        let file = File::options().create(true).append(true).open(log).map_err(Error::file("open", log))?;
        let errors = file.try_clone().map_err(Error::file("open", log))?;
        let start = |source| Error::Start { program: self.line.clone(), source };
        let status = self.command.stdin(Stdio::null()).stdout(file).stderr(errors).status().map_err(start)?;
        if status.success() {
            return Ok(());
        }
        let stderr = fs::read_to_string(log).unwrap_or_default();
        Err(Error::Program { command: self.line, status: status.to_string(), stderr })
    }

    /// Runs it and returns what it wrote to standard output.
    pub(crate) fn run(self) -> Result<String> {
        self.run_watched(|_| ())
    }

    /// Runs it, hands each line of output to `watch` as it comes, and returns the whole output.
    pub(crate) fn run_watched(mut self, watch: impl Fn(&str)) -> Result<String> {
        let line = self.line;
        let start = |source| Error::Start { program: line.clone(), source };
        let stdin = if self.input.is_some() { Stdio::piped() } else { Stdio::null() };
        let piped = self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(start)?;
        if let (Some(mut pipe), Some(text)) = (child.stdin.take(), self.input) {
            // A program that ends without reading its input tells why by its status.
            let _ = pipe.write_all(text.as_bytes());
        }
        let (send, receive) = mpsc::channel();
        read_lines(child.stdout.take(), Stream::Out, send.clone());
        read_lines(child.stderr.take(), Stream::Err, send);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let begin = Instant::now();
        loop {
            match receive.recv_timeout(self.limit.saturating_sub(begin.elapsed())) {
                Ok((Stream::Out, text)) => {
                    watch(text.trim_end());
                    stdout.push_str(&text);
                }
                Ok((Stream::Err, text)) => stderr.push_str(&text),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(give_up(child, line, self.limit)),
            }
        }
        let status = child.wait().map_err(start)?;
        if status.success() {
            return Ok(stdout);
        }
        let stderr = if stderr.trim().is_empty() { stdout } else { stderr };
        Err(Error::Program { command: line, status: status.to_string(), stderr })
    }
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

fn give_up(mut child: Child, command: String, limit: Duration) -> Error {
    // Either may fail only if the program has ended meanwhile; the error to tell is the time-out.
    let _ = child.kill();
    let _ = child.wait();
    Error::Timeout { command, limit }
}

/// Sends every line until the pipe is closed.
fn read_lines(pipe: Option<impl Read + Send + 'static>, stream: Stream, send: Sender<(Stream, String)>) {
    let Some(pipe) = pipe else { return };
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut line) {
            if send.send((stream, String::from_utf8_lossy(&line).into_owned())).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_status_and_words_of_a_program_that_fails() {
        let error =
            Tool::new("sh").args(["-c", "echo no such thing >&2; exit 3"]).run().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such thing"), "{error}");
    }

    #[test]
    fn gives_up_on_a_program_that_does_not_end() {
        let result = Tool::new("sleep").args(["60"]).limit(Duration::from_millis(50)).run();
        assert!(matches!(result, Err(Error::Timeout { .. })));
    }

    #[test]
    fn passes_input_and_more_output_than_a_pipe_holds() {
        let text = "line\n".repeat(100_000);
        assert_eq!(Tool::new("cat").input("x").run().unwrap(), "x");
        let out = Tool::new("sh").args(["-c", "yes line | head -n 100000"]).run().unwrap();
        assert_eq!(out, text);
    }

    #[test]
    fn names_the_packages_of_missing_programs() {
        let error = check(&[("no-such-program", "its-package")]).unwrap_err().to_string();
        assert!(
            error.contains("no-such-program") && error.contains("apt-get install its-package"),
            "{error}"
        );
    }
}
