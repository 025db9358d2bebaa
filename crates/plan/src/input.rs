//! The input of the planner.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::{ClusterSettings, Cni, DeployMode, NodeTaint, ProxyMode};
use kubeon_api::{Arch, ClusterKeys, ClusterName, Digest, HostAddress, HostName, HostRole, Version};
use kubeon_wire::Facts;
use serde::{Deserialize, Serialize};

use crate::max_unavailable::MaxUnavailable;

/// Proof that a value passed [`crate::validate`], which is the only way to create one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Valid<T>(pub(crate) T);

impl<T> std::ops::Deref for Valid<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The desired state of one cluster: its name, version and hosts, and its complete settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DesiredCluster {
    /// The cluster's name.
    pub name: ClusterName,
    /// The Kubernetes version.
    pub version: Version,
    /// Control plane hosts, in order.
    pub masters: Vec<HostSpec>,
    /// Hosts for workloads, in order.
    pub workers: Vec<HostSpec>,
    /// Hosts that run etcd and nothing else, in order. If there is none, etcd is stacked on all masters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd_hosts: Vec<HostSpec>,
    /// The settings of the whole cluster.
    #[serde(flatten)]
    pub settings: ClusterSettings,
}

impl DesiredCluster {
    /// All hosts, masters first.
    pub fn hosts(&self) -> impl Iterator<Item = &HostSpec> {
        self.nodes().chain(&self.etcd_hosts)
    }

    /// The hosts that run a node, masters first.
    pub fn nodes(&self) -> impl Iterator<Item = &HostSpec> {
        self.masters.iter().chain(&self.workers)
    }

    /// All hosts with their roles, masters first.
    pub fn hosts_with_roles(&self) -> impl Iterator<Item = (HostRole, &HostSpec)> {
        let masters = self.masters.iter().map(|host| (HostRole::Master, host));
        let workers = self.workers.iter().map(|host| (HostRole::Worker, host));
        masters.chain(workers).chain(self.etcd_hosts.iter().map(|host| (HostRole::Etcd, host)))
    }

    /// Whether etcd runs on hosts of its own.
    #[must_use]
    pub fn has_external_etcd(&self) -> bool {
        !self.etcd_hosts.is_empty()
    }

    /// Whether the control plane and haproxy run as static pods.
    #[must_use]
    pub fn runs_static_pods(&self) -> bool {
        match self.settings.deploy_mode {
            DeployMode::Binary => false,
            DeployMode::Container => true,
        }
    }

    /// Whether kubeon runs the network of the pods. Otherwise the owner of the cluster does.
    #[must_use]
    pub fn runs_flannel(&self) -> bool {
        self.settings.cni == Cni::Flannel
    }

    /// Whether kubeon runs kube-proxy. Otherwise the network plugin of the owner implements Services.
    #[must_use]
    pub fn runs_kube_proxy(&self) -> bool {
        self.settings.proxy_mode != ProxyMode::Bpf
    }

    /// The hosts of the members of etcd.
    #[must_use]
    pub fn member_hosts(&self) -> &[HostSpec] {
        if self.has_external_etcd() { &self.etcd_hosts } else { &self.masters }
    }

    /// The role of these hosts.
    #[must_use]
    pub fn member_role(&self) -> HostRole {
        if self.has_external_etcd() { HostRole::Etcd } else { HostRole::Master }
    }
}

/// One host of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSpec {
    /// The address to log in at, which identifies the host.
    pub address: HostAddress,
    /// Its own address in the cluster's network; `None` if that is `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_address: Option<HostAddress>,
    /// The name of its node; `None` for the hostname of the host.
    pub name: Option<HostName>,
    /// Labels for the node.
    pub labels: BTreeMap<String, String>,
    /// Taints for the node.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<NodeTaint>,
}

impl HostSpec {
    /// A host at an address, with no other field.
    #[must_use]
    pub fn at(address: HostAddress) -> Self {
        Self { address, internal_address: None, name: None, labels: BTreeMap::new(), taints: BTreeSet::new() }
    }

    /// The same host with its address in the cluster's network.
    #[must_use]
    pub fn with_internal_address(self, address: Option<HostAddress>) -> Self {
        Self { internal_address: address.filter(|internal| *internal != self.address), ..self }
    }

    /// The address in the cluster's network: other hosts and pods reach the host there.
    #[must_use]
    pub fn cluster_address(&self) -> HostAddress {
        self.internal_address.unwrap_or(self.address)
    }
}

/// The content of the bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifacts {
    /// Its architecture; `None` if there is no bundle.
    pub arch: Option<Arch>,
    /// Parts by name: `kubelet`, `etcd`, `cni-plugins`, …
    pub parts: BTreeMap<String, PartInfo>,
    /// Images that hosts need, by role: `pause`, `coredns`.
    pub images: BTreeMap<String, ImageInfo>,
}

impl Artifacts {
    /// The name of a part among those of all architectures: states before there were several name those of amd64 alone.
    #[must_use]
    pub fn recorded_name(&self, part: &str) -> String {
        match self.arch {
            None | Some(Arch::Amd64) => part.to_owned(),
            Some(arch) => format!("{arch}/{part}"),
        }
    }
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

/// The restore of a snapshot of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotRestore {
    /// Tells one restore from another one, also of the same snapshot. Members of etcd that an earlier one made are refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// A part that holds `snapshot.db`.
    pub snapshot: PartInfo,
}

/// An image archive, stored as a part of the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageInfo {
    /// The upstream name, such as `registry.k8s.io/pause:3.10.2`.
    pub name: String,
    /// The part whose `image.tar` is the archive.
    pub part: PartInfo,
}

/// An observed value, or the reason why it is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Observation<T> {
    /// The value was observed in this snapshot.
    Fresh(T),
    /// The value could not be observed. This does not mean that it is absent.
    Unknown {
        /// Why, in one sentence.
        why: String,
        /// How the observation failed.
        #[serde(default)]
        failure: ObservationFailure,
    },
}

/// How the observation of a host failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ObservationFailure {
    /// The host did not answer.
    #[default]
    NoAnswer,
    /// The host answered and refused the login.
    LoginRefused,
    /// The host answered with an SSH key that is not known.
    UnknownHostKey,
    /// The host answered with an SSH key that is revoked or is not the pinned key.
    HostKeyMismatch,
}

impl<T> Observation<T> {
    /// The value, if it was observed.
    pub fn fresh(&self) -> Option<&T> {
        match self {
            Self::Fresh(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }
}

/// The observed facts of all hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The time of the observation, in seconds since 1970.
    pub taken_at: i64,
    /// Every host that was contacted.
    pub hosts: BTreeMap<HostAddress, Observation<Facts>>,
}

/// The desired state of one cluster, with its identity and the options of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The desired state.
    pub spec: Valid<DesiredCluster>,
    /// The identity of the cluster, created once when its state was first saved.
    pub uid: String,
    /// The highest generation that was planned for it.
    pub generation: u64,
    /// The next minor version that the control plane tries: its programs are of that version and emulate the one of the
    /// specification, so that they can go back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Version>,
    /// The version of the programs of the nodes, if it is older than the one of the specification: every master has had that one
    /// before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes_at: Option<Version>,
    /// The content of the bundle of the specification's version; while a version is tried, with the control plane's programs of
    /// it, and with the nodes' programs of their version.
    pub artifacts: Artifacts,
    /// The content of the bundles of that version for other architectures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_artifacts: Vec<Artifacts>,
    /// The content of the bundles that the hosts get after this plan: of the version that is tried, and of the later versions of an
    /// upgrade. Their parts need disk space, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub later_artifacts: Vec<Artifacts>,
    /// How many versions follow whose bundles are not on this machine. The disks of the hosts need space for them, too: as much
    /// for each as for the parts that come now.
    #[serde(skip_serializing_if = "is_zero")]
    pub unseen_versions: u32,
    /// The digests of the programs that the cluster uses, by part, if it has this version and an earlier run recorded them.
    pub bundle_in_use: BTreeMap<String, Digest>,
    /// Hosts that the user allows to skip when they are unreachable.
    #[serde(rename = "without")]
    pub skip_hosts: Vec<HostAddress>,
    /// The snapshot out of which the members of etcd are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore: Option<SnapshotRestore>,
    /// Leaving masters that the user replaces because they are lost. A plan is refused if one of them answers.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub lost_hosts: BTreeSet<HostAddress>,
    /// Hosts whose address changes. A plan is refused if one of them does not answer at the new one, or another machine does.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub moved_hosts: BTreeSet<HostAddress>,
    /// Workers that the change does not concern. They are not observed, and no step runs on them.
    pub unconcerned: BTreeSet<HostAddress>,
    /// Hosts that are no longer in the specification but still hold parts of the cluster.
    pub leaving: Vec<HostSpec>,
    /// Those of them that are masters.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving_masters: BTreeSet<HostAddress>,
    /// Those of them that run etcd and nothing else.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub leaving_etcd_hosts: BTreeSet<HostAddress>,
    /// Masters that were added to a cluster that exists. If etcd is stacked on the masters, the others made its cluster together.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub joining_masters: BTreeSet<HostAddress>,
    /// Workers that earlier changes of the masters did not reach, with the masters that each still knows: none if all of them
    /// left. The other workers know all masters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub known_masters: BTreeMap<HostAddress, BTreeSet<HostAddress>>,
    /// Hosts of etcd alone that were added to a cluster that exists.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub joining_etcd_hosts: BTreeSet<HostAddress>,
    /// Hosts that kubeadm made nodes of the cluster, and that kubeon takes over while their programs run.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_over: BTreeSet<HostAddress>,
    /// Workers that are in the specification again after a removal began: some of its steps may be done.
    pub returning: Vec<HostAddress>,
    /// The timeout for draining a node, in seconds.
    pub drain_seconds: u32,
    /// Whether nodes keep their pods while their kubelet changes to another minor version.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skip_evict: bool,
    /// Whether the plan only puts parts onto the hosts. Another plan does the rest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub only_parts: bool,
    /// Names of checks whose failures the user chose to ignore.
    pub ignore: BTreeSet<String>,
    /// How many workers may be unavailable at the same time while services restart.
    pub max_unavailable: MaxUnavailable,
    /// Which keys sign and which are trusted.
    pub keys: ClusterKeys,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Intent {
    /// The default timeout for draining a node, in seconds.
    pub const DRAIN_SECONDS: u32 = 300;

    /// An intent without skipped hosts and without hosts that join or leave.
    #[must_use]
    pub fn new(spec: Valid<DesiredCluster>, uid: &str, generation: u64, artifacts: Artifacts) -> Self {
        Self {
            spec,
            uid: uid.to_owned(),
            generation,
            trial: None,
            nodes_at: None,
            artifacts,
            other_artifacts: Vec::new(),
            later_artifacts: Vec::new(),
            unseen_versions: 0,
            bundle_in_use: BTreeMap::new(),
            skip_hosts: Vec::new(),
            restore: None,
            lost_hosts: BTreeSet::new(),
            moved_hosts: BTreeSet::new(),
            unconcerned: BTreeSet::new(),
            leaving: Vec::new(),
            leaving_masters: BTreeSet::new(),
            leaving_etcd_hosts: BTreeSet::new(),
            joining_masters: BTreeSet::new(),
            known_masters: BTreeMap::new(),
            joining_etcd_hosts: BTreeSet::new(),
            taken_over: BTreeSet::new(),
            returning: Vec::new(),
            drain_seconds: Self::DRAIN_SECONDS,
            skip_evict: false,
            only_parts: false,
            ignore: BTreeSet::new(),
            max_unavailable: MaxUnavailable::default(),
            keys: ClusterKeys::default(),
        }
    }

    /// The content of the bundle for a host whose kernel names this architecture, such as `x86_64`. It is that of another
    /// architecture when there is no bundle for the host's.
    #[must_use]
    pub fn artifacts_for(&self, machine: &str) -> &Artifacts {
        let arch = machine.parse::<Arch>().ok();
        let other = self.other_artifacts.iter().find(|artifacts| arch.is_some() && artifacts.arch == arch);
        other.unwrap_or(&self.artifacts)
    }

    /// The content of the bundles that such a host gets after this plan.
    pub(crate) fn later_artifacts_for(&self, machine: &str) -> impl Iterator<Item = &Artifacts> {
        let arch = self.artifacts_for(machine).arch;
        self.later_artifacts.iter().filter(move |artifacts| artifacts.arch == arch)
    }

    /// The role of a leaving host.
    #[must_use]
    pub fn leaving_role(&self, host: HostAddress) -> HostRole {
        if self.leaving_etcd_hosts.contains(&host) {
            return HostRole::Etcd;
        }
        HostRole::of(self.leaving_masters.contains(&host))
    }

    /// Whether the host was added to a cluster that exists and runs a member of etcd.
    #[must_use]
    pub fn joins_etcd(&self, host: HostAddress) -> bool {
        let joining =
            if self.spec.has_external_etcd() { &self.joining_etcd_hosts } else { &self.joining_masters };
        joining.contains(&host)
    }

    /// Whether the host is in the specification again after its removal began.
    #[must_use]
    pub fn returns(&self, host: HostAddress) -> bool {
        self.returning.contains(&host)
    }

    /// Every host to observe: those of the cluster that the change concerns, then those that leave it.
    pub fn hosts(&self) -> impl Iterator<Item = HostAddress> {
        let concerned = |address: &HostAddress| !self.unconcerned.contains(address);
        self.spec.0.hosts().chain(&self.leaving).map(|host| host.address).filter(concerned)
    }

    /// Limits the change to the masters and the given workers: the other workers are not observed.
    pub fn limit_to(&mut self, workers: &BTreeSet<HostAddress>) {
        let others = self.spec.0.workers.iter().map(|host| host.address);
        self.unconcerned =
            others.filter(|address| !workers.contains(address) && !self.returns(*address)).collect();
    }
}
