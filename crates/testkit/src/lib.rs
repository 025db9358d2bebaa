//! For tests only: hosts and plans that read as sentences, a world in memory behind the real ports, and
//! the harness that kills a run after every single effect.
//!
//! ```text
//!   builders   host("10.0.0.1").named("h1").claimed_by("other")   step("a@h1", h1).needs(["b@h1"])
//!   World      files, parts, links, units, images, objects, claims, journals, etcd, API, nodes
//!     ├ Ports    ProbeHost + ActHost + Secrets + Blobs + Clock over it, until the process dies
//!     ├ die_after(n) · restart() · cut(host) · shuffle(seed)
//!     └ picture()    the whole world as text, to compare
//!   crash      for every n: run, die after effect n, restart, run again: same world, nothing harmful twice
//! ```
//!
//! May be named under `[dev-dependencies]` only. Its own library links no engine crate that writes, so that
//! those crates' tests can use it.
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
pub use plans::{ClusterBuilder, StepBuilder, cluster, needed, plan_of, step, step_id};
pub use text::{fingerprint, sha256_like};
pub use world::{Fault, Ports, SENTINEL, World};
