//! Reserved commands that this version does not support yet.

use kubeon_api::Version;

use crate::args::later::Later;
use crate::cli_error::CliError;

/// Refuses the command and names the alternative.
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
    Err(unsupported(name, instead))
}

/// The refusal of an unsupported command.
pub(super) fn unsupported(name: &str, instead: &str) -> CliError {
    CliError::refused(format!("kubeon {name} is not supported yet")).row("instead", instead)
}
