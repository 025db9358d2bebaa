//! `kubeon image`: an image goes to the nodes that lack it, side by side, and to no other.
//!
//! ```text
//!   archives ─► every node: what have you? ─► copy, import ─► nodes that lack it
//! ```

mod present;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_bundle::image::{ImageArchive, load_archive};
use kubeon_link_host::Copy;
use serde::Serialize;

use super::Context;
use super::talk_to::{AT_ONCE, Nodes, output};
use crate::args::Format;
use crate::args::bundle::{ImageArgs, ImageCommand, ImageLoad};
use crate::engine::{Engine, members};
use crate::output::{Answer, Table, words};
use crate::selector::Member;
use crate::stop::Stop;
use present::Present;

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

/// What became of one archive.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Loaded {
    cluster: ClusterName,
    archive: PathBuf,
    images: Vec<String>,
    bytes: u64,
    /// Nodes that it was imported on; with `--dry-run`, would be.
    loaded: Vec<String>,
    /// Nodes that had it.
    skipped: Vec<String>,
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
    let mut nodes = Nodes::of(&engine, &state, members(&state.spec), &args.login, &args.contact).await?;
    let people = matches!(args.format.output, Format::Table | Format::Wide);
    let (known, unknown) = known(&nodes, &archives).await;
    let mut told = Vec::new();
    for (file, archive) in &archives {
        let (had, lack): (Vec<_>, Vec<_>) = known.iter().partition(|(_, present)| present.has(archive));
        let names = |nodes: &[&(Member, Present)]| nodes.iter().map(|(node, _)| node.name.clone()).collect();
        nodes.members = lack.iter().map(|(member, _)| member.clone()).collect();
        if !args.dry_run && !lack.is_empty() {
            import(context, &nodes, file, archive).await?;
        }
        let loaded = Loaded {
            cluster: state.name.clone(),
            archive: file.clone(),
            images: archive.names.clone(),
            bytes: archive.size,
            loaded: names(&lack),
            skipped: names(&had),
        };
        if people {
            context.talk.result(&format!("{}\n", loaded.text(args.dry_run)))?;
        }
        told.push(loaded);
    }
    if args.dry_run {
        context.talk.say("Nothing was written.");
    }
    if !people {
        let images = told.iter().flat_map(|loaded| loaded.images.clone()).collect();
        context.talk.result(&Answer::new(&told, Table::new(&[]), images)?.text(args.format.output)?)?;
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let count = words::count(unknown.len(), "node");
    let mut stop = Stop::failed(format!("{count} of {} could not be asked and got nothing", state.name));
    stop.rows = unknown;
    Err(stop)
}

impl Loaded {
    fn text(&self, dry_run: bool) -> String {
        let names = match self.images.as_slice() {
            [] => "an image without a name".to_owned(),
            names => names.join(", "),
        };
        let (cluster, size) = (&self.cluster, words::size(self.bytes));
        let nodes = self.loaded.len() + self.skipped.len();
        let had = words::list(&self.skipped);
        match (self.loaded.is_empty(), self.skipped.is_empty(), dry_run) {
            (true, ..) => format!("{names} is on {} of {cluster} already", words::count(nodes, "node")),
            (_, true, true) => format!("{names} ({size}) to {} of {cluster}", words::count(nodes, "node")),
            (_, false, true) => {
                format!("{names} ({size}) to {}; not to {had}, which had it", words::list(&self.loaded))
            }
            (_, true, false) => {
                format!("{names} is on {} of {cluster} ({size})", words::count(nodes, "node"))
            }
            (_, false, false) => format!(
                "{names} is on {} of {cluster} ({size}); {had} had it already",
                words::count(nodes, "node")
            ),
        }
    }
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

/// Which of the archives' images every node has, and which nodes cannot be asked and why.
async fn known(
    nodes: &Nodes,
    archives: &[(PathBuf, ImageArchive)],
) -> (Vec<(Member, Present)>, Vec<(String, String)>) {
    let asked = nodes
        .each(AT_ONCE, |hosts, member| async move {
            let host = HostAddress::from(member.address);
            Present::ask(&hosts, host, archives.iter().map(|(_, archive)| archive)).await
        })
        .await;
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (member, answer) in asked {
        match answer {
            Ok(present) => known.push((member, present)),
            Err(why) => unknown.push((member.name, why)),
        }
    }
    (known, unknown)
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
    // Only an image without a name gets one that is made of its digest.
    let line = format!(
        "{} images import --digests {place}; result=$?; rm -f {place}; \
         rmdir {PLACE} 2>/dev/null; exit $result",
        present::CTR
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

#[cfg(test)]
mod tests {
    use super::*;

    fn said(loaded: &[&str], skipped: &[&str], dry_run: bool) -> String {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let loaded = Loaded {
            cluster: "demo".parse().unwrap(),
            archive: "app.tar".into(),
            images: vec!["docker.io/a/b:1".to_owned()],
            bytes: 2 << 20,
            loaded: names(loaded),
            skipped: names(skipped),
        };
        loaded.text(dry_run)
    }

    #[test]
    fn says_who_was_skipped() {
        let all = ["h1", "h2", "h3"];
        assert_eq!(said(&all, &[], false), "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB)");
        assert_eq!(said(&[], &all, false), "docker.io/a/b:1 is on 3 nodes of demo already");
        assert_eq!(
            said(&all[2..], &all[..2], false),
            "docker.io/a/b:1 is on 3 nodes of demo (2.0 MiB); h1 and h2 had it already"
        );
        assert_eq!(said(&all, &[], true), "docker.io/a/b:1 (2.0 MiB) to 3 nodes of demo");
        assert_eq!(
            said(&all[1..], &all[..1], true),
            "docker.io/a/b:1 (2.0 MiB) to h2 and h3; not to h1, which had it"
        );
    }
}
