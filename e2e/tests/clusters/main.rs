//! End-to-end tests with real programs. Every module has its own hosts in the lab, so that two modules can
//! run at the same time.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test reports the line")]

mod adopt;
mod as_objects;
mod certificates;
mod cluster;
mod container_life;
mod container_mode;
mod crashes;
mod daily;
mod dist;
mod external_etcd;
mod firewall;
mod forwarding;
mod history;
mod kubeadm;
mod life;
mod masters;
mod object_store;
mod other_kills;
mod own_network;
mod playbooks;
mod previous;
mod readdress;
mod refusals;
mod rotation;
mod scale;
mod try_script;
mod updater;
mod upgrade;
mod upgrade_chain;
mod upgrade_failures;
mod upgrade_kills;
mod versions;
mod vm;
