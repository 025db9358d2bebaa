//! `kubeon copy`.

use kubeon_api::HostAddress;
use kubeon_link_host::{Copied, Copy};

use super::Context;
use super::talk_to::{AT_ONCE, Nodes};
use crate::args::day::CopyArgs;
use crate::display::spinner::Spinner;
use crate::engine::Engine;
use crate::output::words;
use crate::stop::Stop;

/// Copies a file or folder to nodes.
pub async fn run(context: &Context<'_>, args: &CopyArgs) -> Result<(), Stop> {
    if let Err(error) = std::fs::metadata(&args.source) {
        return Err(Stop::refused(format!("cannot read {}: {error}", args.source.display())));
    }
    let engine = Engine::new(context)?;
    let nodes = Nodes::selected(&engine, &args.selector, &args.login, &args.contact).await?;
    if args.dry_run {
        for member in &nodes.members {
            context.talk.result(&format!("{}  {}\n", member.name, args.destination))?;
        }
        context.talk.say("Nothing was written.");
        return Ok(());
    }
    copy(context, &nodes, &Copy { source: args.source.clone(), destination: args.destination.clone() }).await
}

/// Copies to all nodes and tells where it went.
///
/// # Errors
/// When it failed on some node; the others have it.
pub async fn copy(context: &Context<'_>, nodes: &Nodes, copy: &Copy) -> Result<(), Stop> {
    let results = send(context, nodes, copy).await;
    let width = nodes.members.iter().map(|member| member.name.len()).max().unwrap_or(0);
    let mut failed = Vec::new();
    for (name, result) in results {
        match result {
            Ok(copied) => {
                let (files, size) = (
                    words::count(usize::try_from(copied.files).unwrap_or(usize::MAX), "file"),
                    words::size(copied.bytes),
                );
                context.talk.result(&format!("{name:width$}  {}  ({files}, {size})\n", copied.path))?;
            }
            Err(why) => failed.push((name, why)),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let count = words::count(nodes.members.len(), "node");
    let mut stop =
        Stop::failed(format!("{} was not copied to {} of {count}", copy.source.display(), failed.len()));
    stop.rows = failed;
    Err(stop)
}

/// Copies to all nodes side by side.
pub async fn send(
    context: &Context<'_>,
    nodes: &Nodes,
    copy: &Copy,
) -> Vec<(String, Result<Copied, String>)> {
    let spinner = Spinner::new(context.talk);
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
