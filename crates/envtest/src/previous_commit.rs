//! The commit whose programs come first in tests of an upgrade.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::EnvtestError;

/// What manages clusters.
const CLUSTERS: [&str; 5] =
    ["bin/kubeon/src", "bin/kubeon-node/src", "crates/engine/src", "crates/plan/src", "crates/render/src"];
/// What the operator consists of.
const OPERATOR: [&str; 3] =
    ["bin/kubeon-operator/src", "crates/operations/src", ":(exclude)crates/operations/src/tests"];

/// The previous commit: `$KUBEON_PREVIOUS`, else the newest one before the last changes of what manages clusters and of the
/// operator. After a commit of documents or tests, the programs of `HEAD~1` would be those of `HEAD`.
///
/// # Errors
/// git cannot be started, or the repository lacks these commits.
pub fn previous_commit() -> Result<String, EnvtestError> {
    if let Ok(named) = std::env::var("KUBEON_PREVIOUS") {
        return Ok(named);
    }
    let before = |paths: &[&str]| {
        let changed = git(&[&["rev-list", "-1", "HEAD", "--"][..], paths].concat())?;
        Ok::<_, EnvtestError>(format!("{changed}^"))
    };
    git(&["merge-base", &before(&CLUSTERS)?, &before(&OPERATOR)?])
}

/// Runs git in this repository; returns its output without the end of the line.
fn git(arguments: &[&str]) -> Result<String, EnvtestError> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = Command::new("git")
        .arg("-C")
        .arg(&root)
        .args(arguments)
        .output()
        .map_err(|source| EnvtestError::Start { program: "git", source })?;
    if !done.status.success() {
        let why = format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim());
        return Err(EnvtestError::File { path: root, source: io::Error::other(why) });
    }
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}
