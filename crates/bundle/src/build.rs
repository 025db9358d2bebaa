//! Making a bundle: every component once, then the layout.
//!
//! ```text
//!   components ──► go lane (one after the other: a compiler uses every core)  ─┐
//!              └─► Debian lane (beside it: it waits for the network)           ├─► assemble ─► rename into the store
//!                        each: lock → cache? → make in scratch → rename       ─┘
//! ```

mod assemble;
mod debian;
mod directory;
mod error;
mod go;
mod progress;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kubeon_api::Digest;
use kubeon_process::ProgramError;

pub use error::BuildError;
use error::at;
pub(crate) use progress::Reporter;
pub use progress::{Progress, State};

use crate::cache::{self, Finished, Scratch};
use crate::catalogue::{Component, Entry, Recipe};
use crate::{Arch, Bundle, Store, digest, pack};

/// The longest that one build waits for another one of the same thing.
const WAIT: Duration = Duration::from_secs(2 * 3600);

/// Where parts come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built from the Go module proxy and the distribution's packages.
    GoModules,
    /// Taken from a folder: programs as `NAME` or `bin/NAME`, root file systems as `PART/`.
    Directory(PathBuf),
}

impl Origin {
    /// The word in the bundle's manifest.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::GoModules => "go-modules",
            Self::Directory(_) => "directory",
        }
    }
}

impl FromStr for Origin {
    type Err = BuildError;
    fn from_str(text: &str) -> Result<Self, BuildError> {
        match text {
            "go-modules" => Ok(Self::GoModules),
            "official" | "mirror" => Err(BuildError::NotYet(text.to_owned())),
            folder if Path::new(folder).is_dir() => Ok(Self::Directory(PathBuf::from(folder))),
            other => Err(BuildError::UnknownSource(other.to_owned())),
        }
    }
}

/// How to build.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Where parts come from.
    pub from: Origin,
    /// The architecture; today this machine's only.
    pub arch: Arch,
    /// Where the result and the cache lie.
    pub store: Store,
    /// Look for newer packages of the distribution even though the bundle exists.
    pub refresh: bool,
}

/// Makes the bundle of an entry, or returns it when it exists with the same inputs. Blocks; safe to kill and to run
/// twice at once.
///
/// # Errors
/// A missing tool, a component that cannot be fetched or built, or a store that cannot be written.
pub fn build(
    entry: &Entry,
    options: &BuildOptions,
    report: &(dyn Fn(Progress) + Sync),
) -> Result<Bundle, BuildError> {
    if options.arch != Arch::native() {
        return Err(BuildError::ForeignArch { wanted: options.arch, native: Arch::native() });
    }
    let place = options.store.folder(entry.kubernetes, options.arch);
    let inputs = entry.inputs(options.arch, options.from.word()).map_err(at("hash", &place))?;
    let always = options.refresh || options.from != Origin::GoModules;
    let ready = || if always { None } else { existing(&place, &inputs) };
    if let Some(bundle) = ready() {
        return Ok(bundle);
    }
    let reporter = Reporter::new(report);
    let name = format!("bundle-{}-{}", entry.kubernetes, options.arch);
    let wait = || reporter.say("bundle", 0, State::Waiting);
    let _lock =
        cache::lock(options.store.cache(), &name, WAIT, wait).map_err(at("lock", options.store.cache()))?;
    if let Some(bundle) = ready() {
        return Ok(bundle);
    }
    let work = options.store.cache().join("work");
    for parent in [work.as_path(), options.store.bundles()] {
        cache::sweep(parent).map_err(at("sweep", parent))?;
    }
    let components = match &options.from {
        Origin::GoModules => make_all(entry, options, &reporter)?,
        Origin::Directory(folder) => {
            let scratch = Scratch::new(&work, "directory").map_err(at("create a folder in", &work))?;
            let finished = directory::take(entry, folder, options.arch, scratch.path())?;
            return assemble::assemble(entry, options, &inputs, &[finished], &reporter);
        }
    };
    assemble::assemble(entry, options, &inputs, &components, &reporter)
}

/// The bundle in that place, if it was made from the same inputs and every bit of it is as it was. Hashing takes a
/// fraction of a second and makes building the cure for every damage.
fn existing(place: &Path, inputs: &Digest) -> Option<Bundle> {
    let found = Bundle::open(place).ok()?;
    if found.manifest().inputs != *inputs {
        return None;
    }
    match found.verify() {
        Ok(()) => Some(found),
        Err(error) => {
            tracing::warn!(%error, "the bundle is made again");
            None
        }
    }
}

fn make_all(
    entry: &Entry,
    options: &BuildOptions,
    reporter: &Reporter<'_>,
) -> Result<Vec<Finished>, BuildError> {
    for component in &entry.components {
        reporter.say(&component.name, component.expected_seconds, State::Queued);
    }
    go::check_tools(entry)?;
    let work = options.store.cache().join("work");
    // One compile cache for all of them, so that what they share is compiled once; it goes with the run, for it
    // has gigabytes.
    let compiled = Scratch::new(&work, "go-build").map_err(at("create a folder in", &work))?;
    let failed = AtomicBool::new(false);
    let lane = |is_go: bool| -> Result<Vec<Finished>, BuildError> {
        let mut finished = Vec::new();
        for component in &entry.components {
            // What the other lane could not make is missing from the bundle, so starting more would be in vain.
            if matches!(component.recipe, Recipe::GoModules(_)) != is_go || failed.load(Ordering::Relaxed) {
                continue;
            }
            finished.push(make(component, options, compiled.path(), reporter).inspect_err(|_| {
                failed.store(true, Ordering::Relaxed);
                reporter.say(&component.name, component.expected_seconds, State::Failed);
            })?);
        }
        Ok(finished)
    };
    let (go, debian) = thread::scope(|scope| {
        let debian = scope.spawn(|| lane(false));
        scope.spawn(|| {
            for component in entry.components.iter().skip(1) {
                if !failed.load(Ordering::Relaxed) {
                    fetch_ahead(component, options, compiled.path());
                }
            }
        });
        (lane(true), debian.join())
    });
    let mut all = go?;
    all.extend(debian.map_err(|_| BuildError::LaneDied)??);
    Ok(all)
}

/// Downloads the modules of a component while another one is compiled. What fails here is tried again, and told,
/// when its turn comes.
fn fetch_ahead(component: &Component, options: &BuildOptions, compiled: &Path) {
    let Recipe::GoModules(recipe) = &component.recipe else { return };
    let silent = Reporter::new(&|_| {});
    let task = Task { component, arch: options.arch, compiled, reporter: &silent };
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
        tracing::debug!(component = component.name, %error, "not fetched ahead");
    }
}

/// One component: from the cache, or made.
fn make(
    component: &Component,
    options: &BuildOptions,
    compiled: &Path,
    reporter: &Reporter<'_>,
) -> Result<Finished, BuildError> {
    let task = Task { component, arch: options.arch, compiled, reporter };
    let cache = options.store.cache();
    let work = cache.join("work");
    let scratch = Scratch::new(&work, &component.name).map_err(at("create a folder in", &work))?;
    let prepared = match &component.recipe {
        Recipe::GoModules(recipe) => Prepared::Go(go::prepare(&task, recipe, &scratch)?),
        Recipe::Debian(recipe) => Prepared::Debian(debian::resolve(&task, recipe)?),
    };
    let place = task.place(cache, &prepared.circumstances())?;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let wait = || task.say(State::Waiting);
    let _lock = cache::lock(cache, &name, WAIT, wait).map_err(at("lock", cache))?;
    if let Some(finished) = Finished::load(&place) {
        task.say(State::Cached);
        return Ok(finished);
    }
    let out = scratch.folder("out").map_err(at("create a folder in", scratch.path()))?;
    let parts = match (&component.recipe, prepared) {
        (Recipe::GoModules(recipe), Prepared::Go(prepared)) => {
            go::make(&task, recipe, &prepared, &scratch, &out)?
        }
        (Recipe::Debian(recipe), Prepared::Debian(packages)) => {
            debian::make(&task, recipe, packages, &scratch, &out)?
        }
        _ => Vec::new(),
    };
    let finished = Finished::commit(&out, &place, parts).map_err(at("write", &place))?;
    task.say(State::Done);
    Ok(finished)
}

enum Prepared {
    Go(go::Toolchain),
    Debian(Vec<crate::manifest::DebianPackage>),
}

impl Prepared {
    /// What decides the result besides the catalogue: the compiler, or the packages' versions.
    fn circumstances(&self) -> String {
        match self {
            Self::Go(toolchain) => toolchain.version.clone(),
            Self::Debian(packages) => {
                packages.iter().map(|p| format!("{}={} {}\n", p.name, p.version, p.sha256)).collect()
            }
        }
    }
}

/// A component that is being made.
struct Task<'a> {
    component: &'a Component,
    arch: Arch,
    /// The run's compile cache.
    compiled: &'a Path,
    reporter: &'a Reporter<'a>,
}

impl Task<'_> {
    fn say(&self, state: State) {
        self.reporter.say(&self.component.name, self.component.expected_seconds, state);
    }

    fn failed(&self, action: &'static str, source: ProgramError) -> BuildError {
        let (component, hint) = (self.component.name.clone(), error::way_out(&source.to_string()));
        BuildError::Command { component, action, source: Box::new(source), hint }
    }

    fn unexpected(&self, why: String) -> BuildError {
        BuildError::Unexpected { component: self.component.name.clone(), why }
    }

    /// Where the component lies when it is made of the same things.
    fn place(&self, cache: &Path, circumstances: &str) -> Result<PathBuf, BuildError> {
        let key = self.key(circumstances).map_err(at("hash", cache))?;
        let name = format!("{}-{}-{}", self.component.name, self.component.version, &key.as_str()[..16]);
        Ok(cache.join("components").join(name))
    }

    fn key(&self, circumstances: &str) -> std::io::Result<Digest> {
        digest::of_bytes(&serde_json::to_vec(&(pack::FORMAT, self.arch, self.component, circumstances))?)
    }
}
