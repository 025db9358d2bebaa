//! Mistakes in an inventory, with their place.

use std::fmt;

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InventoryFile {
    /// `hosts.yml`.
    Hosts,
    /// `group_vars.yml`.
    Variables,
}

impl InventoryFile {
    /// Its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts.yml",
            Self::Variables => "group_vars.yml",
        }
    }
}

/// A mistake in an inventory. Never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryMistake {
    /// The file.
    pub file: InventoryFile,
    /// The line, from 1.
    pub line: u64,
    /// The host, group or variable, with its value where that helps; empty for the whole file.
    pub subject: String,
    /// The cause and the remedy: the end of a sentence that starts with the subject.
    pub reason: String,
}

impl fmt::Display for InventoryMistake {
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
pub struct Mistakes(pub Vec<InventoryMistake>);

impl Mistakes {
    /// Sorts them by file and line and removes repetitions.
    pub(crate) fn new(mut mistakes: Vec<InventoryMistake>) -> Self {
        mistakes.sort_by_key(|mistake| (mistake.file, mistake.line));
        mistakes.dedup();
        Self(mistakes)
    }

    /// The error category for labels. Retrying does not help; the files must change.
    #[must_use]
    pub fn category(&self) -> &'static str {
        "bad-inventory"
    }
}

fn listed(mistakes: &[InventoryMistake]) -> String {
    let lines: Vec<String> = mistakes.iter().map(InventoryMistake::to_string).collect();
    match lines.as_slice() {
        [only] => only.clone(),
        several => format!("{} mistakes\n  {}", several.len(), several.join("\n  ")),
    }
}
