//! Text that a host or a Kubernetes program will read, from plain values. Pure: no decision about what
//! should run where is taken here, only how it is written down.
//!
//! ```text
//!   plan ──values──►  render  ──►  unit files · configuration · kubeconfigs · objects
//! ```

pub mod config;
pub mod manifests;
pub mod paths;
pub mod systemd;
