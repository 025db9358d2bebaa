//! The list of crates in the programs, as SPDX 2.3 in JSON.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use kubeon_bundle::Arch;
use kubeon_bundle::spdx::{self, SpdxDocument, purl};
use serde_json::{Value, json};

use super::command::output_of;
use super::compiler::{Compiler, target};

const PROGRAM: &str = "SPDXRef-kubeon";

/// Writes `kubeon.spdx.json`.
pub(super) fn write(root: &Path, compiler: &Compiler<'_>, archs: &[Arch], out: &Path) -> Result<()> {
    let mut crates = BTreeSet::new();
    for arch in archs {
        crates.extend(crates_of(root, *arch)?);
    }
    let lock: toml::Value = toml::from_str(&fs::read_to_string(root.join("Cargo.lock"))?)?;
    let document = document(compiler.commit(), &crates, &lock);
    Ok(fs::write(out.join("kubeon.spdx.json"), format!("{document:#}\n"))?)
}

/// Name and version of every crate that is linked into `kubeon` or `kubeon-node`.
fn crates_of(root: &Path, arch: Arch) -> Result<BTreeSet<(String, String)>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["tree", "--locked", "-p", "kubeon", "-p", "kubeon-node"]);
    cargo.args([
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--target",
        target(arch),
    ]);
    let listed = output_of(&mut cargo)?;
    let line = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
    };
    Ok(listed.lines().filter(|text| !text.is_empty()).filter_map(line).collect())
}

fn document(commit: &str, crates: &BTreeSet<(String, String)>, lock: &toml::Value) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let mut document = SpdxDocument::new(format!("kubeon-{version}"), commit);
    document.package(json!({
        "SPDXID": PROGRAM, "name": "kubeon", "versionInfo": version, "filesAnalyzed": false,
        "downloadLocation": "NOASSERTION", "sourceInfo": format!("commit {commit}"),
    }));
    document.relate(spdx::DOCUMENT, "DESCRIBES", PROGRAM);
    for (name, version) in crates {
        let id = spdx::id(&["crate", name, version]);
        document.package(package(&id, name, version, checksum(lock, name, version)));
        document.relate(PROGRAM, "CONTAINS", &id);
    }
    document.into_json()
}

fn package(id: &str, name: &str, version: &str, checksum: Option<&str>) -> Value {
    let mut package = json!({
        "SPDXID": id, "name": name, "versionInfo": version, "filesAnalyzed": false,
        "downloadLocation": "NOASSERTION",
    });
    // A crate of this workspace has no checksum and is in no registry.
    if let Some(checksum) = checksum {
        package["downloadLocation"] =
            json!(format!("https://static.crates.io/crates/{name}/{version}/download"));
        package["checksums"] = json!([{ "algorithm": "SHA256", "checksumValue": checksum }]);
        package["externalRefs"] = json!([purl(&format!("pkg:cargo/{name}@{version}"))]);
    }
    package
}

fn checksum<'a>(lock: &'a toml::Value, name: &str, version: &str) -> Option<&'a str> {
    let text =
        |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_owned);
    let packages = lock.get("package")?.as_array()?;
    let found = packages.iter().find(|package| {
        text(package, "name").as_deref() == Some(name) && text(package, "version").as_deref() == Some(version)
    })?;
    found.get("checksum")?.as_str()
}
