//! What should be on every host, stage by stage, as steps that are not yet known to be needed.
//!
//! A new stage is a module here and an entry of [`STAGES`].

pub(crate) mod control;
pub(crate) mod etcd;
mod files;
pub(crate) mod join;
pub(crate) mod network;
pub(crate) mod prepare;
pub(crate) mod remove_workers;
pub(crate) mod stage;
pub(crate) mod step;
pub(crate) mod verify;

use stage::Stage;

/// The stages in their order: from bare hosts to a working cluster; last, the workers that leave it.
/// Within a stage the hosts work in parallel. A step starts as soon as the steps that it needs are done, so
/// stages overlap.
pub const STAGES: &[Stage] = &[
    Stage {
        name: prepare::STAGE,
        title: "load kernel modules, set parameters, write hosts entries",
        steps: prepare::host,
    },
    Stage {
        name: step::ARTIFACTS,
        title: "put parts of the bundle where missing",
        steps: prepare::artifacts,
    },
    Stage { name: etcd::STAGE, title: "start the members", steps: etcd::members },
    Stage {
        name: control::STAGE,
        title: "start kube-apiserver, controller-manager, scheduler",
        steps: control::plane,
    },
    Stage {
        name: join::STAGE,
        title: "start containerd and kubelet, approve, haproxy to the masters",
        steps: join::nodes,
    },
    Stage {
        name: network::STAGE,
        title: "start kube-proxy and flannel, apply CoreDNS",
        steps: network::services,
    },
    Stage { name: verify::STAGE, title: "nodes Ready, DNS answers on every host", steps: verify::cluster },
    Stage {
        name: remove_workers::STAGE,
        title: "empty nodes, take them out, reset their hosts",
        steps: remove_workers::workers,
    },
];
