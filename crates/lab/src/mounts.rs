//! Mounts in the machine's own mount namespace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Mounts at or below a folder, innermost first.
pub(crate) fn below(dir: &Path) -> Result<Vec<PathBuf>> {
    let path = Path::new("/proc/self/mountinfo");
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape).map(PathBuf::from);
    let mut found: Vec<_> = points.filter(|point| point.starts_with(dir)).collect();
    found.reverse();
    Ok(found)
}

/// The kernel writes spaces, tabs, line breaks and backslashes of paths as octal numbers.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}
