//! Every package of the workspace inherits its lints.

use anyhow::Result;
use serde::Deserialize;

use super::finding::RuleFinding;
use super::sources::Sources;

const RULE: &str = "lints";

#[derive(Deserialize)]
struct Manifest {
    package: Option<toml::Table>,
    /// Of a package that is a workspace of its own.
    workspace: Option<toml::Table>,
    lints: Option<toml::Table>,
}

/// Finds packages without `[lints] workspace = true`.
pub(crate) fn check(sources: &Sources) -> Result<Vec<RuleFinding>> {
    let mut findings = Vec::new();
    for (path, text) in sources.texts.iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        let manifest: Manifest = toml::from_str(text)?;
        let inherits =
            manifest.lints.is_some_and(|lints| lints.get("workspace") == Some(&toml::Value::Boolean(true)));
        if manifest.package.is_some() && manifest.workspace.is_none() && !inherits {
            findings.push(RuleFinding::new(RULE, format!("{path} has no `[lints] workspace = true`")));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    #[test]
    fn a_package_without_the_lints_of_the_workspace_is_found() {
        let sources = sources(&[
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[lints]\nworkspace = true\n"),
            ("crates/b/Cargo.toml", "[package]\nname = \"b\"\n"),
            ("other/Cargo.toml", "[package]\nname = \"c\"\n[workspace]\n"),
        ]);
        let found = check(&sources).unwrap();
        assert_eq!(found, [RuleFinding::new(RULE, "crates/b/Cargo.toml has no `[lints] workspace = true`")]);
    }
}
