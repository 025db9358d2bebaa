//! Runs `kubeon` in the background and reads its output live, so that a test can act at a certain moment.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;

use crate::lab::TestLab;
use crate::program::{Answer, folder, must};

/// A running program. Dropping the value kills it.
pub struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts the program.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(lab: &TestLab, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(folder().join("kubeon"))
            .args(arguments)
            .envs(lab.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().context("no standard error")?);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let shared_lines = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                shared_lines.lock().push(line);
            }
        });
        Ok(Self { child, lines, reader: Some(reader) })
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard error so far.
    #[must_use]
    pub fn output(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// The lines of its standard error after the first ones.
    #[must_use]
    pub fn lines_after(&self, first: usize) -> Vec<String> {
        self.lines.lock().iter().skip(first).cloned().collect()
    }

    /// The number of completed steps.
    #[must_use]
    pub fn completed_steps(&self) -> usize {
        self.output().lines().filter(|line| line.contains("  ✓ ")).count()
    }

    /// Fails if the program has ended.
    ///
    /// # Errors
    /// When it has ended.
    pub fn ensure_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("kubeon has ended with {status}:\n{}", self.output()),
        }
    }

    /// Waits until `condition` is true while the program runs.
    ///
    /// # Errors
    /// When the program ends before, or `limit` is over.
    pub fn until(&mut self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let start = Instant::now();
        while !condition(self) {
            self.ensure_running().with_context(|| what.to_owned())?;
            ensure!(start.elapsed() < limit, "not within {limit:?}: {what}:\n{}", self.output());
            thread::sleep(Duration::from_millis(10));
        }
        self.ensure_running().with_context(|| what.to_owned())
    }

    /// Sends a signal to the running program: `INT`, `TERM`.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        self.ensure_running()?;
        must("kill", &["-s", name, &self.pid().to_string()], &[]).map(drop)
    }

    /// Kills the running program.
    ///
    /// # Errors
    /// When it has ended.
    pub fn kill(mut self) -> Result<()> {
        self.ensure_running()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits until the program ends.
    ///
    /// # Errors
    /// When it does not end within `limit`.
    pub fn wait(mut self, limit: Duration) -> Result<Answer> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < limit, "kubeon did not end within {limit:?}:\n{}", self.output());
            thread::sleep(Duration::from_millis(20));
        };
        if self.reader.take().is_some_and(|reader| reader.join().is_err()) {
            bail!("the thread that reads the output panicked");
        }
        let mut out = String::new();
        self.child.stdout.take().context("no standard output")?.read_to_string(&mut out)?;
        Ok(Answer { code: status.code().unwrap_or(-1), out, err: self.output() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
