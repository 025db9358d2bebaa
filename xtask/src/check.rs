//! Rules that the compiler does not know. All findings are told at once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// Lines of a file without its tests.
const FILE_LINES: usize = 500;
/// Lines of a `main.rs`.
const MAIN_LINES: usize = 100;

#[derive(Deserialize)]
struct Layers {
    edges: BTreeMap<String, Vec<String>>,
    forbidden: BTreeMap<String, Vec<String>>,
}

/// Runs every check.
///
/// # Errors
/// When a rule is broken, with every place.
pub(crate) fn run(root: &Path) -> Result<()> {
    let mut findings = Vec::new();
    layers(root, &mut findings)?;
    lengths(root, &mut findings)?;
    lints(root, &mut findings)?;
    fresh(root, &mut findings)?;
    if findings.is_empty() {
        crate::say("check: layers, lengths, lints and generated files are in order");
        return Ok(());
    }
    bail!("{} findings\n  {}", findings.len(), findings.join("\n  "))
}

fn layers(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    let layers: Layers = toml::from_str(&std::fs::read_to_string(root.join("layers.toml"))?)?;
    for package in packages(root)? {
        if !layers.edges.contains_key(&package) {
            findings.push(format!("{package} is not in layers.toml"));
            continue;
        }
        let allowed = closure(&layers.edges, &package);
        let linked = linked(root, &package)?;
        let own = linked.iter().filter(|name| layers.edges.contains_key(*name) && **name != package);
        for name in own.filter(|name| !allowed.contains(*name)) {
            findings.push(format!("{package} uses {name}: layers.toml does not allow it"));
        }
        for name in layers.forbidden.get(&package).into_iter().flatten().filter(|name| linked.contains(*name))
        {
            findings.push(format!(
                "{package} links {name}, which its room forbids (cargo tree -p {package} -i {name})"
            ));
        }
    }
    Ok(())
}

/// What a package may use, and what those may use.
fn closure(edges: &BTreeMap<String, Vec<String>>, package: &str) -> BTreeSet<String> {
    let (mut open, mut reached) = (vec![package.to_owned()], BTreeSet::new());
    while let Some(name) = open.pop() {
        for next in edges.get(&name).into_iter().flatten() {
            if reached.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    reached
}

fn packages(root: &Path) -> Result<Vec<String>> {
    let text = cargo(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let names = metadata["packages"].as_array().context("cargo metadata lists packages")?;
    Ok(names.iter().filter_map(|package| package["name"].as_str().map(str::to_owned)).collect())
}

/// Everything that a package links when it is built alone, so that features of others do not blur it.
fn linked(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let text = cargo(root, &["tree", "-p", package, "-e", "normal", "--prefix", "none", "--format", "{p}"])?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("cargo").args(arguments).current_dir(root).output()?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn lengths(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    for folder in ["crates", "bin", "e2e", "xtask"] {
        for path in rust_files(&root.join(folder))? {
            let text = std::fs::read_to_string(&path)?;
            let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
            let limit = if path.ends_with("main.rs") { MAIN_LINES } else { FILE_LINES };
            if lines > limit {
                let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                findings.push(format!("{shown} has {lines} lines without tests; the limit is {limit}"));
            }
        }
    }
    Ok(())
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"))
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

fn lints(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    #[derive(Deserialize)]
    struct Manifest {
        lints: Option<toml::Table>,
    }
    let members = ["crates", "bin"].iter().map(|folder| std::fs::read_dir(root.join(folder)));
    let mut folders: Vec<PathBuf> = vec![root.join("e2e"), root.join("xtask")];
    for listing in members {
        folders.extend(listing?.filter_map(Result::ok).map(|entry| entry.path()));
    }
    for folder in folders {
        let manifest: Manifest = toml::from_str(&std::fs::read_to_string(folder.join("Cargo.toml"))?)?;
        let inherits =
            manifest.lints.is_some_and(|lints| lints.get("workspace") == Some(&toml::Value::Boolean(true)));
        if !inherits {
            findings.push(format!("{}/Cargo.toml has no `[lints] workspace = true`", folder.display()));
        }
    }
    Ok(())
}

fn fresh(root: &Path, findings: &mut Vec<String>) -> Result<()> {
    for (path, text) in crate::generate::files()? {
        if std::fs::read_to_string(root.join(&path)).unwrap_or_default() != text {
            findings.push(format!("{} is not what the types say: cargo xtask gen", path.display()));
        }
    }
    Ok(())
}
