//! Runs the program in a temporary home folder.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "not every test program uses everything, and a failure fails the test"
)]

pub(crate) mod person;
pub(crate) mod sshd;

use std::path::Path;
use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_kubeon");

/// A temporary home folder. Files of the machine are not changed.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn kubeon(&self, args: &[&str]) -> CommandOutput {
        CommandOutput::from(self.command_in_home(PROGRAM).args(args).output().unwrap())
    }

    /// A command whose environment contains only this home.
    pub(crate) fn command_in_home(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path()).env("PATH", "/usr/bin:/bin").env("TERM", "dumb");
        command
    }

    /// Stores a cluster without applying it. Its hosts have loopback addresses and are not contacted.
    pub(crate) fn with_cluster(name: &str) -> Self {
        Self::with_cluster_at(name, 1)
    }

    pub(crate) fn with_cluster_at(name: &str, port: u16) -> Self {
        Self::with_cluster_of(
            name,
            &["-m", "127.0.2.1", "-w", "127.0.2.2", "--default-port", &port.to_string()],
        )
    }

    pub(crate) fn with_cluster_of(name: &str, flags: &[&str]) -> Self {
        let home = Self::new();
        let output = home.kubeon(&[&["create", name, "v1.36.3", "-C"], flags].concat());
        assert_eq!(output.code, 0, "{}", output.err);
        home
    }

    /// Edits the stored state.
    pub(crate) fn rewrite(&self, name: &str, from: &str, to: &str) {
        let path = self.path().join(format!(".kubeon/{name}.json"));
        let state = std::fs::read_to_string(&path).unwrap();
        assert!(state.contains(from), "{state}");
        std::fs::write(&path, state.replace(from, to)).unwrap();
    }

    /// Names of the files in the state folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let folder = self.path().join(".kubeon");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl CommandOutput {
    /// Asserts a refusal: exit code 2, no standard output, and these words on standard error.
    #[track_caller]
    pub(crate) fn refuses(&self, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (2, ""), "{self:?}");
        let mut lines = self.err.lines().skip_while(|line| line.starts_with("warning: "));
        assert!(lines.next().is_some_and(|line| line.starts_with("error: ")), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing in:\n{}", self.err);
        }
    }
}
