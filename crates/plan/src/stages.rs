//! The order of things, as a list you can read. Within a stage hosts work side by side, and a step starts
//! as soon as what it needs is done, so stages overlap where nothing forbids it.

use std::panic::resume_unwind;
use std::thread;

use crate::context::PlanContext;
use crate::desired::{DesiredStep, control, etcd, join, leave, network, prepare, verify};

/// One stage on the way from bare hosts to a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Its name in plans and displays.
    pub name: &'static str,
    /// What it does, in a few words.
    pub title: &'static str,
    wishes: fn(&PlanContext<'_>, &mut Vec<DesiredStep>),
}

/// From bare hosts to a working cluster; last, out of it.
pub const STAGES: &[Stage] = &[
    Stage {
        name: prepare::STAGE.as_str(),
        title: "load kernel modules, set parameters, write hosts entries",
        wishes: prepare::host,
    },
    Stage {
        name: prepare::ARTIFACTS.as_str(),
        title: "put parts of the bundle where missing",
        wishes: prepare::artifacts,
    },
    Stage { name: etcd::STAGE.as_str(), title: "start the members", wishes: etcd::members },
    Stage {
        name: control::STAGE.as_str(),
        title: "start kube-apiserver, controller-manager, scheduler",
        wishes: control::plane,
    },
    Stage {
        name: join::STAGE.as_str(),
        title: "start containerd and kubelet, approve, haproxy to the masters",
        wishes: join::nodes,
    },
    Stage {
        name: network::STAGE.as_str(),
        title: "start kube-proxy and flannel, apply CoreDNS",
        wishes: network::services,
    },
    Stage {
        name: verify::STAGE.as_str(),
        title: "nodes Ready, DNS answers on every host",
        wishes: verify::cluster,
    },
    Stage {
        name: leave::STAGE.as_str(),
        title: "empty nodes, take them out, reset their hosts",
        wishes: leave::workers,
    },
];

/// Everything that should be, in order, whether it is there or not.
pub(crate) fn wishes(site: &PlanContext<'_>) -> Vec<DesiredStep> {
    side_by_side(STAGES.iter().map(|stage| {
        move || {
            let mut wishes = Vec::new();
            (stage.wishes)(site, &mut wishes);
            wishes
        }
    }))
}

/// What each piece of work makes, one after the other; the work itself is done on as many threads.
pub(crate) fn side_by_side<T: Send>(work: impl Iterator<Item = impl FnOnce() -> Vec<T> + Send>) -> Vec<T> {
    thread::scope(|scope| {
        let pieces: Vec<_> = work.map(|piece| scope.spawn(piece)).collect();
        pieces
            .into_iter()
            .flat_map(|piece| piece.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_names_are_distinct() {
        let mut names: Vec<_> = STAGES.iter().map(|stage| stage.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STAGES.len());
    }
}
