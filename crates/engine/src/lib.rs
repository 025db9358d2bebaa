//! Changes clusters: from a cluster request to an outcome.
//!
//! ```text
//!   ClusterRequest ─► ClusterTarget ─► Contact ─► lock ─► reconcile ─► outcome
//!   (desired cluster) (with the state)  (SSH)     (store)  (observe, plan, apply)
//! ```
//!
//! The crate reads no flags, prints nothing and ends no process. The caller passes [`environment`] and
//! [`output`]. Every refusal and failure is an [`error::EngineError`].

mod admin_kubeconfig;
pub mod adoption;
pub mod approved_plan;
pub mod artifacts;
pub mod bundles;
pub mod change;
mod change_bundles;
pub mod checked;
pub mod choose;
pub mod cloud_routes;
pub mod cluster_config;
pub mod cluster_health;
pub mod cluster_nodes;
pub mod cluster_request;
pub mod cluster_target;
pub mod contact;
pub mod destroy;
pub mod encrypted_file;
pub mod endpoint;
pub mod engine;
pub mod environment;
pub mod error;
pub mod etcd_snapshot;
pub mod forecast;
pub mod host_change;
pub mod host_keys;
pub mod hosts_file;
pub mod image_load;
mod jump_login;
pub mod jump_path;
pub mod keys;
mod known_masters;
pub mod kubeconfig;
pub mod kubectl;
mod kubectl_program;
mod left_hosts;
pub mod login;
pub mod login_merge;
pub mod login_request;
pub mod memory_file;
pub mod meta_export;
pub mod meta_restore;
pub mod no_secrets;
pub mod node_module;
pub mod node_version;
pub mod observer_kubeconfig;
pub mod operator_install;
pub mod operator_uninstall;
pub mod output;
mod planned_names;
pub mod pre_apply_hook;
pub mod precheck;
pub mod preview;
pub mod readdress;
pub mod ready_master;
mod reboot;
pub mod released_images;
pub mod remedy;
mod removed_apis;
pub mod request_file;
pub mod request_inventory;
pub mod restore;
mod restored_snapshot;
pub mod rollback;
pub mod rotation;
pub mod run;
mod run_identities;
pub mod scale;
pub mod selector;
pub mod snapshot_folder;
pub mod snapshot_place;
mod snapshot_space;
pub mod snapshot_storage;
mod ssh_config;
mod stored_versions;
#[cfg(test)]
mod testing;
pub mod trusted_signers;
pub mod upgrade;
pub mod upgrade_checks;
pub mod user_kubeconfig;
mod verified_parts;
mod version_wait;
pub mod way_back;
