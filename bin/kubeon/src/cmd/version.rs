//! `kubeon version`.

use std::collections::BTreeMap;

use crate::args::Format;
use crate::args::cli::VersionArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};

/// The commit of the source, in programs that `cargo xtask dist` builds.
const COMMIT: Option<&str> = option_env!("KUBEON_COMMIT");

/// Prints the version; with more columns also the commit of the source and the digests of the attached files.
pub(super) fn run(context: &Context<'_>, args: &VersionArgs) -> Result<(), CliError> {
    let version = env!("CARGO_PKG_VERSION");
    if args.format.output == Format::Table {
        return context.output.result(&format!("kubeon version: {version}\n"));
    }
    let programs: BTreeMap<String, String> = match &context.environment.program {
        Some(program) => kubeon_attachment::list(program)
            .map_err(|error| CliError::failed(format!("cannot read {}: {error}", program.display())))?
            .into_iter()
            .map(|attachment| (attachment.name, attachment.digest.to_string()))
            .collect(),
        None => BTreeMap::new(),
    };
    let value = serde_json::json!({
        "version": version,
        "architecture": std::env::consts::ARCH,
        "commit": COMMIT,
        "attached": programs,
    });
    let mut table = TextTable::new(&["VERSION", "ARCHITECTURE", "COMMIT", "ATTACHED"]);
    let names: Vec<String> =
        programs.iter().map(|(name, digest)| format!("{name} sha256:{digest:.12}")).collect();
    let programs = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    table.row([
        version.to_owned(),
        std::env::consts::ARCH.to_owned(),
        COMMIT.unwrap_or("unknown").to_owned(),
        programs,
    ]);
    let answer = CommandResult::new(&value, table, vec![version.to_owned()])?;
    context.output.result(&answer.text(args.format.output)?)
}
