//! The bundles of a change: content for plans, files for `apply`.

use std::path::{Path, PathBuf};

use kubeon_api::{Digest, Version};
use kubeon_bundle::Bundle;
use kubeon_plan::Artifacts;
use kubeon_ports::Blobs;

use crate::artifacts::{artifacts, merged};
use crate::bundles;
use crate::environment::EngineEnvironment;
use crate::error::EngineError;

/// The bundles of a change.
pub(crate) struct ChangeBundles {
    /// Those of the version.
    own: Vec<Bundle>,
    /// Those of the version that is tried.
    tried: Vec<Bundle>,
    /// Those of the older version of the nodes.
    nodes: Vec<Bundle>,
    /// Those of the versions that follow.
    later: Vec<Bundle>,
}

/// The bundles of a change of a cluster of the version, of which the control plane tries another one or the nodes have an older one.
/// The `later` versions follow in other changes.
///
/// # Errors
/// As for [`bundles::find`], for each of the versions.
pub(crate) fn of_change(
    environment: &EngineEnvironment,
    version: Version,
    trial: Option<Version>,
    nodes_at: Option<Version>,
    later: &[Version],
) -> Result<ChangeBundles, EngineError> {
    let found = |version: Option<Version>| {
        version.map_or_else(|| Ok(Vec::new()), |version| bundles::find(environment, version))
    };
    let (own, tried, nodes) = (bundles::find(environment, version)?, found(trial)?, found(nodes_at)?);
    let mut bundles = ChangeBundles { own, tried, nodes, later: Vec::new() };
    for version in later {
        bundles.later.extend(bundles::find(environment, *version)?);
    }
    Ok(bundles)
}

impl ChangeBundles {
    /// The parts and images for plans.
    pub(crate) fn artifacts(&self) -> (Artifacts, Vec<Artifacts>) {
        let all =
            merged(self.own.iter().map(artifacts).collect(), &self.tried, Artifacts::with_control_plane_of);
        let mut all = merged(all, &self.nodes, Artifacts::with_nodes_of).into_iter();
        (all.next().unwrap_or_default(), all.collect())
    }

    /// The parts and images that the hosts get after those of [`Self::artifacts`].
    pub(crate) fn later_artifacts(&self) -> Vec<Artifacts> {
        self.tried.iter().chain(&self.later).map(artifacts).collect()
    }

    /// All that this change uses.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Bundle> {
        self.own.iter().chain(&self.tried).chain(&self.nodes)
    }

    /// Takes the version that was tried, also on the nodes.
    pub(crate) fn end_trial(&mut self) {
        self.own = std::mem::take(&mut self.tried);
        self.nodes.clear();
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
