//! Redacts secrets in everything that the runner writes.
//!
//! The secrets are the contents of the mounted files: a password as plain text, base64 and JSON; a key by its lines, as
//! output arrives line by line.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The replacement of a secret.
const REDACTED: &[u8] = b"***";
/// Redacting shorter texts would damage ordinary output.
const SHORTEST: usize = 4;
/// Shorter lines of a key are not redacted: they reveal nothing.
const SHORTEST_LINE: usize = 8;
/// Longer texts are redacted by their lines only.
const LONGEST: usize = 6 * 1024;
/// A larger file is neither a key nor a password.
const LARGEST_FILE: u64 = 256 * 1024;
/// Files in the same folder that are not secret.
const PUBLIC: &[&str] = &["username", "known_hosts"];

/// Finds secrets in text and replaces them.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    find: Option<AhoCorasick>,
    longest: usize,
}

impl Redactor {
    /// Redacts these texts.
    #[must_use]
    pub(crate) fn new(secrets: &[String]) -> Self {
        let mut texts: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
        texts.sort_unstable();
        texts.dedup();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let find = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts);
        Self { find: find.ok().filter(|_| longest > 0), longest }
    }

    /// Redacts the contents of the files in a folder and of more files. Unreadable files are skipped, because
    /// the work cannot read them either.
    #[must_use]
    pub(crate) fn of_files(folder: &Path, more: &[&Path]) -> Self {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let named = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            !name.starts_with("..") && !name.ends_with(".pub") && !PUBLIC.contains(&&*name)
        });
        let files = named.map(|entry| entry.path()).chain(more.iter().map(|file| file.to_path_buf()));
        let secrets: Vec<String> = files.filter_map(|file| content(&file)).collect();
        Self::new(&secrets)
    }

    /// The bytes with every secret replaced.
    #[must_use]
    pub(crate) fn redact<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(find) = &self.find else { return Cow::Borrowed(bytes) };
        let mut clean: Vec<u8> = Vec::new();
        let mut from = 0;
        for found in find.find_iter(bytes) {
            clean.extend_from_slice(bytes.get(from..found.start()).unwrap_or_default());
            clean.extend_from_slice(REDACTED);
            from = found.end();
        }
        if from == 0 {
            return Cow::Borrowed(bytes);
        }
        clean.extend_from_slice(bytes.get(from..).unwrap_or_default());
        Cow::Owned(clean)
    }

    /// The text with every secret replaced.
    #[must_use]
    pub(crate) fn redact_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned()
    }

    /// The position at which to split a line that is longer than `limit`. The first piece has at most `limit`
    /// bytes. It does not end inside a character or a secret, also not inside a secret that may continue
    /// after `line`.
    #[must_use]
    pub(crate) fn cut(&self, line: &[u8], limit: usize) -> usize {
        let mut at = limit.saturating_sub(self.longest).max(1).min(line.len());
        let within = |byte: Option<&u8>| byte.is_some_and(|byte| byte & 0xC0 == 0x80);
        for _ in 0..3 {
            at -= usize::from(at > 1 && within(line.get(at)));
        }
        let Some(find) = &self.find else { return at };
        let head = line.get(..limit.min(line.len())).unwrap_or(line);
        let across =
            find.find_iter(head).take_while(|found| found.start() < at).find(|found| found.end() > at);
        across.map_or(at, |found| found.end())
    }
}

fn content(file: &Path) -> Option<String> {
    let metadata = fs::metadata(file).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_FILE {
        return None;
    }
    String::from_utf8(fs::read(file).ok()?).ok()
}

/// The forms in which a secret may appear.
fn forms(secret: &str) -> Vec<String> {
    let whole = secret.trim_end_matches(['\r', '\n']);
    let lines: Vec<&str> = whole.lines().map(str::trim).collect();
    let mut forms = vec![whole.to_owned(), STANDARD.encode(whole), STANDARD.encode(secret)];
    if lines.len() > 1 {
        let significant = |line: &&str| line.len() >= SHORTEST_LINE && !line.starts_with("-----");
        forms.extend(lines.iter().filter(|line| significant(line)).map(|line| (*line).to_owned()));
    } else if let Ok(quoted) = serde_json::to_string(whole) {
        forms.push(quoted.trim_matches('"').to_owned());
        forms.push(whole.trim().to_owned());
    }
    forms.retain(|form| (SHORTEST..=LONGEST).contains(&form.len()));
    // A short or empty file has no secret, and its base64 form has none either.
    if whole.trim().len() < SHORTEST { Vec::new() } else { forms }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        Redactor::new(&secrets.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn redacts_a_password_in_its_forms() {
        let redactor = redactor(&["pa\"ss word\n"]);
        assert_eq!(redactor.redact_text("login pa\"ss word now"), "login *** now");
        assert_eq!(redactor.redact_text(r#"{"p":"pa\"ss word"}"#), r#"{"p":"***"}"#);
        assert_eq!(redactor.redact_text(&STANDARD.encode("pa\"ss word\n")), "***");
        assert_eq!(redactor.redact_text("nothing of it"), "nothing of it");
    }

    #[test]
    fn redacts_every_line_of_a_key_but_not_its_frame() {
        let redactor =
            redactor(&["-----BEGIN KEY-----\nAAAABBBBCCCC\nDDDDEEEEFFFF\nx==\n-----END KEY-----\n"]);
        assert_eq!(redactor.redact_text("got AAAABBBBCCCC"), "got ***");
        assert_eq!(redactor.redact_text("-----BEGIN KEY-----"), "-----BEGIN KEY-----");
    }

    #[test]
    fn does_not_redact_texts_that_are_too_short_to_be_secrets() {
        let redactor = redactor(&["", "\n", "abc"]);
        assert_eq!(redactor.redact_text("abc\n and more"), "abc\n and more");
    }

    #[test]
    fn never_cuts_a_secret_at_any_position() {
        let redactor = redactor(&["secret-text-of-24-letter"]);
        for before in 0..200 {
            let line = format!("{}secret-text-of-24-letter{}", "a".repeat(before), "b".repeat(200));
            let (mut rest, mut redacted) = (line.as_bytes(), String::new());
            while rest.len() > 100 {
                let (piece, more) = rest.split_at(redactor.cut(rest, 100));
                assert!(!piece.is_empty() && piece.len() <= 100);
                redacted.push_str(&String::from_utf8_lossy(&redactor.redact(piece)));
                rest = more;
            }
            redacted.push_str(&String::from_utf8_lossy(&redactor.redact(rest)));
            assert_eq!(redacted, format!("{}***{}", "a".repeat(before), "b".repeat(200)));
        }
    }

    #[test]
    fn never_cuts_a_character() {
        let redactor = Redactor::default();
        let line = "ä€😀".repeat(50);
        let mut rest = line.as_bytes();
        while rest.len() > 20 {
            let (piece, more) = rest.split_at(redactor.cut(rest, 20));
            assert!(std::str::from_utf8(piece).is_ok());
            rest = more;
        }
    }
}
