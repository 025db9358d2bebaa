//! `kubeon meta`: the meta cluster, which creates clusters from custom resources.

mod export;
mod install;
mod restore;
mod uninstall;
mod up;

use crate::args::meta::{MetaArgs, MetaCommand};
use crate::cli_error::CliError;
use crate::context::Context;

/// Runs the subcommand.
pub(super) async fn run(context: &Context<'_>, args: &MetaArgs) -> Result<(), CliError> {
    match &args.command {
        MetaCommand::Up(args) => up::run(context, args).await,
        MetaCommand::Install(args) => install::run(context, args).await,
        MetaCommand::Uninstall(args) => uninstall::run(context, args).await,
        MetaCommand::Export(args) => export::run(context, args).await,
        MetaCommand::Restore(args) => restore::run(context, args).await,
    }
}
