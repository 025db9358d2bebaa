//! The runner's own words, on standard error, with secrets hidden.

use std::io::{self, Write as _};
use std::sync::Arc;

use crate::masks::Masks;

/// Says lines.
#[derive(Debug, Clone)]
pub struct Voice {
    masks: Arc<Masks>,
}

impl Voice {
    /// Hides these secrets.
    #[must_use]
    pub fn new(masks: Arc<Masks>) -> Self {
        Self { masks }
    }

    /// Says one thing.
    pub fn say(&self, text: &str) {
        let mut line = format!("kubeon-runner: {}", self.masks.hide_text(text.trim_end()));
        line.push('\n');
        // One that nobody hears does its work all the same.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
