//! The pure crates do not read a clock, and clippy denies all other effects in them (`disallowed-methods` in
//! clippy.toml).

use super::finding::RuleFinding;
use super::module_paths::collect;
use super::sources::Sources;

const RULE: &str = "pure-crate";
const CRATES: [&str; 7] = ["api", "install", "inventory", "operations", "plan", "render", "wire"];
const ATTRIBUTE: &str = "#![cfg_attr(not(test), deny(clippy::disallowed_methods))]";
const CLOCKS: [&str; 4] = ["Instant", "SystemTime", "Timestamp", "Zoned"];

/// Finds clocks in the pure crates, and crates that do not deny effects.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    CRATES.iter().flat_map(|name| check_crate(sources, &format!("crates/{name}/src/"))).collect()
}

fn check_crate(sources: &Sources, folder: &str) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    let root = format!("{folder}lib.rs");
    if !sources.texts.get(&root).is_some_and(|text| text.lines().any(|line| line == ATTRIBUTE)) {
        findings.push(RuleFinding::new(RULE, format!("{root} has no `{ATTRIBUTE}`")));
    }
    let files = sources.rust.iter().filter(|(path, _)| path.starts_with(folder) && !sources.is_test(path));
    for (path, file) in files {
        for mention in collect(&file.items).mentions {
            if let [.., clock, function] = mention.as_slice()
                && function == "now"
                && CLOCKS.contains(&clock.as_str())
            {
                let text = format!("{path} reads the clock with `{clock}::now`: pass the time as an input");
                findings.push(RuleFinding::new(RULE, text));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let sources = sources(&[("crates/plan/src/lib.rs", text)]);
        check_crate(&sources, "crates/plan/src/").into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_clock_in_a_pure_crate_is_found() {
        let found = found(&format!("{ATTRIBUTE}\nfn f() {{ let _ = std::time::Instant::now(); }}"));
        assert_eq!(
            found,
            ["crates/plan/src/lib.rs reads the clock with `Instant::now`: pass the time as an input"]
        );
    }

    #[test]
    fn a_pure_crate_that_does_not_deny_effects_is_found() {
        assert_eq!(found("fn f() {}").len(), 1);
        assert_eq!(found(&format!("{ATTRIBUTE}\nfn f() {{}}")), Vec::<String>::new());
    }
}
