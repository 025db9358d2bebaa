//! Units that are static pods. A kubelet runs them: this host starts a pod by a new manifest and stops it by removing it.
//!
//! ```text
//!   unit NAME.pod ─► kubeadm, or the text itself ─► manifest with an identity of its own ─► folder of the kubelet
//!                                                                     processes of that identity ◄── /proc
//! ```
//!
//! Another manifest gives the pod another identity, so that the kubelet replaces the pod that runs, and so that its
//! processes are told from those of the pod before.

mod manifest;
mod pod;
mod process;

use std::collections::BTreeMap;
use std::time::Instant;

use kubeon_wire::{POD_SUFFIX, StepFailure};

use crate::root::Root;
use crate::systemd::{NotStarted, Services, Systemd, UnitState};

/// The unit of the kubelet, which is a service of systemd.
const KUBELET: &str = "kubelet.service";

/// The services of a host: those of systemd, and static pods.
pub struct HostServices {
    root: Root,
    systemd: Systemd,
}

impl HostServices {
    /// The services of the host with this root.
    #[must_use]
    pub fn new(root: Root) -> Self {
        Self { root, systemd: Systemd::default() }
    }
}

fn is_pod(unit: &str) -> bool {
    unit.ends_with(POD_SUFFIX)
}

impl Services for HostServices {
    fn states(&self, units: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure> {
        let (pods, others): (Vec<String>, Vec<String>) = units.iter().cloned().partition(|unit| is_pod(unit));
        let mut states = self.systemd.states(&others)?;
        for unit in pods {
            let state = pod::state(&self.root, &unit)?;
            states.insert(unit, state);
        }
        Ok(states)
    }

    fn reload(&self) -> Result<(), StepFailure> {
        self.systemd.reload()
    }

    fn restart(&self, unit: &str, deadline: Instant) -> Result<(), NotStarted> {
        if !is_pod(unit) {
            return self.systemd.restart(unit, deadline);
        }
        pod::start(&self.root, unit, deadline, &|| self.systemd.restart(KUBELET, deadline))
    }

    fn reload_unit(&self, unit: &str, deadline: Instant) -> Result<(), StepFailure> {
        if is_pod(unit) { pod::reload(&self.root, unit) } else { self.systemd.reload_unit(unit, deadline) }
    }

    fn stop(&self, units: &[String], deadline: Instant) -> Result<(), StepFailure> {
        let (pods, others): (Vec<String>, Vec<String>) = units.iter().cloned().partition(|unit| is_pod(unit));
        // Before the kubelet stops: it would start them again.
        let withdrawn =
            pods.iter().map(|unit| pod::withdraw(&self.root, unit)).collect::<Result<Vec<_>, _>>();
        let stopped = self.systemd.stop(&others, deadline);
        withdrawn?.into_iter().flatten().try_for_each(|uid| pod::await_end(&self.root, &uid, deadline))?;
        stopped
    }

    fn log(&self, unit: &str) -> Vec<String> {
        if is_pod(unit) { pod::log(&self.root, unit) } else { self.systemd.log(unit) }
    }
}
