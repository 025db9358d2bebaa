//! The observed facts of a host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeon_api::{Cidr, ClusterName, Digest, HostRole, Version};
use serde::{Deserialize, Serialize};

use crate::firewall::FirewallFact;

/// The facts that the probe of a host returned. A fact that it could not read is `None` or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// `uname -s`, such as `Linux`.
    pub system: String,
    /// `uname -m`, such as `x86_64`.
    pub architecture: String,
    /// `uname -r`.
    pub kernel: String,
    /// The hostname.
    pub hostname: String,
    /// `PRETTY_NAME` of os-release.
    pub os: String,
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// Number of processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Free bytes in the file system of `/var/lib/kubeon`.
    pub disk_free_bytes: u64,
    /// Size of that file system in bytes; 0 if it is not known.
    pub disk_total_bytes: u64,
    /// The clock of the host at the time of the probe, in seconds since 1970.
    pub clock_seconds: i64,
    /// How far the host's clock is ahead of the control machine's, in seconds.
    pub clock_offset_seconds: i64,
    /// Version of the control groups.
    pub cgroup: Cgroup,
    /// Whether root has `CAP_SYS_RESOURCE`, which is required to lower `oom_score_adj`.
    pub can_sys_resource: bool,
    /// Whether `/proc/sys/net/netfilter/nf_conntrack_max` can be written.
    pub can_set_conntrack: bool,
    /// Whether the kernel has IPVS.
    pub has_ipvs: bool,
    /// Whether the kernel has nftables.
    pub has_nftables: bool,
    /// Whether the login user is root or may become root.
    pub is_root: bool,
    /// Whether systemd is the init system.
    pub has_systemd: bool,
    /// Whether SELinux is enforcing; `None` if the kernel runs without it.
    pub selinux_enforces: Option<bool>,
    /// Swap in bytes.
    pub swap_bytes: u64,
    /// The package manager, such as `apt`; `None` if no known one exists.
    pub package_manager: Option<String>,
    /// Programs by name: whether the host has its own.
    pub programs: BTreeMap<String, bool>,
    /// The version of the host's own nft, such as `1.0.6`; `None` if it has none.
    pub nft_version: Option<String>,
    /// The host's IPv4 addresses.
    pub addresses: Vec<Ipv4Addr>,
    /// TCP ports of the cluster that a program listens on.
    pub busy_ports: Vec<u16>,
    /// TCP ports that a program listens on.
    pub listening: Vec<u16>,
    /// Free inodes in the file system of `/var/lib/kubeon`; `None` if it has no limit.
    pub inodes_free: Option<u64>,
    /// The product UUID from the firmware; empty if there is none, and in a container.
    pub product_uuid: String,
    /// Kernel modules by name: whether the kernel has it or can load it.
    pub modules: BTreeMap<String, bool>,
    /// Current values of kernel parameters, by name.
    pub parameters: BTreeMap<String, String>,
    /// Names of kernel parameters in `parameters` that cannot be set.
    pub fixed_parameters: Vec<String>,
    /// Whether kernel parameters can be set.
    pub can_set_parameters: Option<bool>,
    /// Name servers by the file that lists them. `/etc/resolv.conf` is always reported; the files in which
    /// local resolvers keep the servers that they forward to are reported if they exist.
    pub name_servers: BTreeMap<String, Vec<String>>,
    /// Name servers that the probe asked, without those on the host itself: whether each answers. The probe
    /// does not ask on a claimed host.
    pub name_server_answers: BTreeMap<String, bool>,
    /// Whether the host resolves its own name.
    pub resolves_itself: Option<bool>,
    /// Links that have IPv4 addresses.
    pub links: Vec<LinkFact>,
    /// Networks with a route, without the default route.
    pub routes: Vec<Cidr>,
    /// Results of the connections that the probe tried.
    pub reached: Vec<ReachFact>,
    /// The active firewall; `None` if there is none, or if its rules could not be read.
    pub firewall: Option<FirewallFact>,
    /// Paths of a cluster that kubeon did not create.
    pub foreign: Vec<String>,
    /// Services of the host that a cluster would replace, such as `containerd`. They are not searched on a
    /// claimed host.
    pub own_services: Vec<String>,
    /// Names of programs in `/usr/local/bin` that the owner of the host put there and that a cluster would put
    /// there too, such as `kubectl`. They are not searched on a claimed host.
    pub own_programs: Vec<String>,
    /// The cluster that the host belongs to, from `/var/lib/kubeon/claim.json`.
    pub claim: Option<Claim>,
    /// SHA-256 of the installed node program.
    pub node_program: Option<Digest>,
    /// Digests of the unpacked parts.
    pub parts: Vec<Digest>,
    /// The steps that were done on this host, and whether their results still exist.
    pub journal: Vec<JournalEntry>,
    /// Installed certificates.
    pub certificates: Vec<CertificateFact>,
    /// The client certificates of the kubelet.
    pub kubelet: KubeletFacts,
    /// The reports of the API server and the etcd member of this host; only from masters.
    pub cluster: Option<ClusterFacts>,
    /// The steps that the cluster records, as the API server of this host reports them; `None` if it did not
    /// report them in time, or if this host is not a master.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_steps: Option<Vec<JournalEntry>>,
    /// Checks that did not finish in time. Each text follows the name of the host in a sentence. Their
    /// results are assumed to be up to date, so no step is planned because of them.
    #[serde(rename = "untold")]
    pub unchecked: Vec<String>,
}

/// A network link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkFact {
    /// The IPv4 address of the link.
    pub address: Ipv4Addr,
    /// Its name, such as `eth0`.
    pub name: String,
    /// The MTU in bytes.
    pub mtu: u32,
}

/// A connection that was tried from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReachFact {
    /// The target: an address or a name.
    pub target: String,
    /// The port.
    pub port: u16,
    /// The result.
    pub outcome: Reach,
}

/// The result of a connection attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reach {
    /// The connection was accepted.
    Open,
    /// The host answers, but no program listens on the port.
    Refused,
    /// No answer in time.
    Silent,
    /// There is no route, or the name is not known.
    Failed,
}

/// Version of the control groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cgroup {
    /// The unified hierarchy; the default.
    #[default]
    V2,
    /// The older hierarchies.
    V1,
}

/// The cluster that a host belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The cluster's name.
    pub cluster: ClusterName,
    /// The cluster's identity.
    pub uid: String,
    /// The highest generation of a session with the host.
    pub generation: u64,
    /// The Kubernetes version of that generation.
    pub version: Version,
    /// The role of the host in the cluster.
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
    /// Whether its result still exists.
    #[serde(rename = "standing")]
    pub state: ResultState,
}

/// Whether the result of a step still exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResultState {
    /// It was checked and is up to date, or could not be checked in time.
    #[serde(rename = "stands")]
    UpToDate,
    /// It differs. The text names what is missing or was changed, in a few words.
    Drifted(String),
    /// Its service does not run. The text names the service and its state, in a few words.
    Stopped(String),
}

/// The time from which a certificate is renewed, in seconds since 1970: after two thirds of its life, so that
/// one third is left for retries.
#[must_use]
pub fn renewal_due(not_before: i64, not_after: i64) -> i64 {
    not_before + (not_after - not_before) / 3 * 2
}

/// The time from which a plan renews a certificate, in seconds since 1970: after five sixths of its life. The
/// host should have renewed it at [`renewal_due`], but did not.
#[must_use]
pub fn renewal_overdue(not_before: i64, not_after: i64) -> i64 {
    not_before + (not_after - not_before) / 6 * 5
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

/// The certificate that ends first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateExpiry {
    /// The name of its node, or the hostname of its host; `None` if neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path of the certificate on its host.
    pub path: String,
    /// The time from which its host renews it, in seconds since 1970.
    pub renews_at: i64,
    /// The end of its validity, in seconds since 1970.
    pub expires_at: i64,
}

impl Facts {
    /// The certificate that ends first, of this host and of the nodes that its API server lists; `None` if none is known.
    #[must_use]
    pub fn earliest_expiry(&self) -> Option<CertificateExpiry> {
        let nodes = || self.cluster.iter().filter_map(|cluster| cluster.nodes.as_ref()).flatten();
        // This host knows its certificates better than its node, which shows them some minutes later.
        let is_own = |node: &NodeFact| node.addresses.iter().any(|address| self.addresses.contains(address));
        let name = nodes().find(|(_, node)| is_own(node)).map_or(&self.hostname, |(name, _)| name);
        let own = NodeCertificates::new(&self.certificates, &self.kubelet).earliest(name, self.clock_seconds);
        let others = nodes().filter(|(_, node)| !is_own(node));
        let others = others.filter_map(|(name, node)| node.certificates.earliest(name, self.clock_seconds));
        own.into_iter().chain(others).min_by_key(|certificate| certificate.expires_at)
    }
}

/// The certificates of a host that its node shows, so that one master knows when those of all hosts end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCertificates {
    /// The installed certificate that ends first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<CertificateFact>,
    /// The kubelet's own client certificate, which the kubelet renews by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<CertificateFact>,
}

impl NodeCertificates {
    /// Those of a host with these certificates.
    #[must_use]
    pub fn new(installed: &[CertificateFact], kubelet: &KubeletFacts) -> Self {
        let first = installed.iter().min_by_key(|fact| fact.not_after).cloned();
        Self { first, kubelet: kubelet.own.clone() }
    }

    /// The one that ends first. `now` is in seconds since 1970.
    fn earliest(&self, host: &str, now: i64) -> Option<CertificateExpiry> {
        let leaf = |fact: &CertificateFact| CertificateExpiry {
            host: Some(host.to_owned()).filter(|host| !host.is_empty()),
            path: fact.path.clone(),
            renews_at: renewal_due(fact.not_before, fact.not_after),
            expires_at: fact.not_after,
        };
        // The kubelet renews its certificate between 70 % and 90 % of its life: until then it is not listed.
        let kubelet = |fact: &CertificateFact| CertificateExpiry {
            renews_at: fact.not_before + (fact.not_after - fact.not_before) / 10 * 9,
            ..leaf(fact)
        };
        let overdue = |expiry: &CertificateExpiry| now >= expiry.renews_at;
        let kubelet = self.kubelet.iter().map(kubelet).filter(overdue);
        self.first.iter().map(leaf).chain(kubelet).min_by_key(|certificate| certificate.expires_at)
    }
}

/// The client certificates of a kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletFacts {
    /// The bootstrap certificate, which the kubelet uses once to request its own certificate.
    pub bootstrap: Option<CertificateFact>,
    /// Its own certificate, which the kubelet renews by itself.
    pub own: Option<CertificateFact>,
}

/// The reports of the API server and the etcd member of a master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterFacts {
    /// Whether `/readyz` answers.
    pub api_ready: bool,
    /// Whether the API server runs and did not answer `/readyz` in time: whether it is ready is unknown.
    pub api_unknown: bool,
    /// The API server's version.
    pub version: Option<Version>,
    /// Nodes by name; `None` if the API server did not list them in time. `None` does not mean that there are
    /// no nodes.
    pub nodes: Option<BTreeMap<String, NodeFact>>,
    /// The report of the etcd member of this host. On a master whose etcd has hosts of its own it is
    /// [`EtcdFact::Members`], as the API server of the master reaches them.
    pub etcd: EtcdFact,
    /// The members without a vote that it lists, by name; one that never started by the URL at which others reach it.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub learners: BTreeSet<String>,
    /// The addresses at which the members with a vote reach each other, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub member_addresses: BTreeMap<String, Ipv4Addr>,
}

/// The report of the etcd member of a master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EtcdFact {
    /// The member did not answer in time: whether it serves is unknown.
    #[default]
    #[serde(rename = "untold")]
    Unknown,
    /// The member does not serve: no program listens, or the program has no certificate of the cluster.
    Down,
    /// The members with a vote that it lists, by name: whether each answers a read that requires a quorum; `None` if it
    /// did not answer in time.
    Members(BTreeMap<String, Option<bool>>),
}

/// The begin of what a kubelet says of a node that lacks nothing but a network of pods. If it lacks more, the text begins with a
/// bracket.
const LACKS_NETWORK: &str = "container runtime network not ready";

/// Whether the message of the condition `Ready` says that the node lacks a network of pods, and nothing else.
#[must_use]
pub fn lacks_only_network(message: &str) -> bool {
    message.starts_with(LACKS_NETWORK)
}

/// The status of a node, from the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFact {
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// The message of the condition if the node is not Ready.
    pub reason: String,
    /// The kubelet's version.
    pub kubelet: String,
    /// Addresses of type `InternalIP`.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The certificates of its host, as the host reported them last.
    pub certificates: NodeCertificates,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn year(path: &str, begins: i64) -> CertificateFact {
        CertificateFact { path: path.to_owned(), not_before: begins * DAY, not_after: (begins + 365) * DAY }
    }

    /// A master with a certificate that begins at day 100, and the node of a worker with these certificates, at day 340.
    fn earliest(worker: NodeCertificates) -> CertificateExpiry {
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let old = NodeCertificates { first: Some(year("old", 1)), kubelet: None };
        let own = NodeFact { addresses: vec![address], certificates: old, ..NodeFact::default() };
        let worker = NodeFact { certificates: worker, ..NodeFact::default() };
        let nodes = [("n1".to_owned(), own), ("n2".to_owned(), worker)].into();
        let facts = Facts {
            hostname: "host-1".to_owned(),
            addresses: vec![address],
            clock_seconds: 340 * DAY,
            certificates: vec![year("own", 100)],
            cluster: Some(ClusterFacts { nodes: Some(nodes), ..ClusterFacts::default() }),
            ..Facts::default()
        };
        facts.earliest_expiry().unwrap()
    }

    #[test]
    fn the_earliest_expiry_is_that_of_any_node() {
        let found = earliest(NodeCertificates { first: Some(year("leaf", 50)), kubelet: None });
        assert_eq!((found.host.as_deref(), found.path.as_str()), (Some("n2"), "leaf"));
        assert_eq!(found.expires_at, (50 + 365) * DAY);
        let later = earliest(NodeCertificates { first: Some(year("leaf", 150)), kubelet: None });
        assert_eq!((later.host.as_deref(), later.path.as_str()), (Some("n1"), "own"), "its node is older");
    }

    #[test]
    fn the_kubelet_of_a_host_that_is_off_is_listed_when_it_is_overdue() {
        let with = |begins| {
            let (first, kubelet) = (Some(year("leaf", 150)), Some(year("kubelet", begins)));
            earliest(NodeCertificates { first, kubelet }).path
        };
        assert_eq!((with(0).as_str(), with(50).as_str()), ("kubelet", "own"));
    }
}
