//! `kubeon image`: an image goes to the nodes that lack it, side by side, and to no other.
//!
//! ```text
//!   archives ─► every node: what have you? ─► copy, import ─► nodes that lack it
//! ```

mod outcome;
mod present;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_bundle::image::{ImageArchive, load_archive};
use kubeon_link_host::{Copied, Copy};

use super::nodes::{AT_ONCE, ClusterNodes, output};
use crate::args::Format;
use crate::args::bundle::{ImageArgs, ImageCommand, ImageLoad};
use crate::cli_error::CliError;
use crate::context::Context;
use crate::output::{CommandResult, TextTable};
use kubeon_engine::engine::{Engine, members};
use kubeon_engine::selector::Member;
use outcome::{LoadFailure, LoadStep, Loaded};
use present::Present;

/// Longest that importing one archive may take.
const IMPORT: Duration = Duration::from_secs(600);
/// Where archives lie on a node until they are imported.
const PLACE: &str = "/var/lib/kubeon/images";

/// Does what the command line says about images.
pub(super) async fn run(context: &Context<'_>, args: &ImageArgs) -> Result<(), CliError> {
    match &args.command {
        None => crate::help::help(context.output, &["image"]),
        Some(ImageCommand::Load(args)) => load(context, args).await,
    }
}

async fn load(context: &Context<'_>, args: &ImageLoad) -> Result<(), CliError> {
    let engine = context.engine()?;
    let (files, cluster) = sort_words(&engine, &args.words)?;
    let archives: Vec<(PathBuf, ImageArchive)> = files
        .into_iter()
        .map(|file| {
            Ok((
                file.clone(),
                load_archive(&file)
                    .map_err(|error| CliError::refused(kubeon_engine::error::chain(&error)))?,
            ))
        })
        .collect::<Result<_, CliError>>()?;
    let state = engine.find(cluster.as_deref())?;
    let mut nodes =
        ClusterNodes::of(&engine, &state, members(&state.spec), &args.login, &args.contact).await?;
    let people = matches!(args.format.output, Format::Table | Format::Wide);
    let (known, unasked) = known(&nodes, &archives).await;
    let mut told = Vec::new();
    for (file, archive) in &archives {
        let (had, lack): (Vec<_>, Vec<_>) = known.iter().partition(|(_, present)| present.has(archive));
        let names = |nodes: &[&(Member, Present)]| nodes.iter().map(|(node, _)| node.name.clone()).collect();
        nodes.members = lack.iter().map(|(member, _)| member.clone()).collect();
        // One that fails keeps no other from being tried: what is told at the end is all of it.
        let mut failed = unasked.clone();
        if !args.dry_run && !lack.is_empty() {
            failed.extend(import(context, &nodes, file, archive).await);
        }
        let loaded = Loaded::of(&state.name, (file, archive), names(&had), names(&lack), failed);
        if people {
            context.output.result(&format!("{}\n", loaded.text(args.dry_run)))?;
        }
        told.push(loaded);
    }
    if args.dry_run {
        context.output.say("Nothing was written.");
    }
    if !people {
        let whole = told.iter().filter(|loaded| loaded.is_everywhere());
        let images = whole.flat_map(|loaded| loaded.images.clone()).collect();
        context
            .output
            .result(&CommandResult::new(&told, TextTable::new(&[]), images)?.text(args.format.output)?)?;
    }
    outcome::end(&told, args.dry_run, &again(context, &archives, &state.name))
}

/// The same once more: nodes that have an image are left alone.
fn again(context: &Context<'_>, archives: &[(PathBuf, ImageArchive)], cluster: &ClusterName) -> String {
    let plain = || {
        let files = archives.iter().map(|(file, _)| file.display().to_string());
        format!("kubeon image load {} {cluster}", files.collect::<Vec<_>>().join(" "))
    };
    context.typed_as("image load", "image load").unwrap_or_else(plain)
}

/// The last word names a cluster when one is known by that name, whatever lies in this folder, or when there is no
/// such file.
fn sort_words(engine: &Engine<'_>, words: &[PathBuf]) -> Result<(Vec<PathBuf>, Option<String>), CliError> {
    let mut files = words.to_vec();
    let cluster = match files.last() {
        Some(last) if files.len() > 1 && (!last.exists() || is_known(engine, last)) => {
            files.pop().map(|word| word.display().to_string())
        }
        _ => None,
    };
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => Err(CliError::refused(format!("there is no image archive {}", missing.display()))),
        None => Ok((files, cluster)),
    }
}

fn is_known(engine: &Engine<'_>, word: &Path) -> bool {
    word.to_str().is_some_and(|name| engine.find(Some(name)).is_ok())
}

/// Which of the archives' images every node has, and which nodes cannot be asked and why.
async fn known(
    nodes: &ClusterNodes,
    archives: &[(PathBuf, ImageArchive)],
) -> (Vec<(Member, Present)>, Vec<LoadFailure>) {
    let asked = nodes
        .each(AT_ONCE, |hosts, member| async move {
            let host = HostAddress::from(member.address);
            Present::ask(&hosts, host, archives.iter().map(|(_, archive)| archive)).await
        })
        .await;
    let (mut known, mut unasked) = (Vec::new(), Vec::new());
    for (member, answer) in asked {
        match answer {
            Ok(present) => known.push((member, present)),
            Err(cause) => unasked.push(LoadFailure { node: member.name, step: LoadStep::Ask, cause }),
        }
    }
    (known, unasked)
}

/// Brings an archive to nodes and has it imported; answers with those where that failed.
async fn import(
    context: &Context<'_>,
    nodes: &ClusterNodes,
    file: &Path,
    archive: &ImageArchive,
) -> Vec<LoadFailure> {
    // Named by its content: two loads at once cannot disturb each other with different bytes.
    let place = format!("{PLACE}/{}.tar", archive.digest);
    let copy = Copy { source: file.to_owned(), destination: place.clone() };
    let sent = super::copy::send(context, nodes, &copy).await;
    let lost = |(node, result): (String, Result<Copied, String>)| {
        Some(LoadFailure { node, step: LoadStep::Copy, cause: result.err()? })
    };
    let mut failed: Vec<LoadFailure> = sent.into_iter().filter_map(lost).collect();
    // Only an image without a name gets one that is made of its digest.
    let line = format!(
        "{} images import --digests {place}; result=$?; rm -f {place}; \
         rmdir {PLACE} 2>/dev/null; exit $result",
        present::CTR
    );
    let line = line.as_str();
    let broken: Vec<String> = failed.iter().map(|failure| failure.node.clone()).collect();
    let broken = &broken;
    let imported = nodes
        .each(AT_ONCE, |hosts, member| async move {
            if broken.contains(&member.name) {
                return Ok(String::new());
            }
            output(&hosts, HostAddress::from(member.address), line, IMPORT).await
        })
        .await;
    failed.extend(imported.into_iter().filter_map(|(member, result)| {
        Some(LoadFailure { node: member.name, step: LoadStep::Import, cause: result.err()? })
    }));
    failed
}
