//! Failures as the ports speak of them.

use kubeon_wire::{Category, StepFailure};

pub(crate) fn failure(category: Category, cause: impl Into<String>) -> StepFailure {
    StepFailure { category, cause: cause.into(), log: Vec::new() }
}

/// The last `count` lines of a program's words.
pub(crate) fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The kind of failure that a program's words on standard error tell of.
pub(crate) fn category_of(words: &str) -> Category {
    let says = |text: &str| words.contains(text);
    if says("No space left") || says("Disk quota exceeded") || says("Cannot allocate memory") {
        Category::Exhausted
    } else {
        Category::Failed
    }
}
