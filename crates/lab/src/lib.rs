//! Test hosts on one machine: `kubeon lab`.
//!
//! A *lab* is N Linux hosts, each with its own network, mounts, processes, host name and cgroups, booted by real
//! systemd and reached by real sshd. No container engine and no virtual machine is needed, only root.
//!
//! ```text
//!   machine ── kl<hash> .2 ─┐            ┌─ h1 .11   overlay(base, upper) on /, own /var, systemd, sshd
//!                           ├─ br0 .1 ───┼─ h2 .12
//!          switch namespace ┘ (no route  └─ h3 .13
//!                              out)
//! ```
//!
//! What this crate promises:
//! - No packet of a lab leaves the machine: the bridge lives in a network namespace that has no route out.
//! - In the machine's own namespaces a lab has processes, cgroups, one link, one route and its folder, nothing
//!   else; all of them are found again by the lab's name, so [`Lab::down`] works after any crash.
//! - State is on disk before the effect that it describes.
//!
//! What it may not do: know Kubernetes, bundles or clusters; read flags. It changes nothing outside the lab's folder,
//! the cache of base root file systems and the objects above.

mod base;
mod cgroup;
mod disk;
mod down;
mod error;
mod host;
mod lab;
mod leftovers;
mod lock;
mod name;
mod net;
mod places;
mod process;
mod progress;
mod stale;
mod state;
mod subnet;
mod tool;

pub use error::Error;
pub use host::{Host, HostState};
pub use lab::{Lab, Options, User};
pub use leftovers::Leftover;
pub use name::LabName;
pub use places::Places;
pub use progress::Progress;

/// Result of every operation on a lab.
pub type Result<T> = std::result::Result<T, Error>;
