//! Commands that are killed when a certain step begins, and how soon the command that continues begins its first one.

use std::cell::Cell;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::lab::TestLab;
use crate::running::Running;

/// What the program says at the end of each look at the hosts.
const LOOKED: &str = "the hosts were observed";
/// What it says when a step begins.
const BEGINS: &str = r#""event":"started""#;
/// How long a step may run before the program is killed.
const INSIDE: Duration = Duration::from_millis(100);
/// How long a command may take until one of the steps begins.
const LIMIT: Duration = Duration::from_secs(480);
/// A run begins its first step at most this long after its look.
const FIRST_STEP: Duration = Duration::from_secs(2);

/// A step, and a part of the line of JSON with which it begins.
pub type MarkedStep = (&'static str, &'static str);

/// The times from the look to the first step, of every command that was killed.
#[derive(Debug, Default)]
pub struct FirstSteps {
    times: Vec<Duration>,
}

impl FirstSteps {
    /// Runs the command again and again. Each time, one of these steps begins that did not begin before, and the program is killed
    /// in it. The steps may come in any order.
    ///
    /// # Errors
    /// When the command ends before.
    pub fn kill_in_each(&mut self, lab: &TestLab, command: &[&str], steps: &[MarkedStep]) -> Result<()> {
        let mut left = steps.to_vec();
        while !left.is_empty() {
            let mut run = start(lab, command)?;
            let (timer, what) = (FirstStepTimer::begin(), names(&left));
            run.until(&format!("one of these begins: {what}"), LIMIT, |run| {
                let lines = timer.new_lines(run);
                lines.iter().any(|line| left.iter().any(|(_, part)| line.contains(part)))
            })?;
            sleep(INSIDE);
            let output = run.output();
            run.kill()?;
            let (begun, later): (Vec<MarkedStep>, Vec<MarkedStep>) =
                left.into_iter().partition(|(_, part)| output.contains(part));
            left = later;
            self.times.push(timer.first.get().context("a step began without a look")?);
            self.print(&format!("killed in: {}", names(&begun)));
        }
        Ok(())
    }

    /// The longest time, if every one was short enough.
    ///
    /// # Errors
    /// When one was longer than two seconds.
    pub fn are_soon(&self) -> Result<Duration> {
        let longest = self.times.iter().max().copied().unwrap_or_default();
        ensure!(longest <= FIRST_STEP, "first steps began {:.2?} after the look", self.times);
        Ok(longest)
    }

    #[allow(clippy::print_stdout, reason = "prints measured times")]
    fn print(&self, what: &str) {
        let last = self.times.last().copied().unwrap_or_default();
        println!("  {what}; its first step began {last:.2?} after its look");
    }
}

/// Starts a command whose output names the begin of every step.
///
/// # Errors
/// When it cannot be started.
pub fn start(lab: &TestLab, command: &[&str]) -> Result<Running> {
    Running::start(lab, &[command, &["--progress", "json", "--v", "4"]].concat())
}

/// The words of the command that the program says to continue with, without the name of the program.
///
/// # Errors
/// When it says none.
pub fn next_command(output: &str) -> Result<Vec<String>> {
    let (_, rest) = output
        .split_once("continue with: kubeon ")
        .with_context(|| format!("no command continues: {output}"))?;
    let line = rest.split(['"', '\n']).next().unwrap_or_default();
    Ok(line.split_whitespace().map(str::to_owned).collect())
}

fn names(steps: &[MarkedStep]) -> String {
    steps.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Watches the lines of a run until its first step begins.
struct FirstStepTimer {
    /// How many lines were read.
    read: Cell<usize>,
    /// When the last look ended. Hosts with addresses that must be found are looked at twice.
    looked: Cell<Option<Instant>>,
    /// From the end of the last look to the first step.
    first: Cell<Option<Duration>>,
}

impl FirstStepTimer {
    fn begin() -> Self {
        Self { read: Cell::new(0), looked: Cell::new(None), first: Cell::new(None) }
    }

    /// The lines since the last call.
    fn new_lines(&self, run: &Running) -> Vec<String> {
        let lines = run.lines_after(self.read.get());
        self.read.set(self.read.get() + lines.len());
        for line in lines.iter().take_while(|_| self.first.get().is_none()) {
            if line.contains(LOOKED) {
                self.looked.set(Some(Instant::now()));
            }
            if line.contains(BEGINS) {
                self.first.set(self.looked.get().map(|looked| looked.elapsed()));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_is_found_in_text_and_in_json() {
        let words = ["rollback", "demo", "--yes"];
        let json = r#"{"event":"note","text":"demo: if this stops, continue with: kubeon rollback demo --yes","warning":false}"#;
        assert_eq!(next_command(json).unwrap(), words);
        let text = "error: x\ncontinue with: kubeon create demo\n";
        assert_eq!(next_command(text).unwrap(), ["create", "demo"]);
        assert!(next_command("error: x").is_err());
    }
}
