//! Builds a bundle: every component once, then the layout.
//!
//! ```text
//!   components ──► Go thread: one after the other, since a compiler uses every core  ─┐
//!              └─► Debian thread: at the same time, since it waits for the network    ├─► assemble ─► rename into the store
//!                        each: lock → cache? → build in a scratch folder → rename    ─┘
//! ```

mod assemble;
mod component;
mod debian;
mod debian_index;
mod directory;
mod error;
mod go;
mod options;
mod parts;
mod progress;
mod published;
mod source;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use kubeon_api::Digest;

use component::ComponentBuild;
pub use error::BuildError;
use error::at;
pub use options::{BuildOptions, Origin};
use progress::Reporter;
pub use progress::{BuildProgress, BuildState};
pub use published::PublishedError;
use published::Server;
use source::{ComponentSource, PreparedComponent, PublishedServers};

use crate::Bundle;
use crate::cache::{self, Finished, Scratch};
use crate::catalogue::{CatalogueEntry, Component, Recipe};

/// The number of components that are downloaded at the same time.
const DOWNLOADS: usize = 4;
/// Time limit of a build that waits for another build of the same component or bundle.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

/// Builds the bundle of an entry, or returns it when it exists with the same inputs. Blocks. It can be killed at any
/// moment and can run twice at the same time.
///
/// # Errors
/// A missing tool, a component that cannot be fetched or built, or a store that cannot be written.
pub fn build(
    entry: &CatalogueEntry,
    options: &BuildOptions,
    report: &(dyn Fn(BuildProgress) + Sync),
) -> Result<Bundle, BuildError> {
    let place = options.store.folder(entry.kubernetes, options.arch);
    let inputs = entry.inputs(options.arch, options.from.name()).map_err(at("hash", &place))?;
    let always = options.refresh || matches!(options.from, Origin::Directory(_));
    let ready = || if always { None } else { existing(&place, &inputs) };
    if let Some(bundle) = ready() {
        return Ok(bundle);
    }
    let reporter = Reporter::new(report);
    let name = format!("bundle-{}-{}", entry.kubernetes, options.arch);
    let on_wait = || reporter.report("bundle", 0, BuildState::Waiting);
    let _lock = cache::lock(options.store.cache(), &name, LOCK_TIMEOUT, on_wait)
        .map_err(at("lock", options.store.cache()))?;
    if let Some(bundle) = ready() {
        return Ok(bundle);
    }
    let work = options.store.cache().join("work");
    for parent in [work.as_path(), options.store.bundles()] {
        cache::sweep(parent).map_err(at("sweep", parent))?;
    }
    let components = match &options.from {
        Origin::GoModules => build_all(entry, options, &reporter)?,
        Origin::Official => download_all(entry, options, None, &reporter)?,
        Origin::Mirror(mirror) => download_all(entry, options, Some(mirror), &reporter)?,
        Origin::Directory(folder) => {
            let scratch = Scratch::new(&work, "directory").map_err(at("create a folder in", &work))?;
            let finished = directory::pack_directory(entry, folder, options.arch, scratch.path())?;
            return assemble::assemble(entry, options, &inputs, &[finished], &reporter);
        }
    };
    assemble::assemble(entry, options, &inputs, &components, &reporter)
}

/// The bundle in that folder, if it has the same inputs and is not damaged. Hashing takes a fraction of a second, so
/// every build finds and repairs a damaged bundle.
fn existing(place: &Path, inputs: &Digest) -> Option<Bundle> {
    let found = Bundle::open(place).ok()?;
    if found.manifest().inputs != *inputs {
        return None;
    }
    match found.verify() {
        Ok(()) => Some(found),
        Err(error) => {
            tracing::warn!(%error, "the bundle is built again");
            None
        }
    }
}

fn build_all(
    entry: &CatalogueEntry,
    options: &BuildOptions,
    reporter: &Reporter<'_>,
) -> Result<Vec<Finished>, BuildError> {
    for component in &entry.components {
        reporter.report(&component.name, component.expected_seconds, BuildState::Queued);
    }
    go::check_tools(entry, options.arch)?;
    let work = options.store.cache().join("work");
    // All components share one compile cache, so that common packages are compiled once.
    let scratch = Scratch::new(&work, "go-build").map_err(at("create a folder in", &work))?;
    let compiled = options.compile_cache.as_deref().unwrap_or(scratch.path());
    std::fs::create_dir_all(compiled).map_err(at("create", compiled))?;
    let failed = AtomicBool::new(false);
    let build_kind = |is_go: bool| -> Result<Vec<Finished>, BuildError> {
        let mut finished = Vec::new();
        for component in &entry.components {
            // After a failure in the other thread the bundle cannot be completed.
            if matches!(component.recipe, Recipe::GoModules(_)) != is_go || failed.load(Ordering::Relaxed) {
                continue;
            }
            finished.push(
                make(component, options, ComponentSource::Modules(compiled), reporter).inspect_err(|_| {
                    failed.store(true, Ordering::Relaxed);
                    reporter.report(&component.name, component.expected_seconds, BuildState::Failed);
                })?,
            );
        }
        Ok(finished)
    };
    let (go, debian) = thread::scope(|scope| {
        let debian = scope.spawn(|| build_kind(false));
        scope.spawn(|| {
            for component in entry.components.iter().skip(1) {
                if !failed.load(Ordering::Relaxed) {
                    fetch_ahead(component, options, compiled);
                }
            }
        });
        (build_kind(true), debian.join())
    });
    let mut all = go?;
    all.extend(debian.map_err(|_| BuildError::ThreadDied)??);
    Ok(all)
}

/// Downloads what the authors of each component publish, several at a time. The distribution's packages are the source
/// of the others.
fn download_all(
    entry: &CatalogueEntry,
    options: &BuildOptions,
    mirror: Option<&str>,
    reporter: &Reporter<'_>,
) -> Result<Vec<Finished>, BuildError> {
    let server = Server::new(mirror, options.store.cache()).map_err(|source| BuildError::Published {
        component: "bundle".to_owned(),
        source: Box::new(source),
    })?;
    let servers = PublishedServers::new(server);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || -> Result<Vec<Finished>, BuildError> {
        let mut finished = Vec::new();
        while let Some(component) = entry.components.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                break;
            }
            finished.push(
                make(component, options, ComponentSource::Published(&servers), reporter).inspect_err(
                    |_| {
                        failed.store(true, Ordering::Relaxed);
                        reporter.report(&component.name, component.expected_seconds, BuildState::Failed);
                    },
                )?,
            );
        }
        Ok(finished)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..DOWNLOADS).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| BuildError::ThreadDied)??);
        }
        Ok(all)
    })
}

/// Downloads the modules of a component while another one is compiled. A failure is only logged: [`make`] downloads
/// them again and reports it.
fn fetch_ahead(component: &Component, options: &BuildOptions, compiled: &Path) {
    let Recipe::GoModules(recipe) = &component.recipe else { return };
    let silent = Reporter::new(&|_| {});
    let task = ComponentBuild { component, arch: options.arch, compiled, reporter: &silent };
    let fetched = || -> Result<(), BuildError> {
        let work = options.store.cache().join("work");
        let scratch = Scratch::new(&work, &component.name).map_err(at("create a folder in", &work))?;
        let toolchain = go::prepare(&task, recipe, &scratch)?;
        let place = task.place(options.store.cache(), &toolchain.version)?;
        if Finished::load(&place).is_none() {
            go::fetch_all(&task, recipe, &toolchain, &scratch)?;
        }
        Ok(())
    };
    if let Err(error) = fetched() {
        tracing::debug!(component = component.name, %error, "the modules cannot be fetched ahead of the build");
    }
}

/// Loads one component from the cache or builds it.
fn make(
    component: &Component,
    options: &BuildOptions,
    source: ComponentSource<'_>,
    reporter: &Reporter<'_>,
) -> Result<Finished, BuildError> {
    let compiled = if let ComponentSource::Modules(compiled) = source { compiled } else { Path::new("") };
    let task = ComponentBuild { component, arch: options.arch, compiled, reporter };
    let cache = options.store.cache();
    let work = cache.join("work");
    let scratch = Scratch::new(&work, &component.name).map_err(at("create a folder in", &work))?;
    let prepared = PreparedComponent::of(&task, source, &scratch)?;
    let place = task.place(cache, &prepared.input_versions())?;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let on_wait = || task.report(BuildState::Waiting);
    let _lock = cache::lock(cache, &name, LOCK_TIMEOUT, on_wait).map_err(at("lock", cache))?;
    if let Some(finished) = Finished::load(&place) {
        task.report(BuildState::Cached);
        return Ok(finished);
    }
    let out = scratch.folder("out").map_err(at("create a folder in", scratch.path()))?;
    let parts = prepared.make(&task, &scratch, &out)?;
    let finished = Finished::commit(&out, &place, parts).map_err(at("write", &place))?;
    task.report(BuildState::Done);
    Ok(finished)
}
