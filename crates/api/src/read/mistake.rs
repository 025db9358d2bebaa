//! A mistake in a file, with its place.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1.
    pub line: u64,
    /// The character in that line, from 1.
    pub column: u64,
    /// The field, such as `spec.cluster.nodeList[0].ip`; empty for the whole object.
    pub field: String,
    /// The cause and the remedy: the end of a sentence that starts with the field.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} {}", self.line, self.field, self.reason)
    }
}
