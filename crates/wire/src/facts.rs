//! What was seen on a host, read only.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::{Cidr, ClusterName, Digest, HostRole, Version};
use serde::{Deserialize, Serialize};

/// What a look at a host told. A field that the look could not tell is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// `uname -s`, such as `Linux`.
    pub system: String,
    /// `uname -m`, such as `x86_64`.
    pub architecture: String,
    /// `uname -r`.
    pub kernel: String,
    /// The host's own name.
    pub hostname: String,
    /// `PRETTY_NAME` of os-release.
    pub os: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// Processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free bytes where `/var/lib/kubeon` lies or will lie.
    pub disk_free_bytes: u64,
    /// The host's clock: seconds since 1970, read at the moment of the look.
    pub clock_seconds: i64,
    /// How far the host's clock is ahead of the control machine's, in seconds.
    pub clock_offset_seconds: i64,
    /// Control groups.
    pub cgroup: Cgroup,
    /// Whether root here has `CAP_SYS_RESOURCE`; without it `oom_score_adj` cannot be lowered.
    pub can_sys_resource: bool,
    /// Whether `/proc/sys/net/netfilter/nf_conntrack_max` can be written.
    pub can_set_conntrack: bool,
    /// Whether the kernel has IPVS.
    pub has_ipvs: bool,
    /// Whether the kernel has nftables.
    pub has_nftables: bool,
    /// Whether the login is root or may become root.
    pub is_root: bool,
    /// Whether systemd is the init system.
    pub has_systemd: bool,
    /// Whether SELinux forbids what its policy does not allow; `None` where the kernel runs without it.
    pub selinux_enforces: Option<bool>,
    /// Swap in bytes.
    pub swap_bytes: u64,
    /// The program that installs packages, such as `apt`; `None` where none is known.
    pub package_manager: Option<String>,
    /// Programs by name: whether the host has them itself.
    pub programs: BTreeMap<String, bool>,
    /// The host's IPv4 addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// TCP ports of the cluster that somebody listens on.
    pub busy_ports: Vec<u16>,
    /// TCP ports that somebody listens on.
    pub listening: Vec<u16>,
    /// Files that can still be made where `/var/lib/kubeon` lies; `None` where they are not counted.
    pub inodes_free: Option<u64>,
    /// What the firmware calls the machine; empty where it says nothing, and in a container.
    pub product_uuid: String,
    /// Kernel modules by name: whether the kernel has it or can load it.
    pub modules: BTreeMap<String, bool>,
    /// Kernel parameters by name, as they are now.
    pub parameters: BTreeMap<String, String>,
    /// Whether kernel parameters can be set.
    pub can_set_parameters: Option<bool>,
    /// Name servers in `/etc/resolv.conf`.
    pub nameservers: Option<Vec<String>>,
    /// Whether the host's own name is resolved.
    pub resolves_itself: Option<bool>,
    /// Links that have IPv4 addresses.
    pub links: Vec<LinkFact>,
    /// Networks that there are routes to, but for the default.
    pub routes: Vec<Cidr>,
    /// What came of connections that the look was asked to try.
    pub reached: Vec<ReachFact>,
    /// Signs of a cluster that kubeon did not make: paths.
    pub foreign: Vec<String>,
    /// Services that the host has by itself and whose place or data a cluster's would take, such as `containerd`; not
    /// looked for where a claim is.
    pub own_services: Vec<String>,
    /// Who holds the host, from `/var/lib/kubeon/claim.json`.
    pub claim: Option<Claim>,
    /// SHA-256 of the node program in place.
    pub node_program: Option<Digest>,
    /// Digests of the unpacked parts.
    pub parts: Vec<Digest>,
    /// The steps that were done on this host, and whether their results are still there.
    pub journal: Vec<JournalEntry>,
    /// Certificates in place.
    pub certificates: Vec<CertificateFact>,
    /// The certificates by which the kubelet makes itself known.
    pub kubelet: KubeletFacts,
    /// What this host's API server and etcd member say; only from masters.
    pub cluster: Option<ClusterFacts>,
    /// Checks that did not finish in time, each as words that follow the host's name. Their results are assumed to be up
    /// to date, so no step is planned because of them.
    #[serde(rename = "untold")]
    pub unchecked: Vec<String>,
}

/// A network link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFact {
    /// An address on it.
    pub address: Ipv4Addr,
    /// Its name, such as `eth0`.
    pub name: String,
    /// Bytes that a packet may have.
    pub mtu: u32,
}

/// A connection that was tried from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReachFact {
    /// Where to: an address or a name.
    pub target: String,
    /// The port.
    pub port: u16,
    /// What came of it.
    pub outcome: Reach,
}

/// What came of trying to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// Somebody listens.
    Open,
    /// The host is there, nobody listens.
    Refused,
    /// Nothing came back in time.
    Silent,
    /// There is no way there, or no such name.
    Failed,
}

/// Version of the control groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cgroup {
    /// The unified hierarchy: the normal case.
    #[default]
    V2,
    /// The older hierarchies: adapted to.
    V1,
}

/// Who holds a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// The cluster's identity.
    pub uid: String,
    /// The highest generation seen.
    pub generation: u64,
    /// The Kubernetes version of that generation.
    pub version: Version,
    /// What the host does for the cluster.
    pub role: HostRole,
}

/// A step that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// The step.
    pub id: String,
    /// Digest of the step's content.
    pub digest: String,
    /// Whether its result is still there.
    #[serde(rename = "standing")]
    pub state: ResultState,
}

/// Whether the result of a step is still there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResultState {
    /// It was checked and is up to date, or could not be checked in time.
    #[serde(rename = "stands")]
    UpToDate,
    /// It differs: what is missing or was changed, in a few words.
    Drifted(String),
}

/// From when on a certificate that is valid between these two moments is renewed: two thirds of its life, so that a
/// third is left in which renewing may fail. Seconds since 1970.
#[must_use]
pub fn renewal_due(not_before: i64, not_after: i64) -> i64 {
    not_before + (not_after - not_before) / 3 * 2
}

/// A certificate file on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFact {
    /// Its path.
    pub path: String,
    /// Seconds since 1970.
    pub not_before: i64,
    /// Seconds since 1970.
    pub not_after: i64,
}

/// The certificates by which a kubelet makes itself known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletFacts {
    /// Good for asking once for its own.
    pub bootstrap: Option<CertificateFact>,
    /// Its own, which it renews by itself while it runs.
    pub own: Option<CertificateFact>,
}

/// What a master's API server and etcd say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFacts {
    /// Whether `/readyz` answers.
    pub api_ready: bool,
    /// The API server's version.
    pub version: Option<Version>,
    /// Nodes by name; `None` where the API server did not tell them in time, which is not the same as none.
    pub nodes: Option<BTreeMap<String, NodeFact>>,
    /// What this host's etcd member says.
    pub etcd: EtcdFact,
}

/// What a master's own etcd member says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EtcdFact {
    /// Nothing in time: whether it serves is not known.
    #[default]
    Untold,
    /// It does not serve: nobody listens, or nobody who is known by the cluster's certificates.
    Down,
    /// The members that it lists, by name: whether each answers a read that takes a quorum, `None` where it answered
    /// nothing in time.
    Members(BTreeMap<String, Option<bool>>),
}

/// What the API server says of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFact {
    /// Condition `Ready` is `True`.
    pub ready: bool,
    /// Why not, in the kubelet's words.
    pub reason: String,
    /// The kubelet's version.
    pub kubelet: String,
    /// Addresses of type `InternalIP`.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
}
