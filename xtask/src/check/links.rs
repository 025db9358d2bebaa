//! The links of documents lead to existing files, and the book lists every page.

use std::collections::BTreeSet;

use super::finding::RuleFinding;
use super::sources::Sources;

const RULE: &str = "link";
const BOOK: &str = "docs/";
const SUMMARY: &str = "docs/SUMMARY.md";

/// Finds links in Markdown files to files and folders that do not exist, and pages that the book does not list.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let paths: BTreeSet<&str> = sources.texts.keys().map(String::as_str).collect();
    let mut findings = Vec::new();
    for (path, text) in sources.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for link in links(text) {
            let target = resolve(path, &link);
            if !exists(&paths, &target) {
                findings
                    .push(RuleFinding::new(RULE, format!("{path} links to {link}, which does not exist")));
            } else if path != SUMMARY && path.starts_with(BOOK) && target.ends_with("README.md") {
                // mdBook renames these pages, but not the links to them.
                findings.push(RuleFinding::new(RULE, format!("{path} links to {link}: link to its folder")));
            }
        }
    }
    findings.extend(unlisted_pages(sources));
    findings
}

/// Pages below the book's folder that its summary does not list.
fn unlisted_pages(sources: &Sources) -> Vec<RuleFinding> {
    let Some(summary) = sources.texts.get(SUMMARY) else { return Vec::new() };
    let listed: BTreeSet<String> = links(summary).iter().map(|link| resolve(SUMMARY, link)).collect();
    let pages = sources.texts.keys().filter(|path| path.starts_with(BOOK) && path.ends_with(".md"));
    pages
        .filter(|path| *path != SUMMARY && !listed.contains(*path))
        .map(|path| RuleFinding::new(RULE, format!("{SUMMARY} does not list {path}")))
        .collect()
}

/// The relative targets of the links in a text, without those in code and without anchors.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        }
        if in_fence {
            continue;
        }
        // The pieces at odd positions between backticks are code.
        for prose in line.split('`').step_by(2) {
            let targets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            let relative = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
            links.extend(
                relative
                    .filter(|target| !target.is_empty() && !target.contains(':') && !target.contains(' '))
                    .map(str::to_owned),
            );
        }
    }
    links
}

/// The path of a link's target within the repository.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

fn exists(paths: &BTreeSet<&str>, target: &str) -> bool {
    let folder = format!("{target}/");
    paths.contains(target)
        || paths.range(folder.as_str()..).next().is_some_and(|path| path.starts_with(folder.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&sources(files)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_link_to_a_missing_file_is_found_outside_of_code() {
        let text = "[a](b.md) [c](https://example.org/x) [d](#part) `[e](none.md)`\n```\n[f](none.md)\n```\n[g](../c/d.md#x)";
        assert_eq!(found(&[("a.md", text), ("b.md", "")]), ["a.md links to ../c/d.md, which does not exist"]);
        assert_eq!(
            found(&[("x/a.md", text), ("x/b.md", ""), ("c/d.md", "[folder](../x/)")]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_page_that_the_book_does_not_list_and_a_link_to_a_readme_are_found() {
        let files = [
            ("docs/SUMMARY.md", "- [A](a.md)\n- [B](b/README.md)"),
            ("docs/a.md", "[b](b/README.md)"),
            ("docs/b/README.md", "[folder](./)"),
            ("docs/c.md", ""),
        ];
        assert_eq!(
            found(&files),
            ["docs/a.md links to b/README.md: link to its folder", "docs/SUMMARY.md does not list docs/c.md"]
        );
    }
}
