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
mod plan;
mod precheck;
mod scale;
mod state;
mod talk_to;
mod version;
pub mod view;

use std::path::Path;

use clap::CommandFactory as _;

use kubeon_api::ClusterName;

use crate::args::{Cli, Command, Environment, Typed};
use crate::cli_error::CliError;
use crate::output::Talk;

/// What every command is given.
pub struct Context<'a> {
    /// The environment.
    pub environment: Environment,
    /// Where words go.
    pub talk: &'a Talk,
}

impl Context<'_> {
    /// A path for people: with `~` where it lies in the home folder.
    pub fn shorten(&self, path: &Path) -> String {
        let inside = self.environment.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        inside.map_or_else(|| path.display().to_string(), |rest| format!("~/{}", rest.display()))
    }

    /// What was typed, with another command in place of the one that was, where that takes the same.
    pub fn typed_as(&self, was: &str, command: &str) -> Option<String> {
        let typed = Typed::read_any(&self.environment.words)?;
        (typed.command() == was).then(|| typed.line(command))
    }

    /// The command that goes on with a cluster, with whatever of the flags is not remembered.
    pub fn again(&self, command: &str, cluster: &ClusterName) -> String {
        let typed = Typed::read(&self.environment.words);
        let line = typed.map(|typed| typed.again(command, cluster.as_str()));
        line.unwrap_or_else(|| format!("kubeon {command} {cluster}"))
    }
}

/// Does what the command line says.
///
/// # Errors
/// Why it could not be done.
pub async fn run(cli: &Cli, environment: Environment, talk: &Talk) -> Result<(), CliError> {
    dispatch(&Context { environment, talk }, cli).await
}

/// Does what a command line says, in surroundings that stand.
///
/// # Errors
/// Why it could not be done.
pub async fn dispatch(context: &Context<'_>, cli: &Cli) -> Result<(), CliError> {
    let Some(command) = &cli.command else { return help(context.talk, &[]) };
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

/// The help of a command that has others below it, to standard output.
///
/// # Errors
/// When standard output is closed.
pub fn help(talk: &Talk, path: &[&str]) -> Result<(), CliError> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in path {
        command = command
            .find_subcommand_mut(name)
            .ok_or_else(|| CliError::failed(format!("there is no help on {name}")))?;
    }
    talk.result(&command.render_help().to_string())
}
