//! `kubeon completion`.

use clap::CommandFactory as _;

use crate::args::CommandLine;
use crate::args::cli::CompletionArgs;
use crate::cli_error::CliError;
use crate::context::Context;

/// Prints the completion script.
pub(super) fn run(context: &Context<'_>, args: &CompletionArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "kubeon", &mut script);
    context.output.result(&String::from_utf8_lossy(&script))
}
