//! Programs of the machine that a lab uses: runs them with a time limit and names those that are missing.

use std::{
    ffi::OsStr,
    fs::{self, File},
    path::Path,
    time::Duration,
};

use kubeon_process::{OutputPipe, ProgramError, ProgramRun, find_program};

use crate::{Error, LabName, Result, process};

/// Time limit for programs that only call the kernel.
pub(crate) const QUICK: Duration = Duration::from_secs(20);

/// Programs and the Debian packages that contain them.
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

/// Folders of root's programs; the PATH of the caller is not used.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Checks that the programs are installed; `extra` lists the programs that only some operations need.
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

/// One run of a program. Its messages are in English; its input is empty unless [`Tool::input`] sets it.
///
/// The program stays in the process group of this process, so that Ctrl-C of the terminal ends it too.
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

    /// A program that works on a lab: the next command for the lab ends it when this process was killed.
    pub(crate) fn of_lab(lab: &LabName, program: &str) -> Self {
        Self::new(program).env(process::MARK, lab.as_str())
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

    /// Runs a program that leaves another one running in the background; both append their output to `log`.
    pub(crate) fn detach(self, log: &Path) -> Result<()> {
        let file = File::options().create(true).append(true).open(log).map_err(Error::file("open", log))?;
        let output = self.run.output_to(file).run().map_err(|error| failed(&self.line, error))?;
        if output.success() {
            return Ok(());
        }
        let stderr = fs::read_to_string(log).unwrap_or_default();
        Err(Error::Program { command: self.line, status: output.status.to_string(), stderr })
    }

    /// Runs the program and returns its standard output.
    pub(crate) fn run(self) -> Result<String> {
        self.run_with(|_| ())
    }

    /// Runs the program, calls `on_line` with each line of standard output as it arrives, and returns all lines.
    pub(crate) fn run_with(self, on_line: impl Fn(&str)) -> Result<String> {
        let line = self.line;
        let on_stdout_line = |pipe, text: &str| {
            if pipe == OutputPipe::Stdout {
                on_line(text.trim_end());
            }
        };
        let output = self.run.run_with(on_stdout_line).map_err(|error| failed(&line, error))?;
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
        ProgramError::Stopped { .. } => {
            Error::Program { command: line, status: "stopped".to_owned(), stderr: String::new() }
        }
        ProgramError::Failed { status, stderr_tail, .. } => {
            Error::Program { command: line, status, stderr: stderr_tail }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabRemedy;

    #[test]
    fn reports_status_and_stderr_of_a_program_that_fails() {
        let error =
            Tool::new("sh").args(["-c", "echo no such thing >&2; exit 3"]).run().unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such thing"), "{error}");
    }

    #[test]
    fn ends_a_program_at_its_time_limit() {
        let result = Tool::new("sleep").args(["60"]).limit(Duration::from_millis(50)).run();
        assert!(matches!(result, Err(Error::Timeout { .. })));
    }

    #[test]
    fn a_detached_program_may_keep_its_output_open_but_its_first_process_has_a_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let detach = |script: &str, limit: u64| {
            Tool::new("sh").args(["-c", script]).limit(Duration::from_millis(limit)).detach(&log)
        };
        detach("echo started; sleep 5 & :", 4000).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "started\n");
        assert!(matches!(detach("exec sleep 60", 50), Err(Error::Timeout { .. })));
        let failed = detach("echo no such thing >&2; exit 3", 4000).unwrap_err().to_string();
        assert!(failed.contains("exit status: 3") && failed.contains("no such thing"), "{failed}");
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
        let error = check(&[("no-such-program", "its-package")]).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
        assert_eq!(error.remedy(), Some(LabRemedy::InstallPackages(vec!["its-package".to_owned()])));
    }
}
