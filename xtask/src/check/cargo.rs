//! Reads packages and their dependencies from cargo.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kubeon_process::ProgramRun;

/// Time limit of one call; cargo may wait for the lock of another cargo.
const CARGO_TIMEOUT: Duration = Duration::from_secs(600);

/// The packages of the workspace.
pub(crate) fn packages(root: &Path) -> Result<Vec<String>> {
    let text = run(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let names = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(names.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

/// All packages that a package links when it is built alone, without the features that other packages enable.
pub(crate) fn linked(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let text = run(root, &["tree", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"])?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn run(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut cargo = ProgramRun::new("cargo", CARGO_TIMEOUT);
    cargo.command().args(arguments).current_dir(root);
    cargo.stdout().with_context(|| format!("cargo {}", arguments.join(" ")))
}
