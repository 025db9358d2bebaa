//! Decision records are short and have the same headings.

use super::finding::RuleFinding;
use super::sources::Sources;

const RULE: &str = "decision";
const FOLDER: &str = "docs/decisions/";
const WORDS: usize = 400;
const HEADINGS: [&str; 3] = ["Context", "Decision", "Consequences"];

/// Finds decisions that are too long or have no heading.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for (path, text) in sources.texts.iter().filter(|(path, _)| is_decision(path)) {
        let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        if words > WORDS {
            findings.push(RuleFinding::new(RULE, format!("{path} has {words} words; the limit is {WORDS}")));
        }
        for heading in HEADINGS {
            if !text
                .lines()
                .any(|line| line.trim_start_matches('#').trim() == heading && line.starts_with('#'))
            {
                findings.push(RuleFinding::new(RULE, format!("{path} has no heading `{heading}`")));
            }
        }
    }
    findings
}

/// Whether a path is a decision: its file name begins with a number.
fn is_decision(path: &str) -> bool {
    path.strip_prefix(FOLDER).is_some_and(|name| name.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let sources = sources(&[("docs/decisions/0001-a.md", text), ("docs/decisions/README.md", "")]);
        check(&sources).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_decision_over_400_words_is_found() {
        let headings = "# 1. Title\n## Context\n## Decision\n## Consequences\n";
        assert_eq!(found(&format!("{headings}{}", "word ".repeat(395))), Vec::<String>::new());
        let found = found(&format!("{headings}{}", "word ".repeat(396)));
        assert_eq!(found, ["docs/decisions/0001-a.md has 401 words; the limit is 400"]);
    }

    #[test]
    fn a_decision_without_its_headings_is_found() {
        let found = found("# Title\n## Context\nDecision\n");
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("`Decision`") && found[1].ends_with("`Consequences`"), "{found:?}");
    }
}
