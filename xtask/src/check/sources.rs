//! The files of the repository that the rules read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kubeon_process::ProgramRun;
use syn::Item;

/// The folder with the rules' own tables and examples, to which the rules about words do not apply.
const OWN: &str = "xtask/src/check/";

/// Time limit for listing the files.
const GIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Every text file, and the parsed Rust files.
pub(crate) struct Sources {
    pub(crate) texts: BTreeMap<String, String>,
    pub(crate) rust: BTreeMap<String, syn::File>,
    tests: BTreeSet<String>,
}

impl Sources {
    /// Reads the files that git tracks or would add.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut git = ProgramRun::new("git", GIT_TIMEOUT);
        git.command()
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root);
        let listing = git.stdout()?;
        let mut texts = Vec::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            // A deleted file is listed until the deletion is committed; a binary file has no text.
            if let Ok(text) = std::fs::read_to_string(root.join(path)) {
                texts.push((path.to_owned(), text));
            }
        }
        Self::parse(texts)
    }

    /// Parses files given by path and text.
    pub(crate) fn parse(texts: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let texts: BTreeMap<String, String> = texts.into_iter().collect();
        let mut rust = BTreeMap::new();
        for (path, text) in texts.iter().filter(|(path, _)| is_rust(path)) {
            let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
            rust.insert(path.clone(), file);
        }
        let tests = rust.iter().flat_map(|(path, file)| test_modules(path, file)).collect();
        Ok(Self { texts, rust, tests })
    }

    /// Whether a file is compiled only for tests.
    pub(crate) fn is_test(&self, path: &str) -> bool {
        let stem = path.trim_end_matches(".rs");
        path.split('/').any(|part| part == "tests" || part == "benches")
            || stem.ends_with("tests")
            || self.tests.iter().any(|test| {
                stem.strip_prefix(test.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
    }
}

/// Whether a path belongs to the rules themselves.
pub(crate) fn is_own(path: &str) -> bool {
    path.starts_with(OWN)
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// The test modules that a file declares with `#[cfg(test)] mod name;`, as paths without `.rs`.
fn test_modules(path: &str, file: &syn::File) -> Vec<String> {
    let folder = module_folder(path);
    file.items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() && has_cfg_test(&module.attrs) => {
                Some(format!("{folder}/{}", module.ident))
            }
            _ => None,
        })
        .collect()
}

/// The folder of the child modules of a file.
pub(crate) fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // The root of a test or of a program in `src/bin` has its modules in its own folder, like `lib.rs`.
    if matches!(name, "lib.rs" | "main.rs" | "mod.rs")
        || folder.ends_with("/tests")
        || folder.ends_with("/bin")
    {
        return folder.to_owned();
    }
    path.trim_end_matches(".rs").to_owned()
}

/// Whether an item exists only in tests.
pub(crate) fn has_cfg_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all") && condition.contains("test")
        }
        _ => false,
    })
}

/// Whether a function is a test of any kind.
pub(crate) fn is_test_function(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| attribute.path().segments.last().is_some_and(|segment| segment.ident == "test"))
}

#[cfg(test)]
pub(crate) fn sources(files: &[(&str, &str)]) -> Sources {
    Sources::parse(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_declared_for_tests_is_test_code_with_everything_below_it() {
        let sources = sources(&[
            ("crates/a/src/lib.rs", "#[cfg(test)] mod testing; mod work;"),
            ("crates/a/src/testing.rs", "mod deep;"),
            ("crates/a/src/testing/deep.rs", ""),
            ("crates/a/src/work.rs", ""),
        ]);
        assert!(sources.is_test("crates/a/src/testing.rs"));
        assert!(sources.is_test("crates/a/src/testing/deep.rs"));
        assert!(sources.is_test("crates/a/tests/any.rs"));
        assert!(!sources.is_test("crates/a/src/work.rs"));
        assert!(!sources.is_test("crates/a/src/testing_api.rs"));
    }
}
