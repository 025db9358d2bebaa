//! `kubeon image`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_bundle::image::{ImageArchive, load_archive};
use kubeon_link_host::Copy;

use super::Context;
use super::talk_to::{AT_ONCE, Nodes, output};
use crate::args::bundle::{ImageArgs, ImageCommand, ImageLoad};
use crate::engine::{Engine, members};
use crate::output::words;
use crate::stop::Stop;

/// Longest that importing one archive may take.
const IMPORT: Duration = Duration::from_secs(600);
/// Where archives lie on a node until they are imported.
const PLACE: &str = "/var/lib/kubeon/images";

/// Does what the command line says about images.
pub async fn run(context: &Context<'_>, args: &ImageArgs) -> Result<(), Stop> {
    match &args.command {
        None => super::help(context.talk, &["image"]),
        Some(ImageCommand::Load(args)) => load(context, args).await,
    }
}

async fn load(context: &Context<'_>, args: &ImageLoad) -> Result<(), Stop> {
    let engine = Engine::new(context)?;
    let (files, cluster) = sort_words(&engine, &args.words)?;
    let archives: Vec<(PathBuf, ImageArchive)> = files
        .into_iter()
        .map(|file| {
            Ok((
                file.clone(),
                load_archive(&file).map_err(|error| Stop::refused(crate::stop::chain(&error)))?,
            ))
        })
        .collect::<Result<_, Stop>>()?;
    let state = engine.find(cluster.as_deref())?;
    let nodes = Nodes::of(&engine, &state, members(&state.spec), &args.login, &args.contact).await?;
    for (file, archive) in &archives {
        let names = if archive.names.is_empty() {
            "an image without a name".to_owned()
        } else {
            archive.names.join(", ")
        };
        let count = words::count(nodes.members.len(), "node");
        let size = words::size(archive.size);
        if args.dry_run {
            context.talk.result(&format!("{names} ({size}) to {count} of {}\n", state.name))?;
            continue;
        }
        import(context, &nodes, file, archive).await?;
        context.talk.result(&format!("{names} is on {count} of {} ({size})\n", state.name))?;
    }
    if args.dry_run {
        context.talk.say("Nothing was written.");
    }
    Ok(())
}

/// The last word names a cluster when one is known by that name, whatever lies in this folder, or when there is no
/// such file.
fn sort_words(engine: &Engine<'_>, words: &[PathBuf]) -> Result<(Vec<PathBuf>, Option<String>), Stop> {
    let mut files = words.to_vec();
    let cluster = match files.last() {
        Some(last) if files.len() > 1 && (!last.exists() || is_known(engine, last)) => {
            files.pop().map(|word| word.display().to_string())
        }
        _ => None,
    };
    match files.iter().find(|file| !file.is_file()) {
        Some(missing) => Err(Stop::refused(format!("there is no image archive {}", missing.display()))),
        None => Ok((files, cluster)),
    }
}

fn is_known(engine: &Engine<'_>, word: &Path) -> bool {
    word.to_str().is_some_and(|name| engine.find(Some(name)).is_ok())
}

async fn import(
    context: &Context<'_>,
    nodes: &Nodes,
    file: &Path,
    archive: &ImageArchive,
) -> Result<(), Stop> {
    // Named by its content: two loads at once cannot disturb each other with different bytes.
    let place = format!("{PLACE}/{}.tar", archive.digest);
    let copy = Copy { source: file.to_owned(), destination: place.clone() };
    let sent = super::copy::send(context, nodes, &copy).await;
    let mut failed: Vec<_> =
        sent.into_iter().filter_map(|(name, result)| Some((name, result.err()?))).collect();
    let line = format!(
        "ctr -n k8s.io images import --digests {place}; result=$?; rm -f {place}; rmdir {PLACE} 2>/dev/null; exit $result"
    );
    let line = line.as_str();
    let broken: Vec<String> = failed.iter().map(|(name, _)| name.clone()).collect();
    let broken = &broken;
    let imported = nodes
        .each(AT_ONCE, |hosts, member| async move {
            if broken.contains(&member.name) {
                return Ok(String::new());
            }
            output(&hosts, HostAddress::from(member.address), line, IMPORT).await
        })
        .await;
    failed.extend(imported.into_iter().filter_map(|(member, result)| Some((member.name, result.err()?))));
    if failed.is_empty() {
        return Ok(());
    }
    let mut stop = Stop::failed(format!(
        "{} was not imported on {}",
        file.display(),
        words::count(failed.len(), "node")
    ));
    stop.rows = failed;
    Err(stop)
}
