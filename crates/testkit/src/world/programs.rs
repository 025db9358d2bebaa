//! Which versions the programs of a host run and serve.

use kubeon_api::Version;

use super::host::{SimulatedHost, StartedPrograms};

impl SimulatedHost {
    /// The programs with which a unit starts now. Their version is that of the claim, or the next minor version if they emulate
    /// the claimed one. It stays as long as the links stay.
    pub(super) fn programs(&self, name: &str, watches: &[String]) -> Option<StartedPrograms> {
        let links: String = watches.iter().filter_map(|path| self.links.get(path)).cloned().collect();
        let claimed = self.claim.as_ref()?.version;
        let unit = self.units.get(name)?;
        let emulates = unit.text.contains("--emulated-version=");
        let of_links = if emulates { Version { minor: claimed.minor + 1, ..claimed } } else { claimed };
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
