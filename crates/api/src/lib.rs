//! The nouns of kubeon: what a person declares and how its parts are named.
//!
//! ```text
//!   KubernetesCluster (YAML, flags)  ──►  names, addresses, versions proven at construction  ──►  everything below
//!        │ read_yaml: strict, all mistakes at once, each with line, field and reason
//!        └ crds, json_schema: the same types for API servers and editors, CEL rules included
//! ```
//!
//! Types here carry their own limits: a value that exists is valid. The crate performs no effect and
//! links no client, runtime or transport.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![allow(clippy::duplicated_attributes, reason = "the columns of a table share words")]

mod addresses;
mod arch;
mod crd;
mod host_role;
pub mod kubeonkube;
pub mod kubernetes_cluster;
pub mod labels;
pub mod names;
mod open_words;
mod read;
pub mod refusal;
mod schema;
mod secret;
mod words;

pub use addresses::{DnsName, Endpoint, HttpsUrl, LoginName, PortRange, Registry};
pub use arch::{Arch, NotAnArch};
pub use crd::{GenerateError, crds, definitions, json_schema};
pub use host_role::HostRole;
pub use kubeonkube::{Cluster, ClusterOperation, DataRef};
pub use kubernetes_cluster::{
    KubernetesCluster, KubernetesClusterSpec, KubernetesClusterStatus, Operation, Phase,
};
pub use labels::{LabelKey, LabelValue};
pub use names::{Cidr, ClusterName, Digest, HostAddress, HostName, NameError, Version};
pub use read::{Mistake, ReadError, read_yaml};
pub use refusal::{Refusal, RefusedField, Remedy};
pub use secret::{PrivateKey, PrivateKeyError, Secret};
