//! The `KubernetesCluster`: the declaration of a business cluster.
//!
//! ```text
//!   DeclaredCluster (as written) ──settings()──► ClusterSettings (complete) ──► plans
//!                                ──hosts()─────► Host (each once, with its roles)
//!                                ──changes()───► Changes (compared with the existing cluster)
//! ```

mod changeable;
mod changes;
mod choices;
mod container_runtime;
pub mod defaults;
mod extra_args;
mod feature_gates;
mod flat;
mod hosts;
mod load_balancer;
mod maintenance;
mod node_roles;
mod node_taint;
mod nodes;
mod object;
mod operation;
mod rules;
mod settings;
mod snapshots;
mod spec;
mod status;
mod timeout;
mod unset;
mod unsupported;

pub use changeable::fixed_because;
pub use changes::Changes;
pub use choices::{
    ClusterType, Cni, DeletionPolicy, DeployMode, FirewallMode, HostKeyMode, LoadBalancerMode, ProxyMode,
    RepairPolicy,
};
pub use container_runtime::ContainerRuntime;
pub use extra_args::ExtraArgs;
pub use feature_gates::FeatureGates;
pub use hosts::{Host, HostConflict, Roles};
pub use load_balancer::LoadBalancer;
pub use maintenance::{MaintenanceWindow, TimeOfDay, Weekday};
pub use node_roles::NodeRoles;
pub use node_taint::NodeTaint;
pub use nodes::{DeclaredNode, NodeList, NodeListError, Role};
pub use object::{KubernetesCluster, KubernetesClusterSpec};
pub use operation::{Operation, Phase};
pub use settings::{ClusterSettings, SettingsError};
pub use snapshots::Snapshots;
pub use spec::{
    Addons, ApiServer, AuthConfig, Certificates, CredentialsRef, DeclaredCluster, DeclaredLoadBalancer,
    Network,
};
pub use status::{KubernetesClusterStatus, NodeStatus, SecretName, SnapshotsStatus};
pub use timeout::TimeoutMins;
pub use unsupported::UnsupportedSetting;

#[cfg(test)]
mod tests;
