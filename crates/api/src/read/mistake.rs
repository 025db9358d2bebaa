//! A mistake in a text that a person wrote.

use std::fmt;

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The line, from 1.
    pub line: u64,
    /// The character in that line, from 1.
    pub column: u64,
    /// The field, such as `spec.cluster.nodeList[0].ip`; empty for the whole object.
    pub field: String,
    /// What is wrong with it, and the way out: the end of a sentence that begins with the field.
    pub reason: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {} {}", self.line, self.field, self.reason)
    }
}
