//! Renders the files of hosts and the objects of clusters from plain values. The crate has no side effects and decides only
//! the form of the text: the plan decides what runs on which host.
//!
//! ```text
//!   plan ──values──►  render  ──►  unit files · configuration · kubeconfigs · objects · scripts of Jobs
//! ```

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod api_server;
mod arguments;
pub mod config;
pub mod entrypoint;
pub mod extra_arguments;
pub mod firewall;
mod frame;
pub mod job;
pub mod manifests;
pub mod paths;
pub mod registry;
pub mod renewal;
mod sandbox;
pub mod static_pods;
pub mod systemd;
mod tls;
pub mod tools;
pub mod updater;
