//! The list of findings that are still allowed, with their number. The list can only shrink: a finding that
//! is not in it fails, and an entry that occurs less often fails too.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::finding::RuleFinding;

const FILE: &str = "xtask/src/check/allowed.toml";
const HEADER: &str = "# Findings of `cargo xtask check` that are still allowed, with their number. The list only shrinks: fix a finding,
# then run `cargo xtask check --update-allowed`.

";

/// Rule -> text of the finding -> number of allowed occurrences.
type Counts = BTreeMap<String, BTreeMap<String, usize>>;

/// Reads the list.
pub(crate) fn read(root: &Path) -> Result<Counts> {
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("cannot parse {}", path.display()))
}

/// Writes the list so that exactly these findings are allowed.
pub(crate) fn write(root: &Path, findings: &[RuleFinding]) -> Result<()> {
    let text = format!("{HEADER}{}", toml::to_string(&count(findings))?);
    std::fs::write(root.join(FILE), text).with_context(|| format!("cannot write {FILE}"))
}

fn count(findings: &[RuleFinding]) -> Counts {
    let mut counts = Counts::new();
    for finding in findings {
        *counts.entry(finding.rule.to_owned()).or_default().entry(finding.text.clone()).or_default() += 1;
    }
    counts
}

/// The differences between these findings and the list.
pub(crate) fn compare(findings: &[RuleFinding], allowed: &Counts) -> Vec<String> {
    let found = count(findings);
    let mut messages = Vec::new();
    for (rule, text, number) in entries(&found) {
        let allowed = number_of(allowed, rule, text);
        if number > allowed {
            let times =
                if number == 1 { String::new() } else { format!(" ({number} times, {allowed} allowed)") };
            messages.push(format!("{rule}: {text}{times}"));
        }
    }
    for (rule, text, number) in entries(allowed) {
        let found = number_of(&found, rule, text);
        if number > found {
            messages.push(format!(
                "{rule}: {FILE} allows {number} of `{text}`, {found} occur: cargo xtask check --update-allowed"
            ));
        }
    }
    messages
}

fn entries(counts: &Counts) -> impl Iterator<Item = (&str, &str, usize)> {
    counts
        .iter()
        .flat_map(|(rule, texts)| texts.iter().map(|(text, number)| (rule.as_str(), text.as_str(), *number)))
}

fn number_of(counts: &Counts, rule: &str, text: &str) -> usize {
    counts.get(rule).and_then(|texts| texts.get(text)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(text: &str) -> RuleFinding {
        RuleFinding::new("words", text)
    }

    #[test]
    fn a_finding_that_is_not_allowed_fails() {
        let wrong = compare(&[finding("a"), finding("b")], &count(&[finding("a")]));
        assert_eq!(wrong, ["words: b"]);
    }

    #[test]
    fn a_second_occurrence_of_an_allowed_finding_fails() {
        let wrong = compare(&[finding("a"), finding("a")], &count(&[finding("a")]));
        assert_eq!(wrong, ["words: a (2 times, 1 allowed)"]);
    }

    #[test]
    fn an_entry_that_occurs_less_often_fails() {
        let wrong = compare(&[finding("a")], &count(&[finding("a"), finding("a")]));
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("allows 2 of `a`, 1 occur"), "{wrong:?}");
    }

    #[test]
    fn the_findings_that_were_written_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("xtask/src/check")).unwrap();
        let findings = [finding("a \"b\" `c`"), finding("a \"b\" `c`"), RuleFinding::new("cycles", "d")];
        write(folder.path(), &findings).unwrap();
        assert_eq!(compare(&findings, &read(folder.path()).unwrap()), Vec::<String>::new());
    }
}
