//! Commands that this version does not have yet.

use kubeon_api::Version;

use crate::args::later::Later;
use crate::cli_error::CliError;

/// Refuses, and says what serves today.
pub(super) fn run(command: &Later) -> Result<(), CliError> {
    let (name, words, instead) = command.parts();
    if let (Later::Upgrade(_), Some(version)) =
        (command, words.iter().filter(|word| !word.starts_with('-')).nth(1))
        && version.parse::<Version>().is_err()
    {
        return Err(CliError::refused(format!(
            "Input version [{version}] error: not vMAJOR.MINOR.PATCH, such as v1.36.3"
        )));
    }
    Err(not_yet(name, instead))
}

/// The refusal itself.
pub(super) fn not_yet(name: &str, instead: &str) -> CliError {
    CliError::refused(format!("kubeon {name} is not there yet")).row("instead", instead)
}
