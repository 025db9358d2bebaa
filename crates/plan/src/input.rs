//! What a plan is made from.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::ClusterSettings;
use kubeon_api::{Arch, ClusterName, Digest, HostAddress, HostName, Version};
use kubeon_wire::Facts;
use serde::{Deserialize, Serialize};

/// Proof that a value passed [`crate::validate`]; nothing else makes one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Valid<T>(pub(crate) T);

impl<T> std::ops::Deref for Valid<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What one cluster should be: its complete settings, and what is beside them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredCluster {
    /// The cluster's name.
    pub name: ClusterName,
    /// The Kubernetes version.
    pub version: Version,
    /// Control plane hosts, in order; etcd is stacked on all of them.
    pub masters: Vec<HostSpec>,
    /// Hosts for workloads, in order.
    pub workers: Vec<HostSpec>,
    /// What is set for the cluster as a whole.
    #[serde(flatten)]
    pub settings: ClusterSettings,
}

impl DesiredCluster {
    /// All hosts, masters first.
    pub fn hosts(&self) -> impl Iterator<Item = &HostSpec> {
        self.masters.iter().chain(&self.workers)
    }
}

/// One host of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSpec {
    /// Its address in the cluster's network.
    pub address: HostAddress,
    /// Its name as a node; the host's own name where `None`.
    pub name: Option<HostName>,
    /// Labels for the node.
    pub labels: BTreeMap<String, String>,
}

/// What the bundle holds, as data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifacts {
    /// What it is for; `None` where no bundle is at hand.
    pub arch: Option<Arch>,
    /// Parts by name: `kubelet`, `etcd`, `cni-plugins`, …
    pub parts: BTreeMap<String, PartInfo>,
    /// Images that hosts need, by role: `pause`, `coredns`.
    pub images: BTreeMap<String, ImageInfo>,
}

/// One part of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartInfo {
    /// SHA-256 of the compressed blob.
    pub digest: Digest,
    /// Bytes, compressed.
    pub size: u64,
    /// Bytes, unpacked.
    pub unpacked_size: u64,
    /// The part's own version, such as `3.6.8`.
    pub version: String,
}

/// An image archive, carried as a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageInfo {
    /// The upstream name, such as `registry.k8s.io/pause:3.10.2`.
    pub name: String,
    /// The part whose `image.tar` is the archive.
    pub part: PartInfo,
}

/// What was seen, how sure, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Seen<T> {
    /// Seen just now.
    Fresh(T),
    /// Not to be seen, and why. Not the same as absent.
    Unknown {
        /// Why, in one sentence.
        why: String,
        /// Whether it is there and refuses the login.
        #[serde(default)]
        denied: bool,
    },
}

impl<T> Seen<T> {
    /// The value, when it was seen.
    pub fn fresh(&self) -> Option<&T> {
        match self {
            Self::Fresh(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }
}

/// What observe saw of all hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// When, in seconds since 1970.
    pub taken_at: i64,
    /// Every host that was asked.
    pub hosts: BTreeMap<HostAddress, Seen<Facts>>,
}

/// One cluster's wish, with what identifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// What the cluster should be.
    pub spec: Valid<DesiredCluster>,
    /// The cluster's identity, made once when the cluster was first written down.
    pub uid: String,
    /// The highest generation that was ever planned for it.
    pub generation: u64,
    /// What the bundle of that version holds.
    pub artifacts: Artifacts,
    /// Hosts that the user allows to leave out when they are unreachable.
    #[serde(rename = "without")]
    pub skip_hosts: Vec<HostAddress>,
    /// Workers that are no longer in the specification and carry something of the cluster still.
    pub leaving: Vec<HostSpec>,
    /// Workers of the specification that were about to leave and stay after all: part of the way may be done.
    pub returning: Vec<HostAddress>,
    /// Seconds that a node's pods may take to go elsewhere.
    pub drain_seconds: u32,
    /// Checks that are not to stand in the way although they fail: a person said so.
    pub ignore: BTreeSet<String>,
}

impl Intent {
    /// How long a node's pods may take to go elsewhere, where nobody says otherwise.
    pub const DRAIN_SECONDS: u32 = 300;

    /// A wish that leaves no host out and lets none leave.
    #[must_use]
    pub fn new(spec: Valid<DesiredCluster>, uid: &str, generation: u64, artifacts: Artifacts) -> Self {
        Self {
            spec,
            uid: uid.to_owned(),
            generation,
            artifacts,
            skip_hosts: Vec::new(),
            leaving: Vec::new(),
            returning: Vec::new(),
            drain_seconds: Self::DRAIN_SECONDS,
            ignore: BTreeSet::new(),
        }
    }

    /// Whether the host was about to leave and stays.
    #[must_use]
    pub fn returns(&self, host: HostAddress) -> bool {
        self.returning.contains(&host)
    }

    /// Every host that is to be looked at: those of the cluster, then those that leave it.
    pub fn hosts(&self) -> impl Iterator<Item = HostAddress> {
        self.spec.0.hosts().chain(&self.leaving).map(|host| host.address)
    }
}
