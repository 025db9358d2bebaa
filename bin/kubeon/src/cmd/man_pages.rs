//! `kubeon man-pages`.

use clap::CommandFactory as _;

use crate::args::CommandLine;
use crate::args::cli::ManPagesArgs;
use crate::cli_error::CliError;

/// Writes a man page for every command.
pub(super) fn run(args: &ManPagesArgs) -> Result<(), CliError> {
    let folder = &args.folder;
    let failed =
        |error: std::io::Error| CliError::failed(format!("cannot write {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(CommandLine::command(), folder).map_err(failed)
}
