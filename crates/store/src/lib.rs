//! The state of the control machine: which clusters were made here, what was wanted of each, and who is
//! at work on it now.
//!
//! It may not decide anything, reach a host, or hold a password. Every file is written whole or not at all, is
//! readable by its owner only, and is changed only under the lock of its cluster.
//!
//! ```text
//!   $KUBEON_HOME or ~/.kubeon        0700
//!   ├── demo.json                    state of demo, 0600
//!   ├── demo.json.bak                the state before that
//!   ├── current                      the cluster that `kubeon use` chose
//!   ├── secret/demo/                 keys (kubeon-pki)
//!   ├── conf/cluster/demo.yaml       the admin's kubeconfig
//!   ├── known_hosts/demo             SSH keys of the hosts (kubeon-link-host)
//!   └── lock/demo                    held with flock: the kernel lets go when its holder dies
//! ```

mod archive;
mod error;
mod file;
mod holder;
mod lock;
mod state;
mod store;

pub use archive::Imported;
pub use error::StoreError;
pub use holder::Holder;
pub use lock::Lock;
pub use state::{Addresses, ClusterState, HostLogin, SCHEMA, Status};
pub use store::{Store, base_folder};

#[cfg(test)]
mod tests;
