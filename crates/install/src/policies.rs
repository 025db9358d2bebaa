//! Rules for changes of objects that the API server checks by itself: `ValidatingAdmissionPolicy`.
//!
//! | policy | rule |
//! |---|---|
//! | `kubeon-cluster-changes` | who changes or deletes a `Cluster` needs the verb `use` on it |
//! | `kubeon-commands` | who may write which value into the operation annotation, and in which phase |
//! | `kubeon-deletion-protection` | a protected cluster is not deleted |
//! | `kubeon-derived-operations` | only the operator may mark an operation as belonging to a `KubernetesCluster` |
//! | `kubeon-host-pool` | the hosts of a cluster are in the pool of its namespace |
//! | `kubeon-inventories` | a user who writes an inventory must be allowed to read the key that it is used with |
//! | `kubeon-operation-authors` | who runs, changes or deletes an operation needs the verb `use` on its cluster, and more for hooks and foreign images |
//! | `kubeon-references` | a user who refers to a Secret or ConfigMap must be allowed to read it |
//! | `kubeon-runner-account` | only pods of the operator's Jobs get the service account of runners |
//! | `kubeon-runner-status` | a runner writes the status of its own operation, and only the fields of the runner |
//! | `kubeon-runner-secrets` | a runner writes only Secrets and ConfigMaps that were created for its Job, and the log of its Job |
//! | `kubeon-snapshot-endpoint` | the object store of a cluster is one of those that the installer lists |
//!
//! These rules need neither other objects nor a running process. The webhook checks the rules that do.

mod authors;
pub(crate) mod cel;
mod cluster_changes;
mod commands;
mod host_pool;
mod inventories;
mod policy;
mod references;
mod runner;
mod snapshot_endpoint;

use serde_json::Value;

use crate::objects::metadata::value;
use crate::{InstallError, InstallOptions};

/// Every policy with its binding.
///
/// # Errors
/// When an object cannot be written as JSON.
pub fn objects(options: &InstallOptions) -> Result<Vec<Value>, InstallError> {
    let policies = [
        commands::commands(options),
        commands::deletion_protection(),
        commands::derived(options),
        authors::authors(options),
        cluster_changes::cluster_changes(options),
        host_pool::host_pool(options),
        inventories::inventories(options),
        references::references(options),
        snapshot_endpoint::snapshot_endpoint(options),
        runner::account(options),
        runner::status(),
        runner::secrets(),
    ];
    policies.iter().flat_map(|policy| [value(policy.object()), value(policy.binding())]).collect()
}
