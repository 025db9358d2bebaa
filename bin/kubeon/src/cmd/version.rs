//! `kubeon version`.

use crate::args::Format;
use crate::args::cli::VersionArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// Prints the version.
pub(super) fn run(context: &Context<'_>, args: &VersionArgs) -> Result<(), CliError> {
    let version = env!("CARGO_PKG_VERSION");
    if args.format.output == Format::Table {
        return context.output.result(&format!("kubeon version: {version}\n"));
    }
    let value = serde_json::json!({ "version": version, "architecture": std::env::consts::ARCH });
    let mut table = TextTable::new(&["VERSION", "ARCHITECTURE"]);
    table.row([version.to_owned(), std::env::consts::ARCH.to_owned()]);
    let answer = CommandResult::new(&value, table, vec![version.to_owned()])?;
    context.output.result(&answer.text(args.format.output)?)
}
