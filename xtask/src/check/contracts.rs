//! Every rule of a contract names the tests that prove it, and these tests exist.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::finding::RuleFinding;
use super::sources::{Sources, is_test_function};

const RULE: &str = "contract";
const FOLDER: &str = "docs/contracts/";

/// The cell of a rule that is not implemented yet.
const NOT_BUILT: &str = "not built";

/// Finds rows of `Rule | Test` tables that name no test, or one that does not exist.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let tests = tests(sources);
    let mut findings = Vec::new();
    let mut rules = 0;
    for (path, text) in sources.texts.iter().filter(|(path, _)| path.starts_with(FOLDER)) {
        for (rule, cell) in rows(text) {
            rules += 1;
            let named = quoted(&cell);
            if named.is_empty() && !cell.starts_with(NOT_BUILT) {
                findings.push(RuleFinding::new(RULE, format!("{path}: {} names no test", number(&rule))));
            }
            for name in named.iter().filter(|name| !exists(&tests, name)) {
                findings.push(RuleFinding::new(RULE, format!("{path}: test `{name}` does not exist")));
            }
        }
    }
    if rules == 0 {
        findings
            .push(RuleFinding::new(RULE, format!("{FOLDER} has no table with the columns Rule and Test")));
    }
    findings
}

/// The number of a rule, which is in bold; the whole text of the rule if it has none.
fn number(rule: &str) -> &str {
    rule.split("**").nth(1).unwrap_or(rule)
}

/// Whether a test with this name exists: `file::function`, or only the function.
fn exists(tests: &BTreeSet<(&str, String)>, name: &str) -> bool {
    match name.split_once("::") {
        Some((file, function)) => tests.contains(&(file, function.to_owned())),
        None => tests.iter().any(|(_, function)| function == name),
    }
}

/// First column and column `Test` of every row of every table that has a column `Test`.
fn rows(text: &str) -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let mut test_column = None;
    for line in text.lines() {
        if !line.trim_start().starts_with('|') {
            test_column = None;
            continue;
        }
        let cells = cells(line);
        let is_separator =
            cells.iter().all(|cell| cell.chars().all(|letter| matches!(letter, '-' | ':' | ' ')));
        match test_column {
            None => test_column = Some(cells.iter().position(|cell| cell == "Test" || cell == "Tests")),
            Some(Some(column)) if !is_separator => {
                let rule = cells.first().cloned().unwrap_or_default();
                rows.push((rule, cells.get(column).cloned().unwrap_or_default()));
            }
            Some(_) => {}
        }
    }
    rows
}

/// The cells of a row. A bar that is escaped or within backticks does not end a cell.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut in_code, mut escaped) = (Vec::new(), String::new(), false, false);
    let line = line.trim().trim_start_matches('|');
    for letter in line.chars() {
        in_code ^= letter == '`';
        if letter == '|' && !in_code && !escaped {
            cells.push(std::mem::take(&mut cell).trim().to_owned());
        } else {
            cell.push(letter);
        }
        escaped = letter == '\\';
    }
    if !cell.trim().is_empty() {
        cells.push(cell.trim().to_owned());
    }
    cells
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Files and names of all test functions, also of those within macros.
fn tests(sources: &Sources) -> BTreeSet<(&str, String)> {
    let mut all = BTreeSet::new();
    for (path, file) in &sources.rust {
        let mut tests = Tests(BTreeSet::new());
        tests.visit_file(file);
        all.extend(tests.0.into_iter().map(|name| (path.as_str(), name)));
    }
    all
}

struct Tests(BTreeSet<String>);

impl<'ast> Visit<'ast> for Tests {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if is_test_function(&function.attrs) {
            self.0.insert(function.sig.ident.to_string());
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let name = call.path.segments.last().map(|segment| segment.ident.to_string());
        if name.as_deref() == Some("proptest") {
            self.0.extend(functions(call.tokens.clone()));
        }
    }
}

fn functions(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let pairs = tokens.windows(2).filter_map(|pair| match pair {
        [TokenTree::Ident(keyword), TokenTree::Ident(name)] if keyword == "fn" => Some(name.to_string()),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod proofs {
    use super::super::sources::sources;
    use super::*;

    const TESTS: (&str, &str) = (
        "crates/a/src/lib.rs",
        "#[test] fn a01_works() {} #[tokio::test] async fn a02_waits() {} fn a03_helps() {}
         proptest! { #[test] fn a04_random(x in 0..9) { work(x); } }",
    );

    fn found(page: &str) -> Vec<String> {
        let sources = sources(&[TESTS, ("docs/contracts/a.md", page)]);
        check(&sources).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn rows_that_name_existing_tests_have_no_finding() {
        let page = "| Rule | Test |\n|---|---|\n| A `a|b` 1 | `a01_works`, `crates/a/src/lib.rs::a02_waits` |\n| B | `a04_random` |\n| C | not built (issue: c) |\n";
        assert_eq!(found(page), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_does_not_exist_is_found() {
        let page = "| Rule | Test |\n|---|---|\n| A | `a03_helps`<br>`crates/b/src/lib.rs::a01_works` |\n| **B1** B | none yet |\n";
        let found = found(page);
        assert_eq!(
            found,
            [
                "docs/contracts/a.md: test `a03_helps` does not exist",
                "docs/contracts/a.md: test `crates/b/src/lib.rs::a01_works` does not exist",
                "docs/contracts/a.md: B1 names no test",
            ]
        );
    }

    #[test]
    fn other_tables_are_not_contracts() {
        let other = "| Field | Meaning |\n|---|---|\n| `name` | `x` |\n";
        assert_eq!(
            found(&format!("{other}\n| Rule | Test |\n|---|---|\n| A | `a01_works` |\n")),
            Vec::<String>::new()
        );
        assert_eq!(found(other), ["docs/contracts/ has no table with the columns Rule and Test"]);
    }
}
