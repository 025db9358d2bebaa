//! The program as a person runs it, in a home of its own.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "every test program uses its own part, and what fails fails the test"
)]

pub(crate) mod person;
pub(crate) mod sshd;

use std::path::Path;
use std::process::{Command, Output};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_kubeon");

/// A home of its own; nothing of the machine's is touched.
pub(crate) struct Home(tempfile::TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn kubeon(&self, args: &[&str]) -> Said {
        Said::from(self.at_home(PROGRAM).args(args).output().unwrap())
    }

    /// A program that finds nothing but this home.
    pub(crate) fn at_home(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path()).env("PATH", "/usr/bin:/bin").env("TERM", "dumb");
        command
    }

    /// Writes down a cluster that was never made. Its hosts are on the loopback and are not talked to.
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
        let said = home.kubeon(&[&["create", name, "v1.36.3", "-C"], flags].concat());
        assert_eq!(said.code, 0, "{}", said.err);
        home
    }

    /// Changes what is written down.
    pub(crate) fn rewrite(&self, name: &str, from: &str, to: &str) {
        let path = self.path().join(format!(".kubeon/{name}.json"));
        let state = std::fs::read_to_string(&path).unwrap();
        assert!(state.contains(from), "{state}");
        std::fs::write(&path, state.replace(from, to)).unwrap();
    }

    /// Names of everything below the state folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let folder = self.path().join(".kubeon");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Said {
    /// Refused: code 2, nothing on standard output, and these words on standard error.
    #[track_caller]
    pub(crate) fn refuses(&self, words: &[&str]) {
        assert_eq!((self.code, self.out.as_str()), (2, ""), "{self:?}");
        assert!(self.err.starts_with("error: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing in:\n{}", self.err);
        }
    }
}
