//! A type name has one meaning: a type that is visible beyond its file is defined once in the workspace.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Ident, Item, Visibility};

use super::finding::RuleFinding;
use super::sources::{Sources, has_cfg_test};

const RULE: &str = "type-defined-twice";

/// Finds visible types that more than one file defines.
pub(crate) fn check(sources: &Sources) -> Vec<RuleFinding> {
    let mut definitions: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, file) in sources.rust.iter().filter(|(path, _)| !sources.is_test(path)) {
        for name in visible_types(&file.items) {
            definitions.entry(name).or_default().insert(path);
        }
    }
    definitions
        .into_iter()
        .filter(|(_, paths)| paths.len() > 1)
        .map(|(name, paths)| {
            let paths: Vec<&str> = paths.into_iter().collect();
            RuleFinding::new(RULE, format!("`{name}` in {}", paths.join(", ")))
        })
        .collect()
}

fn visible_types(items: &[Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        if let Item::Mod(module) = item {
            if let Some((_, items)) = module.content.as_ref().filter(|_| !has_cfg_test(&module.attrs)) {
                names.extend(visible_types(items));
            }
        } else if let Some((attributes, visibility, name)) = type_of(item)
            && !matches!(visibility, Visibility::Inherited)
            && !has_cfg_test(attributes)
        {
            names.push(name.to_string());
        }
    }
    names
}

fn type_of(item: &Item) -> Option<(&[syn::Attribute], &Visibility, &Ident)> {
    match item {
        Item::Struct(item) => Some((&item.attrs, &item.vis, &item.ident)),
        Item::Enum(item) => Some((&item.attrs, &item.vis, &item.ident)),
        Item::Union(item) => Some((&item.attrs, &item.vis, &item.ident)),
        Item::Trait(item) => Some((&item.attrs, &item.vis, &item.ident)),
        Item::Type(item) => Some((&item.attrs, &item.vis, &item.ident)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::sources;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&sources(files)).into_iter().map(|finding| finding.text).collect()
    }

    #[test]
    fn a_visible_type_in_two_files_is_found() {
        let found = found(&[
            ("crates/a/src/lib.rs", "pub struct Host;"),
            ("crates/b/src/lib.rs", "pub(crate) mod inner { pub(super) enum Host {} }"),
        ]);
        assert_eq!(found, ["`Host` in crates/a/src/lib.rs, crates/b/src/lib.rs"]);
    }

    #[test]
    fn private_types_and_types_of_tests_may_share_a_name() {
        let found = found(&[
            ("crates/a/src/lib.rs", "pub struct Host; struct Row; #[cfg(test)] pub struct Table;"),
            ("crates/b/src/lib.rs", "struct Host; struct Row; pub struct Table; #[cfg(test)] mod testing;"),
            ("crates/b/src/testing.rs", "pub struct Host;"),
            ("crates/b/tests/any.rs", "pub struct Host;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
