//! From a cluster request to an outcome, for every program that changes clusters.
//!
//! ```text
//!   ClusterRequest ─► ClusterTarget ─► Contact ─► lock ─► reconcile ─► outcome
//!   (what is asked)   (with the state)  (SSH)     (store)  (observe, plan, apply)
//! ```
//!
//! It reads no flags, prints nothing and ends no process: what it needs from its caller is in [`environment`] and
//! [`output`], what it refuses is an [`error::EngineError`].

mod admin_kubeconfig;
pub mod artifacts;
pub mod bundles;
pub mod change;
pub mod checked;
pub mod choose;
pub mod cluster_request;
pub mod cluster_target;
pub mod contact;
pub mod destroy;
pub mod endpoint;
pub mod engine;
pub mod environment;
pub mod error;
pub mod host_keys;
pub mod hosts_file;
pub mod keys;
pub mod kubeconfig;
mod kubectl_program;
pub mod login;
pub mod login_merge;
pub mod login_request;
pub mod memory_file;
pub mod no_secrets;
pub mod output;
pub mod pre_apply_hook;
pub mod request_file;
pub mod request_inventory;
pub mod run;
pub mod selector;
pub mod user_kubeconfig;
pub mod worker_change;
