//! The README's first command `./try`, with programs that are already compiled: two hosts, a cluster, and a
//! pod that answers. A second run finds everything in place. `./try down` removes it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use kubeon_e2e::program::{Answer, folder, must, run};

/// A separate home folder with the user's cache, so that the user's clusters are not changed.
struct TryScript {
    home: tempfile::TempDir,
}

impl TryScript {
    fn environment(&self) -> [(&'static str, String); 4] {
        let user = std::env::var("HOME").unwrap_or_default();
        let cache = std::env::var("XDG_CACHE_HOME").unwrap_or_else(|_| format!("{user}/.cache"));
        let home = self.home.path().to_string_lossy().into_owned();
        let programs = std::path::absolute(folder()).unwrap_or_default().to_string_lossy().into_owned();
        [
            ("KUBEON_HOME", home.clone()),
            ("HOME", home),
            ("XDG_CACHE_HOME", cache),
            ("KUBEON_PROGRAMS", programs),
        ]
    }

    fn with_environment<T>(&self, action: impl FnOnce(&[(&str, &str)]) -> T) -> T {
        let own = self.environment();
        action(&own.each_ref().map(|(name, value)| (*name, value.as_str())))
    }

    fn run(&self, arguments: &[&str]) -> Result<Answer> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../try");
        self.with_environment(|environment| run(script, arguments, environment))
    }

    fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        self.with_environment(|environment| must(folder().join("kubeon"), arguments, environment))
    }
}

impl Drop for TryScript {
    fn drop(&mut self) {
        // Also removes the lab of a failed test, which has already reported its error.
        self.kubeon(&["lab", "down", "--lab", "try"]).ok();
    }
}

#[test]
fn the_first_command_ends_with_a_running_pod() -> Result<()> {
    let script = TryScript { home: tempfile::tempdir()? };
    for run in ["first run", "second run"] {
        let start = Instant::now();
        let answer = script.run(&[])?;
        ensure!(answer.code == 0, "./try, {run}: {}\n{}{}", answer.code, answer.out, answer.err);
        let pod = answer.out.lines().any(|line| line.starts_with("hello-") && line.contains(" Running "));
        ensure!(pod, "no running pod, {run}: {}", answer.out);
        ensure!(answer.err.contains("./try down"), "the output has no next command: {}", answer.err);
        print_time(run, start);
    }
    let down = script.run(&["down"])?;
    ensure!(down.code == 0, "./try down: {}\n{}{}", down.code, down.out, down.err);
    ensure!(script.kubeon(&["ls", "-o", "name"])?.trim().is_empty(), "the cluster is still listed");
    let labs = script.kubeon(&["lab", "ls", "--lab", "try", "-o", "json"]);
    ensure!(!labs.is_ok_and(|labs| labs.contains("address")), "the lab is still there");
    Ok(())
}

#[allow(clippy::print_stderr, reason = "prints measured times")]
fn print_time(what: &str, start: Instant) {
    eprintln!(
        "./try with everything compiled and the bundle built, {what}: {:.1} s",
        start.elapsed().as_secs_f64()
    );
}
