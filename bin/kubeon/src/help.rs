//! Help of commands that have subcommands.

use clap::CommandFactory as _;

use crate::args::CommandLine;
use crate::cli_error::CliError;
use crate::output::CliOutput;

/// Prints the help of a command that has subcommands to standard output.
///
/// # Errors
/// When standard output is closed.
pub(crate) fn help(output: &CliOutput, path: &[&str]) -> Result<(), CliError> {
    let mut root = CommandLine::command();
    root.build();
    let mut command = &mut root;
    for name in path {
        command = command
            .find_subcommand_mut(name)
            .ok_or_else(|| CliError::failed(format!("there is no help for {name}")))?;
    }
    output.result(&command.render_help().to_string())
}
