//! Golden files.

use std::path::Path;

/// Compares `text` with the file at `path` and shows the first different line. If `UPDATE_GOLDEN=1` is set in
/// the environment, it writes the file instead; review the change like code.
pub fn assert_golden(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("a golden file is in a folder"))
            .expect("create the folder");
        std::fs::write(path, text).expect("write the golden file");
        return;
    }
    let name = path.display();
    let golden = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{name}: {error}; create it with UPDATE_GOLDEN=1"));
    if let Some(difference) = first_difference(&golden, text) {
        panic!("{name} differs; if the change is intended, run again with UPDATE_GOLDEN=1\n{difference}");
    }
}

/// The first line in which two texts differ, with its number; `None` when they are equal.
pub(crate) fn first_difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (mut left, mut right) = (expected.lines(), found.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => return Some("they differ in line ends only".to_owned()),
            (a, b) if a != b => {
                let show = |line: Option<&str>| line.unwrap_or("(end)").to_owned();
                return Some(format!("line {number}\n  expected  {}\n  found     {}", show(a), show(b)));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_first_line_that_differs() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let found = first_difference("a\nb\nc\n", "a\nx\nc\n").unwrap();
        assert!(
            found.contains("line 2") && found.contains("expected  b") && found.contains("found     x"),
            "{found}"
        );
        assert!(first_difference("a\n", "a\nb\n").unwrap().contains("(end)"));
        assert!(first_difference("a\n", "a").unwrap().contains("line ends"));
    }
}
