//! `kubeon copy`.

use kubeon_api::HostAddress;
use kubeon_link_host::{Copied, Copy};
use serde::Serialize;

use super::nodes::{AT_ONCE, ClusterNodes};
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
    let nodes = ClusterNodes::selected(&engine, &args.selector, &args.login, &args.contact).await?;
    if args.dry_run {
        let there =
            |name: &String| Arrived { node: name.clone(), path: args.destination.clone(), sizes: None };
        let names: Vec<_> = nodes.members.iter().map(|member| member.name.clone()).collect();
        tell(context, &names.iter().map(there).collect::<Vec<_>>(), args.format.output)?;
        context.output.say("Nothing was written.");
        return Ok(());
    }
    let copy = Copy { source: args.source.clone(), destination: args.destination.clone() };
    let (mut arrived, mut failed) = (Vec::new(), Vec::new());
    for (node, result) in send(context, &nodes, &copy).await {
        match result {
            Ok(Copied { path, files, bytes }) => {
                arrived.push(Arrived { node, path, sizes: Some(Sizes { files, bytes }) });
            }
            Err(why) => failed.push((node, why)),
        }
    }
    tell(context, &arrived, args.format.output)?;
    if failed.is_empty() {
        return Ok(());
    }
    let count = words::count(nodes.members.len(), "node");
    let mut stop =
        CliError::failed(format!("{} was not copied to {} of {count}", copy.source.display(), failed.len()));
    stop.rows = failed;
    Err(stop)
}

/// A node that has it.
#[derive(Debug, Serialize)]
struct Arrived {
    node: String,
    path: String,
    /// What was copied; `None` when nothing was yet.
    #[serde(flatten)]
    sizes: Option<Sizes>,
}

#[derive(Debug, Serialize)]
struct Sizes {
    files: u64,
    bytes: u64,
}

/// Tells where it went.
fn tell(context: &Context<'_>, arrived: &[Arrived], format: Format) -> Result<(), CliError> {
    let mut table = TextTable::new(&["", "", ""]);
    for Arrived { node, path, sizes } in arrived {
        let sizes = sizes.as_ref().map_or_else(String::new, |Sizes { files, bytes }| {
            let files = words::count(usize::try_from(*files).unwrap_or(usize::MAX), "file");
            format!("({files}, {})", words::size(*bytes))
        });
        table.row([node.clone(), path.clone(), sizes]);
    }
    let names = arrived.iter().map(|one| one.node.clone()).collect();
    context.output.result(&CommandResult::new(&arrived, table, names)?.text(format)?)
}

/// Copies to all nodes side by side.
pub(super) async fn send(
    context: &Context<'_>,
    nodes: &ClusterNodes,
    copy: &Copy,
) -> Vec<(String, Result<Copied, String>)> {
    let spinner = Spinner::new(context.output);
    let shown = &spinner;
    let results = nodes
        .each(AT_ONCE, |hosts, member| async move {
            shown.begin(&member.name, "connecting");
            let told = |done: u64, total: u64| {
                let sizes = format!("{:.1}/{}", words::mebibytes(done), words::size(total));
                shown.says(&member.name, &format!("copying {sizes}"));
            };
            let result = hosts.copy(HostAddress::from(member.address), copy, &told).await;
            match &result {
                Ok(_) => shown.end(&member.name, Ok("copied")),
                Err(failure) => shown.end(&member.name, Err(&failure.cause)),
            }
            result.map_err(|failure| failure.cause)
        })
        .await;
    results.into_iter().map(|(member, result)| (member.name, result)).collect()
}
