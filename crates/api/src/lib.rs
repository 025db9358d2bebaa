//! The API types of kubeon: the custom resources, and the types of names, addresses and versions.
//!
//! ```text
//!   KubernetesCluster (YAML, flags)  ──►  validated names, addresses, versions  ──►  other crates
//!        │ read_yaml: strict; returns all mistakes at once, each with line, field and reason
//!        └ crds, json_schema: the same types for API servers and editors, with CEL rules
//! ```
//!
//! A value of a type in this crate is valid: the constructors check its limits. The crate has no side effects and
//! depends on no client, runtime or transport.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![allow(clippy::duplicated_attributes, reason = "the printer columns share words")]

mod addresses;
mod arch;
mod canonical;
mod clip;
mod cloud_routes;
mod cluster_keys;
mod condition_status;
mod crd;
mod host_role;
mod job_placement;
pub mod kubeonkube;
pub mod kubernetes_cluster;
pub mod labels;
mod majority;
pub mod names;
mod open_words;
mod read;
pub mod refusal;
mod schema;
mod secret;
mod step_record;
pub mod suggestion;
mod upgrade_way;
mod words;
pub mod yaml;

pub use addresses::{
    CaBundle, DnsName, Endpoint, HttpUrl, HttpsUrl, LoginName, NoProxy, PortRange, Registry,
};
pub use arch::{Arch, NotAnArch};
pub use canonical::canonical_json;
pub use clip::clip;
pub use cloud_routes::{CloudProvider, CloudRegion, CloudRoutes, RouteTableId};
pub use cluster_keys::{ClusterKeys, KeyNumber, RotationPhase};
pub use condition_status::ConditionStatus;
pub use crd::{GenerateError, crds, declaration_schema, definitions, json_schema, merge_patch_schema};
pub use host_role::HostRole;
pub use job_placement::{
    ClusterJobPlacement, JobPlacement, JobResources, JobToleration, TaintEffect, TolerationOperator,
};
pub use kubeonkube::{Cluster, ClusterOperation, DataRef};
pub use kubernetes_cluster::{
    KubernetesCluster, KubernetesClusterSpec, KubernetesClusterStatus, Operation, Phase,
};
pub use labels::{LabelKey, LabelValue};
pub use majority::is_majority;
pub use names::{Cidr, ClusterName, Digest, HostAddress, HostName, NameError, Version};
pub use read::{Mistake, ReadError, read_yaml};
pub use refusal::{Refusal, RefusedField, Remedy};
pub use secret::{PrivateKey, PrivateKeyError, Secret};
pub use step_record::{StepRecord, StepResult};
pub use upgrade_way::{NoWay, upgrade_way};
