//! Generated files are up to date.

use std::path::Path;

use anyhow::Result;

use super::finding::RuleFinding;

const RULE: &str = "generated";

/// Compares every generated file with the committed one.
pub(crate) fn check(root: &Path) -> Result<Vec<RuleFinding>> {
    let mut findings = Vec::new();
    for (path, text) in crate::generate::files()? {
        if std::fs::read_to_string(root.join(&path)).unwrap_or_default() != text {
            findings.push(RuleFinding::new(
                RULE,
                format!("{} is out of date: run cargo xtask gen", path.display()),
            ));
        }
    }
    Ok(findings)
}
