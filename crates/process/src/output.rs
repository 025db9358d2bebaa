//! The output of a program.

use std::collections::VecDeque;
use std::process::ExitStatus;

/// The default number of lines that [`OutputTail`] keeps.
const TAIL_LINES: usize = 12;

/// The pipe that a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputPipe {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A program that ended, with any exit code.
#[derive(Debug, Clone)]
pub struct ProgramOutput {
    /// The exit code or the signal.
    pub status: ExitStatus,
    /// Standard output; the first 64 MiB.
    pub stdout: String,
    /// Standard error; the first 64 MiB.
    pub stderr: String,
}

impl ProgramOutput {
    /// Whether the exit code is 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// The last line of standard error that is not empty, or else of standard output.
    #[must_use]
    pub fn last_line(&self) -> String {
        let last = |text: &str| text.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned);
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| "no output".to_owned())
    }
}

/// The last lines of an output, without empty lines and repetitions.
#[derive(Debug, Clone)]
pub struct OutputTail {
    lines: VecDeque<String>,
    most: usize,
}

impl Default for OutputTail {
    fn default() -> Self {
        Self::new(TAIL_LINES)
    }
}

impl OutputTail {
    /// Keeps at most this many lines.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { lines: VecDeque::new(), most }
    }

    /// Adds a line and drops the oldest one when there are too many.
    pub fn push(&mut self, line: &str) {
        if line.trim().is_empty() || self.lines.iter().any(|known| known == line) {
            return;
        }
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
    }

    /// The lines as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n").trim().to_owned()
    }
}

impl<'a> FromIterator<&'a str> for OutputTail {
    fn from_iter<I: IntoIterator<Item = &'a str>>(lines: I) -> Self {
        let mut tail = Self::default();
        lines.into_iter().for_each(|line| tail.push(line));
        tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_end_and_drops_repetitions() {
        let mut tail = OutputTail::default();
        (0..20).for_each(|number| tail.push(&number.to_string()));
        (0..20).for_each(|_| tail.push("connection refused"));
        assert!(tail.text().starts_with("9\n10\n") && tail.text().ends_with("19\nconnection refused"));
    }
}
