//! For tests only: builders of hosts and plans, a simulated world behind the real ports, and a harness that
//! kills a run after every effect.
//!
//! ```text
//!   builders   host("10.0.0.1").named("h1").claimed_by("other")   step("a@h1", h1).needs(["b@h1"])
//!   World      files, parts, links, units, images, objects, claims, journals, etcd, API, nodes
//!     ├ Ports    ProbeHost + ActHost + Secrets + Blobs + Clock of the world, until the process dies
//!     ├ die_after(n) · restart() · cut(host) · isolate(host) · shuffle(seed)
//!     └ render()     the complete world as text, to compare
//!   crash      for every n: run, kill after effect n, restart, run again: same world, no repeated harm
//! ```
//!
//! Only `[dev-dependencies]` may contain this crate. The library links no engine crate that changes hosts, so
//! that the tests of those crates can use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test that cannot go on must stop, with the reason"
)]

pub mod crash;
mod golden;
mod hosts;
mod plans;
mod text;
pub mod world;

pub use crash::{Crashes, crash_and_wait, crash_anywhere, crash_twice};
pub use golden::assert_golden;
pub use hosts::{HostBuilder, NOW, address, host, snapshot};
pub use plans::{ClusterBuilder, StepBuilder, cluster, needed, plan_of, step, step_id, with_nodes_at};
pub use text::{fingerprint, sha256_like};
pub use world::{Fault, HostLoss, Ports, SENTINEL, World};
