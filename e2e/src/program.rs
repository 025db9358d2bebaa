//! Runs programs as a person would, and says everything when one of them fails.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// What a program said.
#[derive(Debug)]
pub struct Answer {
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The folder that holds the programs under test: the one that cargo built this test beside.
#[must_use]
pub fn folder() -> PathBuf {
    let lab_client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/x86_64-unknown-linux-gnu/debug");
    std::env::var_os("KUBEON_PROGRAMS").map_or(lab_client, PathBuf::from)
}

/// Runs a program to its end, whatever its exit code.
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
/// When it cannot be started or fails; with everything it said.
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

/// Tries until `attempt` holds or the time is up; says what was seen last.
///
/// # Errors
/// When the time is up.
pub fn eventually<T>(what: &str, limit: Duration, attempt: impl FnMut() -> Result<T>) -> Result<T> {
    again_after(Duration::from_millis(200), what, limit, attempt)
}

/// The same with so long a pause before another try: programs that are started to look cost what is looked at its time.
///
/// # Errors
/// When the time is up.
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
                return Err(error.context(format!("{what}: not within {limit:?}")));
            }
            Err(_) => std::thread::sleep(pause),
        }
    }
}
