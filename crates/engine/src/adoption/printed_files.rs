//! Files that one command prints: the size in bytes and the name of each on a line, then its text.

use std::collections::BTreeMap;

/// The texts of the files by name; `None` if the output is incomplete.
pub(super) fn split(mut output: &str) -> Option<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    while !output.is_empty() {
        let (head, rest) = output.split_once('\n')?;
        let (size, name) = head.trim_start().split_once(' ')?;
        let size = size.parse::<usize>().ok()?;
        files.insert(name.to_owned(), rest.get(..size)?.to_owned());
        output = rest.get(size..)?;
    }
    Some(files)
}
