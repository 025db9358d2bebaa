//! Converts a failed call to the [`StepFailure`] that is sent to the engine. The message is created where the
//! path and the action are known.

use std::io;
use std::path::Path;

use kubeon_wire::{Category, StepFailure};

/// A failure of the given category, without log lines.
#[must_use]
pub fn of(category: Category, cause: impl Into<String>) -> StepFailure {
    StepFailure { category, cause: cause.into(), log: Vec::new() }
}

/// A failure of [`Category::Failed`].
#[must_use]
pub fn failed(cause: impl Into<String>) -> StepFailure {
    of(Category::Failed, cause)
}

/// Adds the action and the path to the error of a call.
pub trait Doing<T> {
    /// `cannot ACTION PATH: …`; a full disk becomes [`Category::Exhausted`].
    ///
    /// # Errors
    /// The failure of the call.
    fn doing(self, action: &str, path: &Path) -> Result<T, StepFailure>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, action: &str, path: &Path) -> Result<T, StepFailure> {
        self.map_err(|error| {
            let error = error.into();
            of(category(&error), format!("cannot {action} {}: {}", path.display(), plain(&error)))
        })
    }
}

/// Whether the disk or a quota is full.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn category(error: &io::Error) -> Category {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
            Category::Exhausted
        }
        io::ErrorKind::Unsupported => Category::Unsupported,
        _ => Category::Failed,
    }
}

/// The error's text without `(os error N)`.
#[must_use]
pub fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_exhausted_and_names_the_path() {
        let full: Result<(), _> = Err(rustix::io::Errno::NOSPC);
        let failure = full.doing("write", Path::new("/var/x")).unwrap_err();
        assert_eq!(failure.category, Category::Exhausted);
        assert_eq!(failure.cause, "cannot write /var/x: no space left on device");
        let other: Result<(), _> = Err(rustix::io::Errno::ACCESS);
        assert_eq!(other.doing("write", Path::new("/x")).unwrap_err().category, Category::Failed);
    }
}
