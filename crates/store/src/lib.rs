//! The state of the control machine: the clusters that were created here, the specification of each, and the process that
//! changes it now.
//!
//! It decides nothing, connects to no host and stores no password. Files are replaced atomically, are readable by their
//! owner only, and are changed only with the lock of their cluster.
//!
//! ```text
//!   $KUBEON_HOME or ~/.kubeon        0700
//!   ├── demo.json                    state of demo, 0600
//!   ├── demo.json.bak                the previous state
//!   ├── current                      the cluster that `kubeon use` chose
//!   ├── secret/demo/                 keys (kubeon-pki)
//!   ├── conf/cluster/demo.yaml       the admin's kubeconfig
//!   ├── known_hosts/demo             SSH keys of the hosts (kubeon-link-host)
//!   └── lock/demo                    flock: the kernel releases it when its holder ends
//! ```

mod archive;
mod error;
mod file;
mod holder;
mod lock;
mod state;
mod store;

pub use archive::Imported;
pub use error::{StoreError, StoreRemedy};
pub use holder::Holder;
pub use lock::ClusterLock;
pub use state::{Addresses, ClusterState, HostLogin, RestoredPart, SCHEMA, SavedSnapshot, Status};
pub use store::{Store, StoreContents, base_folder};

#[cfg(test)]
mod tests;
