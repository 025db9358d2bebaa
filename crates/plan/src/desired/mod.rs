//! The desired steps of every host, by stage. [`crate::diff`] decides which of them are needed.
//!
//! To add a stage, add a module here and an entry to [`STAGES`].

pub(crate) mod arguments;
pub(crate) mod control;
pub(crate) mod control_plane;
pub(crate) mod encryption;
pub(crate) mod etcd;
mod files;
pub(crate) mod firewall;
mod haproxy;
mod hosts_file;
pub(crate) mod join;
mod join_stage;
pub(crate) mod kubelet_version;
pub(crate) mod network;
mod node_images;
pub(crate) mod pods;
pub(crate) mod prepare;
mod registry;
pub(crate) mod remove_hosts;
mod renewal;
pub(crate) mod restore;
pub(crate) mod stage;
pub(crate) mod step;
mod takeover;
mod unused_checks;
mod updater;
pub(crate) mod verify;

use stage::Stage;

/// The stages in order: from bare hosts to a working cluster, then the removal of hosts.
/// Within a stage, the hosts work in parallel. A step starts as soon as the steps that it needs are done, so
/// stages overlap.
pub const STAGES: &[Stage] = &[
    Stage {
        name: prepare::STAGE,
        title: "load kernel modules, set parameters, write hosts entries",
        steps: prepare::host,
    },
    Stage { name: step::ARTIFACTS, title: "copy missing parts of the bundle", steps: prepare::artifacts },
    Stage { name: etcd::STAGE, title: "start the members", steps: etcd::members },
    Stage {
        name: control::STAGE,
        title: "start kube-apiserver, controller-manager, scheduler",
        steps: control::plane,
    },
    Stage {
        name: join::STAGE,
        title: "start containerd, haproxy and kubelet, wait for Ready nodes",
        steps: join::nodes,
    },
    Stage {
        name: network::STAGE,
        title: "start kube-proxy and flannel, apply CoreDNS",
        steps: network::services,
    },
    Stage { name: renewal::STAGE, title: "let hosts renew their certificates", steps: renewal::timers },
    Stage {
        name: verify::STAGE,
        title: "check the API servers, and DNS on every host",
        steps: verify::cluster,
    },
    Stage {
        name: remove_hosts::STAGE,
        title: "drain and remove nodes, reset their hosts",
        steps: remove_hosts::hosts,
    },
];
