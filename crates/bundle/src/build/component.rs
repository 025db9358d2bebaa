//! The build of one component.

use std::path::{Path, PathBuf};

use kubeon_api::Digest;
use kubeon_process::ProgramError;

use super::error::{BuildError, at};
use super::progress::{BuildState, Reporter};
use crate::catalogue::Component;
use crate::{Arch, digest, pack};

/// The build of one component.
pub(super) struct ComponentBuild<'a> {
    pub(super) component: &'a Component,
    pub(super) arch: Arch,
    /// The run's compile cache.
    pub(super) compiled: &'a Path,
    pub(super) reporter: &'a Reporter<'a>,
}

impl ComponentBuild<'_> {
    pub(super) fn report(&self, state: BuildState) {
        self.reporter.report(&self.component.name, self.component.expected_seconds, state);
    }

    pub(super) fn failed(&self, action: &'static str, source: ProgramError) -> BuildError {
        BuildError::Command { component: self.component.name.clone(), action, source: Box::new(source) }
    }

    pub(super) fn unexpected(&self, why: String) -> BuildError {
        BuildError::Unexpected { component: self.component.name.clone(), why }
    }

    /// The folder of the component in the cache. It depends on the recipe and on `input_versions`: the versions of
    /// the compiler or of the packages.
    pub(super) fn place(&self, cache: &Path, input_versions: &str) -> Result<PathBuf, BuildError> {
        let key = self.key(input_versions).map_err(at("hash", cache))?;
        let name = format!("{}-{}-{}", self.component.name, self.component.version, &key.as_str()[..16]);
        Ok(cache.join("components").join(name))
    }

    fn key(&self, input_versions: &str) -> std::io::Result<Digest> {
        digest::of_bytes(&serde_json::to_vec(&(pack::FORMAT, self.arch, self.component, input_versions))?)
    }
}
