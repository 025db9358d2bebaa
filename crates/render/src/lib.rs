//! Renders the files of hosts and the objects of clusters from plain values. The crate has no side effects and decides only
//! the form of the text: the plan decides what runs on which host.
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
pub mod renewal;
pub mod systemd;
pub mod tools;
