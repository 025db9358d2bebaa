//! The allowed dependencies between packages: `layers.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::cargo;
use super::finding::RuleFinding;

const RULE: &str = "layer";

#[derive(Deserialize)]
struct Layers {
    edges: BTreeMap<String, Vec<String>>,
    forbidden: BTreeMap<String, Vec<String>>,
}

/// Compares the packages that every package links with the allowed ones.
pub(crate) fn check(root: &Path) -> Result<Vec<RuleFinding>> {
    let layers: Layers = toml::from_str(&std::fs::read_to_string(root.join("layers.toml"))?)?;
    let mut findings = Vec::new();
    for package in cargo::packages(root)? {
        let linked = cargo::linked(root, &package)?;
        findings.extend(layers.check(&package, &linked).into_iter().map(|text| RuleFinding::new(RULE, text)));
    }
    Ok(findings)
}

impl Layers {
    fn check(&self, package: &str, linked: &BTreeSet<String>) -> Vec<String> {
        if !self.edges.contains_key(package) {
            return vec![format!("{package} is not in layers.toml")];
        }
        let allowed = self.closure(package);
        let own = linked.iter().filter(|name| self.edges.contains_key(*name) && *name != package);
        let edges = own
            .filter(|name| !allowed.contains(*name))
            .map(|name| format!("{package} uses {name}: layers.toml does not allow it"));
        let forbidden =
            self.forbidden.get(package).into_iter().flatten().filter(|name| linked.contains(*name));
        let links = forbidden.map(|name| {
            format!("{package} links {name}, which layers.toml forbids (cargo tree -p {package} -i {name})")
        });
        edges.chain(links).collect()
    }

    /// The packages that a package may use, directly or through others.
    fn closure(&self, package: &str) -> BTreeSet<String> {
        let (mut open, mut reached) = (vec![package.to_owned()], BTreeSet::new());
        while let Some(name) = open.pop() {
            for next in self.edges.get(&name).into_iter().flatten() {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(package: &str, linked: &[&str]) -> Vec<String> {
        let layers: Layers =
            toml::from_str("[edges]\na = []\nb = [\"a\"]\nc = [\"b\"]\n[forbidden]\nb = [\"tokio\"]\n")
                .unwrap();
        layers.check(package, &linked.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_package_may_use_what_its_neighbours_use() {
        assert_eq!(found("c", &["c", "b", "a", "serde"]), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_is_not_listed_a_forbidden_crate_and_an_unknown_package_are_found() {
        assert_eq!(found("a", &["b"]), ["a uses b: layers.toml does not allow it"]);
        assert_eq!(found("b", &["tokio"]).len(), 1);
        assert_eq!(found("d", &[]), ["d is not in layers.toml"]);
    }
}
