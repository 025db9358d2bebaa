//! Text that a host or a Kubernetes program will read, from plain values. Pure: no decision about what
//! should run where is taken here, only how it is written down.
//!
//! ```text
//!   plan ──values──►  render  ──►  unit files · configuration · kubeconfigs · objects · scripts of Jobs
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod config;
pub mod entrypoint;
mod frame;
pub mod job;
pub mod manifests;
pub mod paths;
pub mod systemd;
pub mod tools;
