//! What is wrong with an inventory, and where.

use std::fmt;

/// Which of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// `hosts.yml`.
    Hosts,
    /// `group_vars.yml`.
    Variables,
}

impl File {
    /// What Ansible's users call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts.yml",
            Self::Variables => "group_vars.yml",
        }
    }
}

/// One thing that is wrong. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: File,
    /// The line, from 1.
    pub line: u64,
    /// The host, group or variable, with its value where that helps; empty for the whole file.
    pub subject: String,
    /// What is wrong with it, and the way out: the end of a sentence that begins with the subject.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: ", self.file.name(), self.line)?;
        if !self.subject.is_empty() {
            write!(f, "{}: ", self.subject)?;
        }
        f.write_str(&self.reason)
    }
}

/// Every mistake of both files; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.0))]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// Sorts them: by file, then by line. A mistake that several hosts share is told once.
    pub(crate) fn new(mut mistakes: Vec<Mistake>) -> Self {
        mistakes.sort_by_key(|mistake| (mistake.file, mistake.line));
        mistakes.dedup();
        Self(mistakes)
    }

    /// A word for programs. Trying again does not help; the files must change.
    #[must_use]
    pub fn category(&self) -> &'static str {
        "bad-inventory"
    }
}

fn listed(mistakes: &[Mistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
    match lines.as_slice() {
        [only] => only.clone(),
        several => format!("{} mistakes\n  {}", several.len(), several.join("\n  ")),
    }
}
