//! Tests of the simulated world, and crash tests of the planner.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]

mod crash_anywhere;
mod crash_container_mode;
mod crash_external_etcd;
mod crash_masters;
mod crash_nodes;
mod crash_restore;
mod crash_rotation;
mod crash_scaling;
mod crash_upgrades;
mod degraded;
mod harness;
mod lives;
mod precheck;
mod support;
mod world;
