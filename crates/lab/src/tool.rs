//! Programs of the machine that a lab uses: running them with a limit of time, and naming the missing ones.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::Duration,
};

use kubeon_process::{OutputPipe, ProgramError, ProgramRun, find_program};

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
    let absent = |program: &str| find_program(program, PATH.as_ref()).is_none();
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
///
/// It stays in the process group of this program, so that Ctrl-C of the terminal ends it too.
pub(crate) struct Tool {
    run: ProgramRun,
    line: String,
}

impl Tool {
    /// A program by name.
    pub(crate) fn new(program: &str) -> Self {
        let mut run = ProgramRun::new(program, QUICK).in_our_group();
        run.command().env("PATH", PATH).env("LC_ALL", "C");
        Self { run, line: program.to_owned() }
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        for arg in args {
            self.line.push(' ');
            self.line.push_str(&arg.as_ref().to_string_lossy());
            self.run.command().arg(arg);
        }
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.run.command().env(name, value);
        self
    }

    pub(crate) fn input(mut self, text: impl Into<String>) -> Self {
        self.run = self.run.input(text.into());
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.run = self.run.limit(limit);
        self
    }

    /// Starts it and waits for its first process only. What that leaves running writes to `log`.
    pub(crate) fn detach(mut self, log: &Path) -> Result<()> {
        let file = File::options().create(true).append(true).open(log).map_err(Error::file("open", log))?;
        let errors = file.try_clone().map_err(Error::file("open", log))?;
        let start = |source| Error::Start { program: self.line.clone(), source };
        let command = self.run.command().stdin(Stdio::null()).stdout(file).stderr(errors);
        let status = command.status().map_err(start)?;
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

    /// Runs it, hands each line of standard output to `watch` as it comes, and returns all of them.
    pub(crate) fn run_watched(self, watch: impl Fn(&str)) -> Result<String> {
        let line = self.line;
        let on_line = |pipe, text: &str| {
            if pipe == OutputPipe::Stdout {
                watch(text.trim_end());
            }
        };
        let output = self.run.run_with(on_line).map_err(|error| failed(&line, error))?;
        if output.success() {
            return Ok(output.stdout);
        }
        let stderr = if output.stderr.trim().is_empty() { output.stdout } else { output.stderr };
        Err(Error::Program { command: line, status: output.status.to_string(), stderr })
    }
}

fn failed(line: &str, error: ProgramError) -> Error {
    let line = line.to_owned();
    match error {
        ProgramError::Missing { source, .. } | ProgramError::Start { source, .. } => {
            Error::Start { program: line, source }
        }
        ProgramError::Timeout { limit, .. } => Error::Timeout { command: line, limit },
        ProgramError::Failed { status, stderr_tail, .. } => {
            Error::Program { command: line, status, stderr: stderr_tail }
        }
    }
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
