//! One file for each command.

pub mod bundle;
mod choose;
mod completion;
mod copy;
mod create;
mod destroy;
mod display;
mod exec;
mod image;
pub mod lab;
mod later;
mod ls;
mod meta;
mod nodes;
mod plan;
mod precheck;
mod scale;
mod state;
mod version;
pub mod view;

use crate::args::{Cli, Command, Environment};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::help::help;
use crate::output::CliOutput;

/// Does what the command line says.
///
/// # Errors
/// Why it could not be done.
pub async fn run(cli: &Cli, environment: Environment, output: &CliOutput) -> Result<(), CliError> {
    dispatch(&Context { environment, output }, cli).await
}

/// Does what a command line says, in surroundings that stand.
///
/// # Errors
/// Why it could not be done.
async fn dispatch(context: &Context<'_>, cli: &Cli) -> Result<(), CliError> {
    let Some(command) = &cli.command else { return help(context.output, &[]) };
    match command {
        Command::Create(args) => create::run(context, args).await,
        Command::Plan(args) => plan::run(context, args).await,
        Command::Precheck(args) => precheck::run(context, args).await,
        Command::Display(args) => display::run(context, args).await,
        Command::Ls(args) => ls::run(context, args).await,
        Command::Use(args) => choose::run(context, args).await,
        Command::Exec(args) => exec::run(context, args).await,
        Command::Copy(args) => copy::run(context, args).await,
        Command::Image(args) => image::run(context, args).await,
        Command::Addon(args) => scale::add(context, args).await,
        Command::Delon(args) => scale::remove(context, args).await,
        Command::Destroy(args) => destroy::run(context, args).await,
        Command::View(args) => view::run(context, args),
        Command::Bundle(args) => bundle::run(context, args).await,
        Command::Lab(args) => lab::run(context, args).await,
        Command::Meta(args) => meta::run(context, args).await,
        Command::Completion(args) => completion::run(context, args),
        Command::State(args) => state::run(context, args),
        Command::Version(args) => version::run(context, args),
        Command::Later(command) => later::run(command),
    }
}
