//! Questions to cargo.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The packages of the workspace.
pub(crate) fn packages(root: &Path) -> Result<Vec<String>> {
    let text = run(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let names = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(names.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

/// Everything that a package links when it is built alone: the features that others switch on do not count.
pub(crate) fn linked(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let text = run(root, &["tree", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"])?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn run(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("cargo").args(arguments).current_dir(root).output()?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}
