//! The bundles of a change: content for plans, files for `apply`.

use std::path::{Path, PathBuf};

use kubeon_api::{Digest, Version};
use kubeon_bundle::Bundle;
use kubeon_plan::Artifacts;
use kubeon_ports::Blobs;

use crate::artifacts::{all_artifacts, artifacts, trial_artifacts};
use crate::bundles;
use crate::environment::EngineEnvironment;
use crate::error::EngineError;

/// The bundles of a change.
pub(crate) struct ChangeBundles {
    /// Those of the version.
    own: Vec<Bundle>,
    /// Those of the version that is tried.
    tried: Vec<Bundle>,
    /// Those of the versions that follow.
    later: Vec<Bundle>,
}

/// The bundles of a change of a cluster of the version, of which the control plane tries another one. The `later` versions follow
/// in other changes.
///
/// # Errors
/// As for [`bundles::find`], for each of the versions.
pub(crate) fn of_change(
    environment: &EngineEnvironment,
    version: Version,
    trial: Option<Version>,
    later: &[Version],
) -> Result<ChangeBundles, EngineError> {
    let own = bundles::find(environment, version)?;
    let tried = trial.map(|version| bundles::find(environment, version)).transpose()?.unwrap_or_default();
    let mut bundles = ChangeBundles { own, tried, later: Vec::new() };
    for version in later {
        bundles.later.extend(bundles::find(environment, *version)?);
    }
    Ok(bundles)
}

impl ChangeBundles {
    /// The parts and images for plans.
    pub(crate) fn artifacts(&self) -> (Artifacts, Vec<Artifacts>) {
        if self.tried.is_empty() {
            return all_artifacts(&self.own);
        }
        trial_artifacts(&self.own, &self.tried)
    }

    /// The parts and images that the hosts get after those of [`Self::artifacts`].
    pub(crate) fn later_artifacts(&self) -> Vec<Artifacts> {
        self.tried.iter().chain(&self.later).map(artifacts).collect()
    }

    /// All that this change uses.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Bundle> {
        self.own.iter().chain(&self.tried)
    }

    /// Takes the version that was tried.
    pub(crate) fn end_trial(&mut self) {
        self.own = std::mem::take(&mut self.tried);
    }
}

/// The files of the bundles' parts, and of a snapshot that is restored.
pub(crate) struct ChangeBlobs<'a> {
    /// The bundles.
    pub bundles: &'a ChangeBundles,
    /// The folder of the snapshot; its files are named by their digests.
    pub restored: &'a Path,
}

impl Blobs for ChangeBlobs<'_> {
    fn blob(&self, digest: &Digest) -> Option<PathBuf> {
        let bundles = self.bundles.all().map(|bundle| bundle.blob(digest));
        bundles.chain([self.restored.join(digest.as_str())]).find(|path| path.is_file())
    }
}
