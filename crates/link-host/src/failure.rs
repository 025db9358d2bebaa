//! Constructors of [`StepFailure`], the failure type of the ports.

use kubeon_wire::{Category, StepFailure};

pub(crate) fn failure(category: Category, cause: impl Into<String>) -> StepFailure {
    StepFailure { category, cause: cause.into(), log: Vec::new() }
}

/// The last `count` lines of a program's output.
pub(crate) fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The category of a failure, from a program's standard error.
pub(crate) fn category_of(stderr: &str) -> Category {
    let has = |text: &str| stderr.contains(text);
    if has("No space left") || has("Disk quota exceeded") || has("Cannot allocate memory") {
        Category::Exhausted
    } else {
        Category::Failed
    }
}
