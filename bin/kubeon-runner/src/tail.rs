//! The last lines of the output, for the message about a failure.

use std::collections::VecDeque;
use std::sync::Arc;

use kubeon_api::clip;
use parking_lot::{Mutex, MutexGuard};

/// The number of lines kept of each stream.
const LINES: usize = 40;
/// The number of bytes kept of each line.
const WIDTH: usize = 512;

/// The last lines of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock()
    }

    /// Keeps a line. Empty lines are ignored.
    pub(crate) fn push(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let mut lines = self.lines();
        let mut kept =
            if lines.len() < LINES { String::new() } else { lines.pop_front().unwrap_or_default() };
        kept.clear();
        kept.push_str(clip(line, WIDTH));
        lines.push_back(kept);
    }

    /// The last lines that fit into `bytes`, each with its newline.
    #[must_use]
    pub(crate) fn last(&self, bytes: usize) -> String {
        let lines = self.lines();
        let mut room = bytes;
        let fits = lines.iter().rev().take_while(|line| {
            let fits = line.len() < room;
            room = room.saturating_sub(line.len() + 1);
            fits
        });
        let from = lines.len() - fits.count();
        lines.iter().skip(from).map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_that_fit() {
        let tail = Tail::default();
        for number in 0..100 {
            tail.push(&format!("line {number}"));
            tail.push("  ");
        }
        assert_eq!(tail.last(16), "line 98\nline 99\n");
        assert_eq!(tail.last(4096).lines().count(), LINES);
        tail.push(&"ä".repeat(1000));
        assert_eq!(tail.last(520).len(), WIDTH + 1);
        assert_eq!(tail.last(100), "");
    }
}
