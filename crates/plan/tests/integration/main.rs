//! Golden stories of plans, and tests of the checks and lint rules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod access;
mod addresses;
mod architectures;
mod bundle;
mod container_mode;
mod degraded;
mod external_etcd;
mod firewall;
mod generation;
mod lint;
mod load_balancer;
mod masters;
mod network;
mod pod_network;
mod precheck;
mod restore;
mod rolling;
mod rotation;
mod scaling;
mod settings;
mod stories;
mod support;
mod takeover;
mod upgrade;
