//! The order of things, as a list you can read. Within a stage hosts work side by side, and a step starts
//! as soon as what it needs is done, so stages overlap where nothing forbids it.

use crate::desired::{Wish, control, etcd, join, network, prepare, verify};
use crate::site::Site;

/// One stage on the way from bare hosts to a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Its name in plans and displays.
    pub name: &'static str,
    /// What it does, in a few words.
    pub title: &'static str,
    wishes: fn(&Site<'_>, &mut Vec<Wish>),
}

/// From bare hosts to a working cluster.
pub const STAGES: &[Stage] = &[
    Stage {
        name: "prepare",
        title: "load kernel modules, set parameters, write hosts entries",
        wishes: prepare::host,
    },
    Stage { name: "artifacts", title: "put parts of the bundle where missing", wishes: prepare::artifacts },
    Stage { name: "etcd", title: "start the members", wishes: etcd::members },
    Stage {
        name: "control",
        title: "start kube-apiserver, controller-manager, scheduler",
        wishes: control::plane,
    },
    Stage {
        name: "join",
        title: "start containerd and kubelet, approve, haproxy to the masters",
        wishes: join::nodes,
    },
    Stage {
        name: "network",
        title: "start kube-proxy and flannel, apply CoreDNS",
        wishes: network::services,
    },
    Stage { name: "verify", title: "nodes Ready, DNS answers on every host", wishes: verify::cluster },
];

/// Everything that should be, in order, whether it is there or not.
pub(crate) fn wishes(site: &Site<'_>) -> Vec<Wish> {
    let mut wishes = Vec::with_capacity(site.hosts.len() * 32);
    for stage in STAGES {
        (stage.wishes)(site, &mut wishes);
    }
    wishes
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
