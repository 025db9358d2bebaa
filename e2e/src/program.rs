//! Runs programs and reports their output after a failure.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// The result of a program.
#[derive(Debug)]
pub struct Answer {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The folder of the programs under test: `$KUBEON_PROGRAMS`, else cargo's folder for the debug profile.
#[must_use]
pub fn folder() -> PathBuf {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/x86_64-unknown-linux-gnu/debug");
    std::env::var_os("KUBEON_PROGRAMS").map_or(default, PathBuf::from)
}

/// Runs a program and returns its result with any exit code.
///
/// # Errors
/// When it cannot be started.
pub fn run(program: impl AsRef<Path>, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Answer> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    Ok(Answer {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Runs a program that must succeed; returns its standard output.
///
/// # Errors
/// When it cannot be started or fails; the error contains its output.
pub fn must(program: impl AsRef<Path>, arguments: &[&str], environment: &[(&str, &str)]) -> Result<String> {
    let answer = run(&program, arguments, environment)?;
    if answer.code == 0 {
        return Ok(answer.out);
    }
    bail!(
        "{} {} ended with {}\n{}{}",
        program.as_ref().display(),
        arguments.join(" "),
        answer.code,
        answer.out,
        answer.err
    )
}

/// Repeats `attempt` until it succeeds or `limit` is over; then returns the last error.
///
/// # Errors
/// The last error, when `limit` is over.
pub fn eventually<T>(what: &str, limit: Duration, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    again_after(Duration::from_millis(200), what, limit, attempt)
}

/// Like [`eventually`], with this pause between attempts. Attempts that start programs slow down the tested
/// cluster.
///
/// # Errors
/// The last error, when `limit` is over.
pub fn again_after<T>(
    pause: Duration,
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if start.elapsed() > limit => {
                return Err(error.context(format!("not within {limit:?}: {what}")));
            }
            Err(_) => std::thread::sleep(pause),
        }
    }
}
