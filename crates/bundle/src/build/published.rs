//! Components from what their authors publish: files by their published SHA-256, images by their digest.
//!
//! ```text
//!   sums, manifests ──► addresses and digests ──► in the cache? ──► download, resumed ──► SHA-256 ──► programs ──► parts
//! ```

mod error;
mod registry;
mod server;
mod sums;
mod unpack;

use std::path::Path;

use super::component::ComponentBuild;
use super::error::{BuildError, at};
use super::parts;
use super::progress::BuildState;
use crate::cache::Scratch;
use crate::catalogue::Published;
use crate::manifest::PublishedFile;
use crate::{Part, PartSource};

pub use error::PublishedError;
pub(super) use server::Server;

/// A file to download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    file: PublishedFile,
    /// The program, when the file is one; otherwise the file is a tar archive.
    program: Option<String>,
}

/// Asks the servers which files the component has, and for their digests.
pub(super) fn resolve(
    task: &ComponentBuild<'_>,
    published: &[Published],
    server: &Server,
) -> Result<Vec<Wanted>, BuildError> {
    let arch = task.arch.name();
    let mut wanted = Vec::new();
    for one in published {
        match one {
            Published::File { url, sums, program } => {
                let (url, sums) = (url.replace("{arch}", arch), sums.replace("{arch}", arch));
                let sha256 = sums::published(server, &sums, &url).map_err(failed(task))?;
                wanted.push(Wanted { file: PublishedFile { url, sha256 }, program: program.clone() });
            }
            Published::Image { manifests } => {
                let layers = registry::layers(server, manifests, task.arch).map_err(failed(task))?;
                wanted.extend(layers.into_iter().map(|file| Wanted { file, program: None }));
            }
        }
    }
    Ok(wanted)
}

/// What decides the result together with the catalogue.
pub(super) fn input_versions(wanted: &[Wanted]) -> String {
    wanted.iter().map(|wanted| format!("{} {}\n", wanted.file.sha256, wanted.file.url)).collect()
}

/// Downloads the files, checks them and packs their programs.
pub(super) fn make(
    task: &ComponentBuild<'_>,
    wanted: &[Wanted],
    server: &Server,
    scratch: &Scratch,
    out: &Path,
) -> Result<Vec<Part>, BuildError> {
    let programs = scratch.folder("programs").map_err(at("create a folder in", scratch.path()))?;
    let names: Vec<&str> = task
        .component
        .parts
        .iter()
        .flat_map(|part| &part.programs)
        .map(|program| program.name.as_str())
        .collect();
    for one in wanted {
        let on_bytes = |done, total| task.report(BuildState::Downloading { done, total });
        let file = server.download(&one.file, &on_bytes).map_err(failed(task))?;
        unpack::programs(&file, one.program.as_deref(), &names, &programs).map_err(at("unpack", &file))?;
        std::fs::remove_file(&file).map_err(at("remove", &file))?;
    }
    task.report(BuildState::Packing);
    let files: Vec<PublishedFile> = wanted.iter().map(|wanted| wanted.file.clone()).collect();
    for program in task.component.parts.iter().flat_map(|part| &part.programs) {
        check_program(task, &programs.join(&program.name), &program.name)?;
    }
    parts::pack_all(task, out, &PartSource::Published { files }, &|program| programs.join(&program.name))
}

/// The program was in a file and runs on hosts of the architecture.
fn check_program(task: &ComponentBuild<'_>, path: &Path, name: &str) -> Result<(), BuildError> {
    if !path.is_file() {
        return Err(task.unexpected(format!("{name} is in none of the published files")));
    }
    super::directory::check_elf(path, task.arch, name)
}

pub(super) fn failed(task: &ComponentBuild<'_>) -> impl Fn(PublishedError) -> BuildError {
    let component = task.component.name.clone();
    move |source| BuildError::Published { component: component.clone(), source: Box::new(source) }
}

#[cfg(test)]
mod tests;
