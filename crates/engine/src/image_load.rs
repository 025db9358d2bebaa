//! Loads image archives into the nodes of a cluster that do not have the images.
//!
//! ```text
//!   archives ─► list the images of every node ─► copy and import on the nodes without the image
//! ```

mod present_images;

use std::path::PathBuf;
use std::time::Duration;

use kubeon_api::{ClusterName, HostAddress};
use kubeon_bundle::image::{ImageArchive, load_archive};
use kubeon_link_host::Copy;
use serde::Serialize;

use crate::cluster_nodes::{ClusterNodes, CopyObserver, MAX_CONCURRENT, NodeAccess, command_output};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;
use crate::selector::Member;
use present_images::{CTR, PresentImages};

/// Time limit for importing an archive.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(600);
/// Folder on a node for archives until they are imported.
const FOLDER: &str = "/var/lib/kubeon/images";

/// An image archive on this machine.
#[derive(Debug, Clone)]
pub struct LoadableArchive {
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub archive: ImageArchive,
}

impl LoadableArchive {
    /// Reads an archive: an OCI layout or the output of `docker save`.
    ///
    /// # Errors
    /// Refuses a file that is no image archive.
    pub fn read(path: PathBuf) -> Result<Self, EngineError> {
        let archive = load_archive(&path).map_err(|error| EngineError::refused(chain(&error)))?;
        Ok(Self { path, archive })
    }
}

/// The result of loading an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedArchive {
    /// The cluster.
    pub cluster: ClusterName,
    /// The file.
    pub archive: PathBuf,
    /// Names of its images.
    pub images: Vec<String>,
    /// Its size.
    pub bytes: u64,
    /// Nodes where it was imported, or would be imported in a dry run.
    pub loaded: Vec<String>,
    /// Nodes that had all its images.
    pub skipped: Vec<String>,
    /// Failures on nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<LoadFailure>,
}

impl LoadedArchive {
    /// Whether every node has the images.
    pub fn is_everywhere(&self) -> bool {
        self.failed.is_empty()
    }
}

/// A failure to load an archive on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadFailure {
    /// The node.
    pub node: String,
    /// The failed step.
    pub step: LoadStep,
    /// The cause.
    pub cause: String,
}

/// The steps on a node, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LoadStep {
    /// List the images of the node.
    #[serde(rename = "ask")]
    Query,
    /// Copy the archive to the node.
    Copy,
    /// Import the archive into the container runtime.
    Import,
}

/// The nodes of a cluster with their images.
pub struct ImageLoader {
    cluster: ClusterName,
    nodes: ClusterNodes,
    known: Vec<(Member, PresentImages)>,
    unreachable: Vec<LoadFailure>,
}

impl ImageLoader {
    /// What a user can do about nodes that were refused.
    pub fn remedy(&self) -> Option<EngineRemedy> {
        self.nodes.contact.remedy()
    }

    /// Lists the images of every node. A node that cannot be queried is a failure of every archive.
    ///
    /// # Errors
    /// When keys cannot be read, the user does not accept a key, or a login flag applies to no host.
    pub async fn query(
        engine: &Engine<'_>,
        state: &StoredCluster,
        archives: &[LoadableArchive],
        access: &NodeAccess,
    ) -> Result<Self, EngineError> {
        let members = members(&state.spec).into_iter().filter(|member| member.role.runs_node()).collect();
        let nodes = ClusterNodes::of(engine, state, members, access).await?;
        let answers = nodes
            .each(MAX_CONCURRENT, |hosts, member| async move {
                let host = HostAddress::from(member.address);
                PresentImages::query(&hosts, host, archives.iter().map(|file| &file.archive)).await
            })
            .await;
        let (mut known, mut unreachable) = (Vec::new(), Vec::new());
        for (member, answer) in answers {
            match answer {
                Ok(present) => known.push((member, present)),
                Err(cause) => {
                    unreachable.push(LoadFailure { node: member.name, step: LoadStep::Query, cause });
                }
            }
        }
        Ok(Self { cluster: state.name.clone(), nodes, known, unreachable })
    }

    /// What [`ImageLoader::load`] would do.
    pub fn preview(&self, file: &LoadableArchive) -> LoadedArchive {
        self.result(file, Vec::new())
    }

    /// Copies an archive to the nodes without its images, and imports it. A failure on a node does not stop
    /// the other nodes.
    pub async fn load(&mut self, file: &LoadableArchive, observer: &dyn CopyObserver) -> LoadedArchive {
        self.nodes.members = self.lacking(file).cloned().collect();
        let failed = if self.nodes.members.is_empty() {
            Vec::new()
        } else {
            import(&self.nodes, file, observer).await
        };
        self.result(file, failed)
    }

    /// The nodes that do not have all images of the archive.
    fn lacking(&self, file: &LoadableArchive) -> impl Iterator<Item = &Member> {
        self.known.iter().filter(|(_, present)| !present.has(&file.archive)).map(|(member, _)| member)
    }

    fn result(&self, file: &LoadableArchive, failed: Vec<LoadFailure>) -> LoadedArchive {
        let (loaded, skipped) = loaded_and_skipped(&self.known, &file.archive, &failed);
        LoadedArchive {
            cluster: self.cluster.clone(),
            archive: file.path.clone(),
            images: file.archive.names.clone(),
            bytes: file.archive.size,
            loaded,
            skipped,
            failed: [self.unreachable.clone(), failed].concat(),
        }
    }
}

/// The names of the nodes where the archive was loaded, and of the nodes that had its images.
fn loaded_and_skipped(
    known: &[(Member, PresentImages)],
    archive: &ImageArchive,
    failed: &[LoadFailure],
) -> (Vec<String>, Vec<String>) {
    let name = |(member, _): &(Member, PresentImages)| member.name.clone();
    let (had, mut lacking): (Vec<_>, Vec<_>) = known.iter().partition(|(_, present)| present.has(archive));
    lacking.retain(|(member, _)| !failed.iter().any(|failure| failure.node == member.name));
    (lacking.into_iter().map(name).collect(), had.into_iter().map(name).collect())
}

/// Copies an archive to nodes and imports it. Returns the failures.
async fn import(
    nodes: &ClusterNodes,
    file: &LoadableArchive,
    observer: &dyn CopyObserver,
) -> Vec<LoadFailure> {
    // The file name is the digest: concurrent loads cannot overwrite each other with other content.
    let path = format!("{FOLDER}/{}.tar", file.archive.digest);
    let copy = Copy { source: file.path.clone(), destination: path.clone() };
    let failure = |node: String, step: LoadStep| move |cause: String| LoadFailure { node, step, cause };
    let copied = nodes.copy(&copy, observer).await.into_iter();
    let mut failed: Vec<LoadFailure> = copied
        .filter_map(|(member, result)| result.err().map(failure(member.name, LoadStep::Copy)))
        .collect();
    let line = import_line(&file.archive, &path);
    let (line, uncopied) = (line.as_str(), &failed);
    let imported = nodes
        .each(MAX_CONCURRENT, |hosts, member| async move {
            if uncopied.iter().any(|failure| failure.node == member.name) {
                return Ok(String::new());
            }
            command_output(&hosts, HostAddress::from(member.address), line, IMPORT_TIMEOUT).await
        })
        .await;
    let imported = imported
        .into_iter()
        .filter_map(|(member, result)| result.err().map(failure(member.name, LoadStep::Import)));
    failed.extend(imported.collect::<Vec<_>>());
    failed
}

/// The command that imports an archive and removes it. Pods may name each of its images by digest too.
fn import_line(archive: &ImageArchive, path: &str) -> String {
    // `--digests` names an image by its digest only if it has no name.
    let mut import = format!("{CTR} images import --digests {path}");
    for image in &archive.images {
        let (Some(name), Some(by_digest)) = (&image.name, image.name_by_digest()) else { continue };
        // A name with a zero byte cannot be a word of a command; the import refuses it.
        if let Ok(words) = shlex::try_join([name.as_str(), by_digest.as_str()]) {
            import.push_str(&format!(" && {CTR} images tag --local --force {words}"));
        }
    }
    format!("{import}; result=$?; rm -f {path}; rmdir {FOLDER} 2>/dev/null; exit $result")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use kubeon_api::HostRole;
    use kubeon_bundle::image::{ArchiveFormat, ArchivedImage, ImageContent};

    use super::*;

    fn archive(images: Vec<ArchivedImage>) -> ImageArchive {
        let digest = "0".repeat(64).parse().unwrap();
        ImageArchive { format: ArchiveFormat::Oci, names: Vec::new(), images, digest, size: 1 }
    }

    #[test]
    fn a_node_with_a_failure_is_neither_loaded_nor_skipped() {
        let node = |i: u8| {
            let (name, address) = (format!("h{i}"), Ipv4Addr::new(10, 0, 0, i));
            let member = Member { name, address, role: HostRole::Worker };
            (member, PresentImages::default())
        };
        let known = [node(1), node(2)];
        let content = ImageContent::Manifest("a".repeat(64).parse().unwrap());
        let new = archive(vec![ArchivedImage { name: Some("a:1".to_owned()), content }]);
        let failed = LoadFailure { node: "h2".to_owned(), step: LoadStep::Copy, cause: "lost".to_owned() };
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(loaded_and_skipped(&known, &new, &[failed]), (names(&["h1"]), names(&[])));
        let had = loaded_and_skipped(&known, &archive(Vec::new()), &[]);
        assert_eq!(had, (names(&[]), names(&["h1", "h2"])));
    }

    #[test]
    fn names_of_images_are_quoted_for_the_shell() {
        let content = ImageContent::Manifest("a".repeat(64).parse().unwrap());
        let named = |name: &str| ArchivedImage { name: Some(name.to_owned()), content: content.clone() };
        let line = import_line(&archive(vec![named("r/a:1"), named("r/b;reboot:1")]), "/a.tar");
        let tag = |words: String| format!(" && {CTR} images tag --local --force {words}");
        let digest = "a".repeat(64);
        assert!(line.contains(&tag(format!("r/a:1 r/a@sha256:{digest}"))), "{line}");
        assert!(line.contains(&tag(format!("'r/b;reboot:1' 'r/b;reboot@sha256:{digest}'"))), "{line}");
    }

    #[test]
    fn the_words_of_steps_in_results_stay() {
        let words = [LoadStep::Query, LoadStep::Copy, LoadStep::Import].map(|step| serde_json::json!(step));
        assert_eq!(words, ["ask", "copy", "import"]);
    }
}
