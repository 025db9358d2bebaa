//! Phrases that are hard to read. The table is `phrases.toml`.

use std::path::Path;

use anyhow::{Context as _, Result};
use regex::Regex;
use serde::Deserialize;

use super::finding::RuleFinding;
use super::sources::{Sources, is_own};

const RULE: &str = "phrase";
const EXTENSIONS: [&str; 8] = ["rs", "md", "yaml", "yml", "tpl", "sh", "toml", "py"];
/// Files with other extensions, or without one, that contain sentences.
const SCRIPTS: [&str; 6] = ["test", "try", "justfile", "scripts/", "images/", ".ci/"];

#[derive(Deserialize)]
struct Table {
    phrase: Vec<Phrase>,
}

#[derive(Deserialize)]
struct Phrase {
    text: String,
    instead: String,
}

/// Finds the phrases in comments, strings and names of Rust, in documents, YAML and scripts.
pub(crate) fn check(sources: &Sources) -> Result<Vec<RuleFinding>> {
    let table: Table = toml::from_str(include_str!("phrases.toml"))?;
    let patterns = table.phrase.iter().map(pattern).collect::<Result<Vec<_>>>()?;
    let mut findings = Vec::new();
    for (path, text) in sources.texts.iter().filter(|(path, _)| has_sentences(path) && !is_own(path)) {
        let text = running_text(text);
        for (phrase, pattern) in table.phrase.iter().zip(&patterns) {
            for _ in pattern.find_iter(&text) {
                let (phrase, instead) = (&phrase.text, &phrase.instead);
                findings.push(RuleFinding::new(RULE, format!("{path}: \"{phrase}\": write: {instead}")));
            }
        }
    }
    Ok(findings)
}

fn pattern(phrase: &Phrase) -> Result<Regex> {
    let words: Vec<String> = phrase.text.split(' ').map(regex::escape).collect();
    Regex::new(&format!(r"(?i)\b{}\b", words.join(r"\s+"))).context("cannot compile the pattern of a phrase")
}

fn has_sentences(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
        || SCRIPTS.iter().any(|script| path == *script || script.ends_with('/') && path.starts_with(script))
}

/// The text without the marks of comments and continued strings, so that a phrase over two lines is found.
/// Underscores become spaces, so that phrases are found in names.
fn running_text(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches(['/', '!', '#', '*', '>', '-']).trim_end_matches('\\'));
    lines.collect::<Vec<_>>().join(" ").replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&sources(&[(path, text)])).unwrap().len()
    }

    #[test]
    fn a_phrase_is_found_in_comments_strings_names_documents_and_scripts() {
        assert_eq!(found("crates/a/src/lib.rs", "/// Written anew.\nfn a() {}"), 1);
        assert_eq!(found("crates/a/src/lib.rs", "const A: &str = \"Whoever asks\";"), 1);
        assert_eq!(found("crates/a/src/lib.rs", "fn it_is_told_of_a_change() {}"), 1);
        assert_eq!(found("docs/a.md", "The part thereof."), 1);
        assert_eq!(found("deploy/a.yaml", "# raises clusters"), 1);
        assert_eq!(found("test", "step \"anew\""), 1);
        assert_eq!(found("scripts/setup", "# anew"), 1);
    }

    #[test]
    fn a_phrase_that_is_broken_over_two_lines_is_found() {
        assert_eq!(found("crates/a/src/lib.rs", "/// A host is told\n/// of it.\nfn a() {}"), 1);
        assert_eq!(found("crates/a/src/lib.rs", "const A: &str = \"is told \\\n    of it\";"), 1);
    }

    #[test]
    fn every_occurrence_counts() {
        assert_eq!(found("docs/a.md", "anew and anew"), 2);
    }

    #[test]
    fn a_word_within_another_word_is_not_a_phrase() {
        assert_eq!(found("docs/a.md", "The manewer retold offers."), 0);
    }
}
