//! `kubeon` at work: what it says is heard as it comes, so that a test can act at a moment that it sees.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use parking_lot::Mutex;

use crate::lab::TestLab;
use crate::program::{Answer, folder, must};

/// The program, until it ends; killed when the value goes.
pub struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn begin(lab: &TestLab, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(folder().join("kubeon"))
            .args(arguments)
            .envs(lab.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let words = BufReader::new(child.stderr.take().context("standard error")?);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in words.lines().map_while(Result::ok) {
                heard.lock().push(line);
            }
        });
        Ok(Self { child, lines, reader: Some(reader) })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said on standard error.
    #[must_use]
    pub fn said(&self) -> String {
        self.lines.lock().join("\n")
    }

    /// How many steps it has done.
    #[must_use]
    pub fn done(&self) -> usize {
        self.said().lines().filter(|line| line.contains("  ✓ ")).count()
    }

    /// Fails unless it is at work.
    ///
    /// # Errors
    /// When it has ended.
    pub fn is_at_work(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("it has ended already, with {status}:\n{}", self.said()),
        }
    }

    /// Waits for a moment while it is at work.
    ///
    /// # Errors
    /// When it ends before, or after `limit`.
    pub fn until(&mut self, what: &str, limit: Duration, moment: impl Fn(&Self) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !moment(self) {
            self.is_at_work().with_context(|| what.to_owned())?;
            ensure!(begin.elapsed() < limit, "{what}: not within {limit:?}:\n{}", self.said());
            thread::sleep(Duration::from_millis(10));
        }
        self.is_at_work().with_context(|| what.to_owned())
    }

    /// Sends a signal to it, which must be at work: `INT`, `TERM`.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, name: &str) -> Result<()> {
        self.is_at_work()?;
        must("kill", &["-s", name, &self.pid().to_string()], &[]).map(drop)
    }

    /// Kills it, which must be at work.
    ///
    /// # Errors
    /// When it has ended.
    pub fn kill(mut self) -> Result<()> {
        self.is_at_work()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end within `limit`.
    pub fn end(mut self, limit: Duration) -> Result<Answer> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(begin.elapsed() < limit, "it does not end within {limit:?}:\n{}", self.said());
            thread::sleep(Duration::from_millis(20));
        };
        if self.reader.take().is_some_and(|reader| reader.join().is_err()) {
            bail!("the test's own thread died");
        }
        let mut out = String::new();
        self.child.stdout.take().context("standard output")?.read_to_string(&mut out)?;
        Ok(Answer { code: status.code().unwrap_or(-1), out, err: self.said() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
