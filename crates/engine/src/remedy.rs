//! Remedies and refused inputs as data. The caller renders them in its own terms: flags and commands, or fields.

use std::path::PathBuf;

use kubeon_api::{ClusterName, HostAddress, HostName, HostRole, Version};
use kubeon_bundle::BundleRemedy;
use kubeon_store::StoreRemedy;

use crate::login_request::LoginPart;

/// What a user can do about an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineRemedy {
    /// Choose the default cluster.
    ChooseCluster,
    /// Choose this cluster again, so that kubectl uses a master that answers.
    ChooseReadyMaster(ClusterName),
    /// Complete the last change of this cluster.
    CompleteChange(ClusterName),
    /// Complete the removal of the workers, or take them back.
    CompleteOrTakeBack(ClusterName),
    /// Leave the cluster as it is, or destroy it first.
    KeepOrDestroy(ClusterName),
    /// Create the cluster from the inventory first.
    CreateFromInventory(ClusterName),
    /// Complete the creation of this cluster, or destroy it.
    CompleteOrDestroy(ClusterName),
    /// Import the state of this cluster from a file.
    ImportState {
        /// The cluster.
        cluster: ClusterName,
        /// The file.
        file: PathBuf,
    },
    /// Import the state of this cluster from a file that a control machine exported.
    ImportExport(ClusterName),
    /// Complete the removal of this cluster.
    CompleteDestroy(ClusterName),
    /// Upgrade this cluster to the version.
    Upgrade {
        /// The cluster.
        cluster: ClusterName,
        /// The version.
        version: Version,
    },
    /// Complete the upgrade of this cluster, or abort it.
    CompleteOrAbort(ClusterName),
    /// Bring the master or host of etcd back that a change of version waits for, or replace it.
    CompleteWithMember {
        /// The cluster.
        cluster: ClusterName,
        /// The host that does not answer; `None` if all hosts answer and a member of etcd does not serve.
        lost: Option<(HostName, HostAddress)>,
        /// Whether the change has begun.
        begun: bool,
        /// Whether the change can be aborted.
        can_go_back: bool,
    },
    /// Complete the upgrade of this cluster, or restore the snapshot of the version before.
    CompleteOrRestore {
        /// The cluster.
        cluster: ClusterName,
        /// The version before.
        version: Version,
    },
    /// Destroy this cluster, then restore it from the snapshot.
    RestoreAfterDestroy {
        /// The cluster.
        cluster: ClusterName,
        /// The place of the snapshot.
        snapshot: String,
    },
    /// Add a worker to this cluster, then remove the old one.
    ReplaceWorker(ClusterName),
    /// Make the plan again, and have it approved again.
    PlanAgain,
    /// Confirm the removal of workers.
    ConfirmRemoval {
        /// The command that removes them.
        command: &'static str,
    },
    /// Confirm the destruction of a cluster.
    ConfirmDestroy {
        /// The command that destroys it.
        command: &'static str,
        /// The cluster.
        cluster: ClusterName,
    },
    /// Confirm the replacement of the keys of this cluster.
    ConfirmRotation(ClusterName),
    /// Continue the rotation of this cluster when all hosts answer, or remove those that are lost.
    ContinueRotation(ClusterName),
    /// Compare the SSH keys of the hosts with the keys on the hosts, and trust them.
    TrustHostKeys,
    /// Give a private key or a password for the hosts.
    GiveLogin {
        /// The role of the hosts; `None`: all hosts.
        role: Option<HostRole>,
    },
    /// Give the secret in a file.
    GiveSecretInFile,
    /// Select nodes of a cluster by a selector.
    UseSelector,
    /// Restore the keys of a cluster, or create the cluster again.
    RestoreKeys {
        /// The cluster.
        cluster: ClusterName,
        /// The folder of its keys.
        folder: PathBuf,
    },
    /// Bring the routes to the pods of this cluster up to date.
    UpdateRoutes(ClusterName),
    /// Forget the routes to the pods of this cluster without asking the cloud provider.
    ForgetRoutes(ClusterName),
    /// Give the keys of the cloud provider.
    GiveCloudKeys,
    /// Look at the programs of the masters.
    InspectMasters {
        /// The cluster.
        cluster: ClusterName,
        /// Whether they are static pods, and no services.
        static_pods: bool,
    },
    /// Link the kubectl of the bundle.
    LinkKubectl,
    /// Check the connection to the cluster of this kubeconfig.
    CheckConnection {
        /// The kubeconfig.
        kubeconfig: PathBuf,
    },
    /// Check the permissions of the user of this kubeconfig.
    CheckPermissions {
        /// The kubeconfig.
        kubeconfig: PathBuf,
    },
    /// Look at the pods of the operator.
    InspectOperatorPods {
        /// Their namespace.
        namespace: String,
        /// The selector of their labels.
        selector: &'static str,
    },
    /// Wait for the operations, or cancel them.
    EndOperations,
    /// Delete the clusters first, or keep them for another installation.
    DeleteOrHandOverClusters,
    /// Confirm the removal of the operator.
    ConfirmUninstall,
    /// Stop the operator in this namespace.
    StopOperator {
        /// The namespace.
        namespace: String,
    },
    /// Replace objects that exist and differ from those of an export.
    ReplaceRestored,
    /// Read the log of the operator.
    ReadOperatorLog {
        /// The namespace of the operator.
        namespace: String,
    },
    /// Sign the bundle of this version with a trusted key, or trust the key that signed it.
    SignBundle(Version),
    /// A remedy for the bundle.
    Bundle(BundleRemedy),
    /// A remedy for the state on this machine.
    Store(StoreRemedy),
}

/// An input that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedInput {
    /// A host to skip.
    SkippedHost(String),
    /// A check to ignore.
    IgnoredCheck(String),
    /// A known_hosts file.
    KnownHosts(PathBuf),
    /// A host of the inventory to which a change is limited.
    LimitedHost(String),
    /// A part of the login of all hosts of a role.
    RoleLogin {
        /// The role.
        role: HostRole,
        /// The part.
        part: LoginPart,
    },
}

impl std::fmt::Display for RefusedInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SkippedHost(text) | Self::IgnoredCheck(text) | Self::LimitedHost(text) => f.write_str(text),
            Self::KnownHosts(path) => path.display().fmt(f),
            Self::RoleLogin { role, part } => write!(f, "{part} of the {role}s"),
        }
    }
}
