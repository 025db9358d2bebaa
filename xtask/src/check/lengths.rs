//! Files have a limited length.

use super::finding::RuleFinding;
use super::sources::Sources;

const RULE: &str = "length";
/// Lines of a file without its tests.
const FILE_LINES: usize = 500;
/// Lines of a `main.rs`.
const MAIN_LINES: usize = 100;

/// Finds files that are too long.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let code = sources.texts.iter().filter(|(path, _)| path.ends_with(".rs") && !sources.is_test(path));
    let mut findings = Vec::new();
    for (path, text) in code {
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        let limit = if path.ends_with("/main.rs") { MAIN_LINES } else { FILE_LINES };
        if lines > limit {
            findings.push(RuleFinding::new(
                RULE,
                format!("{path} has {lines} lines without tests; the limit is {limit}"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    #[test]
    fn a_file_that_is_too_long_without_its_tests_is_found() {
        let (long, short) = ("// line\n".repeat(501), "// line\n".repeat(500));
        let sources = sources(&[
            ("crates/a/src/long.rs", &long),
            ("crates/a/src/short.rs", &format!("{short}#[cfg(test)]\nmod tests {{}}\n")),
            ("crates/a/src/main.rs", &short),
            ("crates/a/tests/long.rs", &long),
        ]);
        let found: Vec<String> = check(&sources).into_iter().map(|finding| finding.text).collect();
        assert_eq!(
            found,
            [
                "crates/a/src/long.rs has 501 lines without tests; the limit is 500",
                "crates/a/src/main.rs has 500 lines without tests; the limit is 100"
            ]
        );
    }
}
