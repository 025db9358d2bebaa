//! One file for each command.

mod abort;
mod adopt;
pub(crate) mod bundle;
mod certs;
mod change;
mod choose;
mod cloud;
mod completion;
mod config;
mod copy;
mod create;
mod destroy;
mod display;
mod etcd;
mod exec;
mod image;
pub(crate) mod lab;
mod ls;
mod man_pages;
mod meta;
mod module;
mod node_version;
mod only_parts;
mod open_rotation;
mod pause;
mod plan;
mod precheck;
mod rollback;
mod scale;
mod server;
mod server_plan;
mod state;
mod upgrade;
mod upgrade_plan;
mod upgrade_request;
mod version;
pub(crate) mod view;
mod view_config;

use crate::args::upgrade::RedoCommand;
use crate::args::{CliCommand, CliEnvironment, CommandLine};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::help::help;
use crate::output::CliOutput;

/// Runs the command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(
    cli: &CommandLine,
    environment: CliEnvironment,
    output: &CliOutput,
) -> Result<(), CliError> {
    dispatch(&Context { environment, output }, cli).await
}

/// Runs the command in a given context.
///
/// # Errors
/// The error of the command.
async fn dispatch(context: &Context<'_>, cli: &CommandLine) -> Result<(), CliError> {
    let Some(command) = &cli.command else { return help(context.output, &[]) };
    if let Some(url) = cli.server.server.as_ref().filter(|_| server::is_asked(command)) {
        return server::run(context, url, cli).await;
    }
    match command {
        CliCommand::Create(args) => create::run(context, args).await,
        CliCommand::Plan(args) => plan::run(context, args).await,
        CliCommand::Precheck(args) => precheck::run(context, args).await,
        CliCommand::Display(args) => display::run(context, args).await,
        CliCommand::Ls(args) => ls::run(context, args).await,
        CliCommand::Use(args) => choose::run(context, args).await,
        CliCommand::Exec(args) => exec::run(context, args).await,
        CliCommand::Copy(args) => copy::run(context, args).await,
        CliCommand::Module(command) => module::run(context, command).await,
        CliCommand::Image(args) => image::run(context, args).await,
        CliCommand::Addon(args) => scale::add(context, args).await,
        CliCommand::Delon(args) => scale::remove(context, args).await,
        CliCommand::Replace(args) => scale::replace(context, args).await,
        CliCommand::Readdress(args) => scale::readdress(context, args).await,
        CliCommand::Adopt(args) => adopt::run(context, args).await,
        CliCommand::Upgrade(args) => upgrade::run(context, args).await,
        CliCommand::Abort(args) => abort::run(context, args).await,
        CliCommand::Pause(args) => pause::pause(context, args).await,
        CliCommand::Resume(args) => pause::resume(context, args).await,
        CliCommand::Rollback(args) => rollback::run(context, args).await,
        CliCommand::Config(command) => config::run(context, command).await,
        CliCommand::Etcd(args) => etcd::run(context, args).await,
        CliCommand::Cloud(command) => cloud::run(context, command).await,
        CliCommand::Certs(args) => certs::run(context, args).await,
        CliCommand::Destroy(args) => destroy::run(context, args).await,
        CliCommand::View(args) => view::run(context, args).await,
        CliCommand::Bundle(args) => bundle::run(context, args).await,
        CliCommand::Lab(args) => lab::run(context, args).await,
        CliCommand::Meta(args) => meta::run(context, args).await,
        CliCommand::Operations(_) => Err(server::needs_server("operations")),
        CliCommand::Approve(_) => Err(server::needs_server("approve")),
        CliCommand::Logs(_) => Err(server::needs_server("logs")),
        CliCommand::Completion(args) => completion::run(context, args),
        CliCommand::ManPages(args) => man_pages::run(args),
        CliCommand::State(args) => state::run(context, args),
        CliCommand::Version(args) => version::run(context, args),
        CliCommand::Download(args) => bundle::build_bundle(context, &args.build).await,
        CliCommand::Redo(RedoCommand::Hosts(args) | RedoCommand::Images(args)) => {
            pause::redo(context, args).await
        }
    }
}
