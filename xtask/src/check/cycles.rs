//! The files of a crate do not import from each other in a cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use super::finding::RuleFinding;
use super::module_tree::ModuleTree;
use super::sources::Sources;

const RULE: &str = "import-cycle";

/// Finds the files of each program and library that import from each other, directly or through others.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let mut findings = BTreeSet::new();
    for root in sources.rust.keys().filter(|path| is_root(path)) {
        let edges = ModuleTree::read(sources, root).edges();
        let graph: DiGraphMap<&str, ()> =
            edges.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        for mut files in tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1) {
            files.sort_unstable();
            let cycle = shortest_cycle(&edges, &files).join(" -> ");
            let text = format!("{} files import from each other: {}; {cycle}", files.len(), files.join(", "));
            findings.insert(RuleFinding::new(RULE, text));
        }
    }
    findings.into_iter().collect()
}

fn is_root(path: &str) -> bool {
    path.ends_with("src/lib.rs") || path.ends_with("src/main.rs") || path.contains("/src/bin/")
}

/// The shortest path from one of the files back to itself.
fn shortest_cycle<'a>(edges: &'a BTreeSet<(String, String)>, files: &[&'a str]) -> Vec<&'a str> {
    let cycles = files.iter().map(|start| cycle_from(edges, files, start));
    cycles.filter(|cycle| !cycle.is_empty()).min_by_key(Vec::len).unwrap_or_default()
}

fn cycle_from<'a>(edges: &'a BTreeSet<(String, String)>, files: &[&'a str], start: &'a str) -> Vec<&'a str> {
    let mut came_from = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(file) = open.pop_front() {
        let next = edges.iter().filter(|(from, to)| from == file && files.contains(&to.as_str()));
        for (_, to) in next {
            if to == start {
                return path_back(&came_from, start, file);
            }
            if !came_from.contains_key(to.as_str()) {
                came_from.insert(to.as_str(), file);
                open.push_back(to);
            }
        }
    }
    Vec::new()
}

fn path_back<'a>(came_from: &BTreeMap<&'a str, &'a str>, start: &'a str, end: &'a str) -> Vec<&'a str> {
    let mut cycle = vec![start, end];
    while let Some(before) = cycle.last().and_then(|file| came_from.get(file)) {
        cycle.push(before);
    }
    // A file that imports from itself appears only once.
    if end == start {
        cycle.truncate(1);
    }
    cycle.reverse();
    cycle
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&sources(files)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_found() {
        let found = found(&[
            ("crates/a/src/lib.rs", "mod b; mod c;"),
            ("crates/a/src/b.rs", "use crate::c::C; pub(crate) struct B(C);"),
            ("crates/a/src/c.rs", "pub(crate) struct C; fn f() -> Option<super::b::B> { None }"),
        ]);
        assert_eq!(
            found,
            ["2 files import from each other: crates/a/src/b.rs, crates/a/src/c.rs; \
              crates/a/src/b.rs -> crates/a/src/c.rs -> crates/a/src/b.rs"]
        );
    }

    #[test]
    fn a_parent_and_a_child_that_use_each_other_are_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;"),
            ("crates/a/src/b.rs", "mod c; pub(crate) struct B; fn f() { c::g() }"),
            ("crates/a/src/b/c.rs", "use super::B; pub(super) fn g(_: B) {}"),
        ];
        assert_eq!(found(&files).len(), 1);
    }

    #[test]
    fn a_cycle_through_three_files_is_found_also_when_paths_are_inline_or_in_macros() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; mod d; use c::C;"),
            ("crates/a/src/b.rs", "pub(crate) fn b() { crate::c::c() }"),
            ("crates/a/src/c.rs", "pub(crate) fn c() { println!(\"{}\", crate::d::d()) }"),
            ("crates/a/src/d.rs", "use crate::b; pub(crate) fn d() -> u8 { b::b(); 0 }"),
        ];
        let found = found(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("3 files"), "{found:?}");
    }

    #[test]
    fn a_declared_module_alone_and_a_parent_above_others_are_not_a_cycle() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; pub use b::f; mod shared;"),
            ("crates/a/src/b.rs", "mod c; pub fn f() { c::g() }"),
            (
                "crates/a/src/b/c.rs",
                "use crate::shared::Shared; pub(super) fn g() -> Option<Shared> { None }",
            ),
            ("crates/a/src/shared.rs", "pub(crate) struct Shared;"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }

    #[test]
    fn an_item_belongs_to_the_file_that_defines_it_not_to_those_that_export_it() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; pub use b::B; pub use c::*;"),
            ("crates/a/src/b.rs", "pub struct B;"),
            ("crates/a/src/c.rs", "use crate::B; pub struct C(B);"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
        let cycle = [
            ("crates/a/src/lib.rs", "mod b; mod c; pub use b::B; pub use c::*;"),
            ("crates/a/src/b.rs", "pub struct B(crate::C);"),
            ("crates/a/src/c.rs", "use crate::B; pub struct C(B);"),
        ];
        assert_eq!(found(&cycle).len(), 1);
    }

    #[test]
    fn imports_of_tests_do_not_count() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; fn f() { b::g() }"),
            (
                "crates/a/src/b.rs",
                "pub fn g() {} #[cfg(test)] mod tests { use crate::f; } #[cfg(test)] use crate::f;",
            ),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
    }
}
