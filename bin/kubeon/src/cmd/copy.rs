//! `kubeon copy`.

use std::path::Path;

use kubeon_engine::cluster_nodes::ClusterNodes;
use kubeon_link_host::{Copied, Copy};
use serde::Serialize;

use crate::args::Format;
use crate::args::day::CopyArgs;
use crate::cli_error::CliError;
use crate::context::Context;
use crate::display::spinner::Spinner;
use crate::output::{CommandResult, TextTable, words};

/// Copies a file or folder to nodes.
pub(super) async fn run(context: &Context<'_>, args: &CopyArgs) -> Result<(), CliError> {
    if let Err(error) = std::fs::metadata(&args.source) {
        return Err(CliError::refused(format!("cannot read {}: {error}", args.source.display())));
    }
    let engine = context.engine()?;
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login.access(&args.contact)).await?;
    if args.dry_run {
        let planned =
            |name: &String| CopyResult { node: name.clone(), path: args.destination.clone(), sizes: None };
        let names: Vec<_> = nodes.members.iter().map(|member| member.name.clone()).collect();
        print(context, &names.iter().map(planned).collect::<Vec<_>>(), args.format.output)?;
        context.output.info("Nothing was written.");
        return Ok(());
    }
    let copy = Copy { source: args.source.clone(), destination: args.destination.clone() };
    let (mut copied, mut failed) = (Vec::new(), Vec::new());
    let results = nodes.copy(&copy, &Spinner::new(context.output)).await;
    for (member, result) in results {
        match result {
            Ok(Copied { path, files, bytes }) => {
                copied.push(CopyResult { node: member.name, path, sizes: Some(Sizes { files, bytes }) });
            }
            Err(why) => failed.push((member.name, why)),
        }
    }
    print(context, &copied, args.format.output)?;
    if failed.is_empty() {
        return Ok(());
    }
    Err(not_copied(&copy.source, failed, &nodes))
}

/// The error about nodes that did not get a file, with the causes.
pub(super) fn not_copied(source: &Path, failed: Vec<(String, String)>, nodes: &ClusterNodes) -> CliError {
    let count = words::count(nodes.members.len(), "node");
    let title = format!("{} was not copied to {} of {count}", source.display(), failed.len());
    let mut error = CliError::failed(title);
    error.rows = failed;
    error.remedy(nodes.contact.remedy().as_ref())
}

/// A copy on a node.
#[derive(Debug, Serialize)]
struct CopyResult {
    node: String,
    path: String,
    /// The copied files; `None` in a dry run.
    #[serde(flatten)]
    sizes: Option<Sizes>,
}

#[derive(Debug, Serialize)]
struct Sizes {
    files: u64,
    bytes: u64,
}

/// Prints the destinations.
fn print(context: &Context<'_>, results: &[CopyResult], format: Format) -> Result<(), CliError> {
    let mut table = TextTable::new(&["", "", ""]);
    for CopyResult { node, path, sizes } in results {
        let sizes = sizes.as_ref().map_or_else(String::new, |Sizes { files, bytes }| {
            let files = words::count(usize::try_from(*files).unwrap_or(usize::MAX), "file");
            format!("({files}, {})", words::size(*bytes))
        });
        table.row([node.clone(), path.clone(), sizes]);
    }
    let names = results.iter().map(|result| result.node.clone()).collect();
    context.output.result(&CommandResult::new(&results, table, names)?.text(format)?)
}
