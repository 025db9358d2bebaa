//! Which versions the programs of a host run and serve.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kubeon_api::Version;
use kubeon_plan::sim;
use kubeon_wire::StaticPod;

use super::host::{SimulatedHost, StartedPrograms};

/// The versions of the bundles whose kubelets a simulated world knows: those of its tests.
const VERSIONS: [&str; 6] = ["v1.34.9", "v1.35.7", "v1.36.3", "v1.36.4", "v1.37.2", "v1.38.1"];

/// The versions of the kubelets, by the digests of their parts.
static KUBELETS: LazyLock<BTreeMap<String, Version>> = LazyLock::new(|| {
    let of = |text: &&str| {
        let digest = sim::artifacts(text).parts["kubelet"].digest.as_str().to_owned();
        (digest, text.parse::<Version>().unwrap())
    };
    VERSIONS.iter().map(of).collect()
});

/// The version of the program in a static pod that kubeadm makes, and whether it emulates an older one. Other units tell none.
fn of_pod(unit: &str) -> Option<(Version, bool)> {
    let StaticPod::Kubeadm { configuration, .. } = serde_json::from_str(unit).ok()? else { return None };
    let (_, rest) = configuration.split_once(r#""kubernetesVersion": ""#)?;
    let version = rest.split('"').next()?.parse().ok()?;
    Some((version, configuration.contains(r#""emulated-version""#)))
}

impl SimulatedHost {
    /// The programs with which a unit starts now. Their version is that of the claim, or the next minor version if they emulate
    /// the claimed one. It stays as long as the links stay. A kubelet may be older than its cluster: its part tells. A static pod has its
    /// version in its text.
    pub(super) fn programs(&self, name: &str, watches: &[String]) -> Option<StartedPrograms> {
        let links: String = watches.iter().filter_map(|path| self.links.get(path)).cloned().collect();
        let claimed = self.claim.as_ref()?.version;
        let unit = self.units.get(name)?;
        if let Some((version, emulates)) = of_pod(&unit.text) {
            return Some(StartedPrograms {
                links,
                version,
                serves: if emulates { claimed } else { version },
            });
        }
        let emulates = unit.text.contains("--emulated-version=");
        let of_links = if emulates { Version { minor: claimed.minor + 1, ..claimed } } else { claimed };
        let of_links =
            KUBELETS.get(links.rsplit('/').next().unwrap_or_default()).copied().unwrap_or(of_links);
        let before = unit.started.as_ref().filter(|before| before.links == links);
        let version = before.map_or(of_links, |before| before.version);
        Some(StartedPrograms { links, version, serves: if emulates { claimed } else { version } })
    }

    /// The version of the programs of a unit at its last start.
    pub(super) fn last_version(&self, name: &str) -> Option<Version> {
        Some(self.units.get(name)?.started.as_ref()?.version)
    }

    /// The version of the programs of a unit that runs.
    pub(super) fn running_version(&self, name: &str) -> Option<Version> {
        self.units.get(name).filter(|unit| unit.running.is_some())?;
        self.last_version(name)
    }

    /// The version that the programs of a unit that runs serve.
    pub(super) fn served_version(&self, name: &str) -> Option<Version> {
        let unit = self.units.get(name).filter(|unit| unit.running.is_some())?;
        Some(unit.started.as_ref()?.serves)
    }
}
