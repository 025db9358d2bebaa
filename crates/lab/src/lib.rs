//! Test hosts on one machine: `kubeon lab`.
//!
//! A *lab* is N Linux hosts, each with its own network, mounts, processes, host name and cgroups, booted by real
//! systemd and reached by real sshd. It needs root, but no container engine. A host is a set of namespaces on the
//! machine's kernel, or a virtual machine with a kernel of its own ([`HostKind`]).
//!
//! ```text
//!   machine ── kl<hash> .2 ─┐            ┌─ h1 .11   overlay(base, upper) on /, own /var, systemd, sshd
//!                           ├─ br0 .1 ───┼─ h2 .12
//!          switch namespace ┘ (no route  └─ h3 .13
//!                              out)
//! ```
//!
//! Guarantees:
//! - No packet of a lab leaves the machine: the bridge lives in a network namespace that has no route out.
//! - In the machine's own namespaces a lab has processes, cgroups, one link, one route and its folder, and
//!   nothing else. The lab's name identifies all of them, so [`Lab::down`] works after any crash.
//! - State is saved before the effect that depends on it.
//!
//! The crate is independent of Kubernetes, bundles and clusters, and reads no flags. It changes nothing outside the
//! lab's folder, the cache of base root file systems and the objects above.

mod base;
mod cgroup;
mod disk;
mod down;
mod error;
mod host;
mod kind;
mod lab;
mod leftover;
mod leftovers;
mod lock;
mod mounts;
mod name;
mod net;
mod notes;
mod places;
mod process;
mod progress;
mod remedy;
mod stale;
mod state;
mod subnet;
mod tool;
mod vm;

pub use error::{Error, Result};
pub use host::{HostState, LabHost};
pub use kind::HostKind;
pub use lab::{Lab, LabOptions, User};
pub use leftover::Leftover;
pub use name::LabName;
pub use places::Places;
pub use progress::LabProgress;
pub use remedy::LabRemedy;
pub use vm::{options::VmOptions, os::VmOs, profile::VmProfile};
