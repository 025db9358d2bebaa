//! Reserved commands that this version does not support yet.

use crate::args::later::Later;
use crate::cli_error::CliError;

/// Refuses the command and names the alternative.
pub(super) fn run(command: &Later) -> Result<(), CliError> {
    let (name, instead) = command.parts();
    Err(CliError::refused(format!("kubeon {name} is not supported yet")).row("instead", instead))
}
