//! Where a component comes from: Go modules and apt, or what its authors and Debian publish.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::component::ComponentBuild;
use super::debian_index::{self, DebianIndex, WantedPackage};
use super::error::{BuildError, at};
use super::progress::BuildState;
use super::published::{self, Server, Wanted};
use super::{debian, go};
use crate::Part;
use crate::cache::Scratch;
use crate::catalogue::Recipe;
use crate::manifest::DebianPackage;

/// The source of the components of a bundle.
#[derive(Clone, Copy)]
pub(super) enum ComponentSource<'a> {
    /// Go modules, compiled with a compile cache in this folder, and packages of this machine's distribution.
    Modules(&'a Path),
    /// Published files.
    Published(&'a PublishedServers),
}

/// The servers of published files, and the index of Debian's packages once a component needed it.
pub(super) struct PublishedServers {
    server: Server,
    index: Mutex<Option<Arc<DebianIndex>>>,
}

impl PublishedServers {
    pub(super) fn new(server: Server) -> Self {
        Self { server, index: Mutex::default() }
    }

    fn index(&self, task: &ComponentBuild<'_>, scratch: &Scratch) -> Result<Arc<DebianIndex>, BuildError> {
        let mut index = self.index.lock();
        if let Some(index) = &*index {
            return Ok(Arc::clone(index));
        }
        let fetched = Arc::new(DebianIndex::fetch(task, &self.server, scratch.path())?);
        *index = Some(Arc::clone(&fetched));
        Ok(fetched)
    }
}

/// Everything that decides the parts of a component, known before the first part is made.
pub(super) enum PreparedComponent<'a> {
    Go(go::Toolchain),
    Published(Vec<Wanted>, &'a Server),
    Apt(Vec<DebianPackage>),
    Indexed(Vec<WantedPackage>, &'a Server),
}

impl<'a> PreparedComponent<'a> {
    /// Asks compiler, servers or apt for the versions of the component.
    pub(super) fn of(
        task: &ComponentBuild<'_>,
        source: ComponentSource<'a>,
        scratch: &Scratch,
    ) -> Result<Self, BuildError> {
        Ok(match (&task.component.recipe, source) {
            (Recipe::GoModules(recipe), ComponentSource::Modules(_)) => {
                Self::Go(go::prepare(task, recipe, scratch)?)
            }
            (Recipe::Debian(recipe), ComponentSource::Modules(_)) => {
                Self::Apt(debian::resolve(task, recipe)?)
            }
            (Recipe::GoModules(_), ComponentSource::Published(servers)) => {
                task.report(BuildState::Fetching);
                let wanted = published::resolve(task, &task.component.published, &servers.server)?;
                Self::Published(wanted, &servers.server)
            }
            (Recipe::Debian(recipe), ComponentSource::Published(servers)) => {
                debian::require_emulator(task)?;
                task.report(BuildState::Fetching);
                let wanted = servers.index(task, scratch)?.resolve(task, recipe)?;
                Self::Indexed(wanted, &servers.server)
            }
        })
    }

    /// The versions of the compiler or of the packages, or the digests of the published files. They decide the result together
    /// with the catalogue.
    pub(super) fn input_versions(&self) -> String {
        let line =
            |package: &DebianPackage| format!("{}={} {}\n", package.name, package.version, package.sha256);
        match self {
            Self::Go(toolchain) => toolchain.version.clone(),
            Self::Published(wanted, _) => published::input_versions(wanted),
            Self::Apt(packages) => packages.iter().map(line).collect(),
            Self::Indexed(wanted, _) => wanted.iter().map(|wanted| line(&wanted.package)).collect(),
        }
    }

    /// Makes the parts.
    pub(super) fn make(
        self,
        task: &ComponentBuild<'_>,
        scratch: &Scratch,
        out: &Path,
    ) -> Result<Vec<Part>, BuildError> {
        match (&task.component.recipe, self) {
            (Recipe::GoModules(recipe), Self::Go(toolchain)) => {
                go::make(task, recipe, &toolchain, scratch, out)
            }
            (Recipe::GoModules(_), Self::Published(wanted, server)) => {
                published::make(task, &wanted, server, scratch, out)
            }
            (Recipe::Debian(recipe), Self::Apt(packages)) => {
                debian::make(task, recipe, packages, scratch, out)
            }
            (Recipe::Debian(recipe), Self::Indexed(wanted, server)) => {
                let root = scratch.folder("root").map_err(at("create a folder in", scratch.path()))?;
                debian_index::unpack(task, &wanted, server, &root)?;
                let packages: Vec<_> = wanted.into_iter().map(|wanted| wanted.package).collect();
                debian::pack_root(task, recipe, &packages, &root, out)
            }
            _ => Err(task.unexpected("its recipe is not one of its source".to_owned())),
        }
    }
}
