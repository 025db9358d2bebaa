//! The context of a plan: the hosts of the cluster with their names and facts.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::{LoadBalancer, ProxyMode};
use kubeon_api::{Arch, ClusterKeys, HostAddress, HostName, HostRole, KeyNumber, RotationPhase};
use kubeon_wire::{Cgroup, Content, Facts, Fence, JournalEntry, NodeFact, Op, ResultState};
use sha2::{Digest as _, Sha256};

use crate::input::{Artifacts, DesiredCluster, HostSpec, Intent, PartInfo};
use crate::output::UnreachableHost;
use crate::proxy_mode::{missing_tool, supported};
use crate::resolver::Resolver;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The path of the node program on a host.
pub(crate) const NODE_PROGRAM: &str = "/var/lib/kubeon/node/current";
/// The API server of a master, and the haproxy of a worker.
const LOCAL_API: &str = "https://127.0.0.1:6443";
/// The MTU of an Ethernet link, in bytes.
const DEFAULT_MTU: u32 = 1500;
/// Bytes of each packet that the headers of the overlay network take.
pub(crate) const OVERLAY_HEADER_BYTES: u32 = 50;

/// The hosts of a plan, masters first, and the values that all stages share.
pub(crate) struct PlanContext<'a> {
    pub(crate) intent: &'a Intent,
    /// The hosts that run a node, masters first.
    pub(crate) hosts: Vec<ObservedHost<'a>>,
    /// The hosts that run etcd and nothing else.
    pub(crate) etcd_hosts: Vec<ObservedHost<'a>>,
    /// The hosts of the cluster that could not be observed. No step runs on them.
    pub(crate) unreachable: Vec<UnreachableHost>,
    /// Leaving hosts.
    pub(crate) leaving: Vec<Leaving<'a>>,
    /// The highest generation that the saved state and the masters know.
    pub(crate) generation: u64,
    /// The generation of a plan that changes something.
    pub(crate) next_generation: u64,
    /// Whether the owner of the cluster installs the network of the pods, and none was seen yet.
    pub(crate) awaits_network: bool,
}

/// A host that was observed and takes part in the plan.
pub(crate) struct ObservedHost<'a> {
    pub(crate) spec: &'a HostSpec,
    pub(crate) name: HostName,
    pub(crate) role: HostRole,
    pub(crate) facts: &'a Facts,
}

/// A leaving host.
pub(crate) struct Leaving<'a> {
    pub(crate) spec: &'a HostSpec,
    pub(crate) name: HostName,
    pub(crate) role: HostRole,
    /// Its facts, or the reason why it could not be observed if the user allows to skip it.
    pub(crate) facts: Result<&'a Facts, String>,
}

impl<'a> PlanContext<'a> {
    pub(crate) fn spec(&self) -> &'a DesiredCluster {
        &self.intent.spec
    }

    /// The hosts that run a node, then those that run etcd alone.
    pub(crate) fn all_hosts(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        self.hosts.iter().chain(&self.etcd_hosts)
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        self.hosts.iter().take_while(|host| host.is_master())
    }

    /// Whether etcd runs on hosts of its own.
    pub(crate) fn has_external_etcd(&self) -> bool {
        self.spec().has_external_etcd()
    }

    /// The hosts of the members of etcd.
    pub(crate) fn member_hosts(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        let role = self.spec().member_role();
        let hosts = if self.has_external_etcd() { &self.etcd_hosts } else { &self.hosts };
        hosts.iter().take_while(move |host| host.role == role)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        self.hosts.iter().filter(|host| !host.is_master())
    }

    /// The master that executes cluster-wide steps: the first one whose API server answers, else the first
    /// observed one. Masters that join come last, and so do those whose members the others do not reach at a new address
    /// yet: their API servers may answer for a while, but can change nothing.
    pub(crate) fn executor(&self) -> &ObservedHost<'a> {
        let answers =
            |host: &&ObservedHost<'_>| host.facts.cluster.as_ref().is_some_and(|cluster| cluster.api_ready);
        let settled = |host: &&ObservedHost<'_>| {
            !self.intent.joining_masters.contains(&host.address()) && !self.has_moved(host)
        };
        let members = || self.masters().filter(settled);
        let found = members().find(answers).or_else(|| self.masters().find(answers));
        found.or_else(|| members().next()).unwrap_or(&self.hosts[0])
    }

    /// Whether the members of etcd have another address for the member of the host, because the address of the host
    /// changed.
    pub(crate) fn has_moved(&self, host: &ObservedHost<'_>) -> bool {
        let mut reports = self.member_hosts().filter_map(|member| member.facts.cluster.as_ref());
        let known = reports.find_map(|report| report.member_addresses.get(host.name.as_str()));
        known.is_some_and(|known| *known != host.ip())
    }

    /// Names and addresses of all masters, in order, whether they were observed or not.
    pub(crate) fn master_addresses(&self) -> Vec<(String, Ipv4Addr)> {
        self.named_addresses(&self.spec().masters)
    }

    /// Names and addresses of the hosts of all members of etcd, in order, whether they were observed or not.
    pub(crate) fn member_addresses(&self) -> Vec<(String, Ipv4Addr)> {
        self.named_addresses(self.spec().member_hosts())
    }

    fn named_addresses(&self, hosts: &[HostSpec]) -> Vec<(String, Ipv4Addr)> {
        let name = |address: HostAddress| {
            let observed = self.all_hosts().find(|host| host.address() == address).map(|host| &host.name);
            let unreachable = || self.unreachable.iter().find(|host| host.address == address);
            observed.or_else(|| unreachable().map(|host| &host.name))
        };
        hosts
            .iter()
            .filter_map(|spec| Some((name(spec.address)?.to_string(), spec.cluster_address().ip())))
            .collect()
    }

    /// The recorded cluster-wide steps; `None` if no API server reported them.
    pub(crate) fn cluster_steps(&self) -> Option<&'a [JournalEntry]> {
        self.masters().find_map(|host| host.facts.cluster_steps.as_deref())
    }

    /// Whether the cluster records the step with this effect, as a step that reads no other.
    pub(crate) fn cluster_records(&self, id: &StepId, op: &Op) -> bool {
        self.cluster_steps().is_some_and(|steps| records_effect(steps, id, &effect(op, self.keys())))
    }

    /// Whether the journal of the host contains the step with this effect, as a step that reads no other.
    pub(crate) fn host_records(&self, host: &ObservedHost<'_>, id: &StepId, op: &Op) -> bool {
        records_effect(&host.facts.journal, id, &effect(op, self.keys()))
    }

    /// Which keys sign and which are trusted.
    pub(crate) fn keys(&self) -> ClusterKeys {
        self.intent.keys
    }

    /// The keys from which the nodes must have new certificates of their own; `None` for the first keys, from which they get
    /// them when they join.
    pub(crate) fn new_node_keys(&self) -> Option<KeyNumber> {
        Some(self.keys().of_nodes()).filter(|keys| *keys != KeyNumber::FIRST)
    }

    /// Whether the phase is open in which nodes, pods and Secrets change to the new keys.
    pub(crate) fn renews(&self) -> bool {
        self.keys().rotation() == Some(RotationPhase::Renew)
    }

    /// Whether every master was observed.
    pub(crate) fn observes_all_masters(&self) -> bool {
        self.masters().count() == self.spec().masters.len()
    }

    /// Whether every host that runs a node was observed.
    pub(crate) fn observes_all_nodes(&self) -> bool {
        self.hosts.len() == self.spec().nodes().count()
    }

    /// The content of the bundle for the architecture of the host.
    pub(crate) fn artifacts(&self, host: &ObservedHost<'_>) -> &'a Artifacts {
        self.intent.artifacts_for(&host.facts.architecture)
    }

    /// The content of the bundles that the observed hosts need, each once.
    pub(crate) fn artifacts_in_use(&self) -> Vec<&'a Artifacts> {
        let mut all: Vec<&Artifacts> = self.all_hosts().map(|host| self.artifacts(host)).collect();
        all.sort_by_key(|artifacts| artifacts.arch);
        all.dedup_by_key(|artifacts| artifacts.arch);
        if all.is_empty() { vec![&self.intent.artifacts] } else { all }
    }

    /// A part of the bundle for the host. A check before ensures that the bundle holds it.
    pub(crate) fn part(&self, host: &ObservedHost<'_>, name: &str) -> &'a PartInfo {
        &self.artifacts(host).parts[name]
    }

    /// The architecture of the bundle for the host.
    pub(crate) fn arch(&self, host: &ObservedHost<'_>) -> Arch {
        self.artifacts(host).arch.unwrap_or(Arch::Amd64)
    }

    /// The API's Service address: the first of the service network.
    pub(crate) fn service_api(&self) -> Ipv4Addr {
        self.spec().settings.service_cidr.nth(1).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The DNS Service address: the tenth of the service network.
    pub(crate) fn service_dns(&self) -> Ipv4Addr {
        self.spec().settings.service_cidr.nth(10).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The address of the Service of the API servers, if workers reach them by one: the fifteenth of the service network.
    pub(crate) fn api_service(&self) -> Ipv4Addr {
        LoadBalancer::service(self.spec().settings.service_cidr).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The name servers of the pods on a host.
    pub(crate) fn resolver<'h>(&self, host: &ObservedHost<'h>) -> Resolver<'h> {
        Resolver::new(host.facts, host.ip(), self.spec().settings.service_cidr)
    }

    /// The URL at which the programs of a host reach the API. On a master it is the host's own API server,
    /// and on a worker the host's own haproxy, so that these programs do not need the hosts file. Workers
    /// behind another load balancer use the API's name.
    pub(crate) fn server(&self, host: &ObservedHost<'_>) -> String {
        if host.is_master() || !self.workers_use_name() {
            return LOCAL_API.to_owned();
        }
        let settings = &self.spec().settings;
        let port = settings.load_balancer.external().map_or(settings.api_port, |(_, port)| port);
        format!("https://{}:{port}", settings.api_domain)
    }

    /// Whether the programs of the workers reach the API by its name, which is in the hosts file.
    pub(crate) fn workers_use_name(&self) -> bool {
        self.spec().settings.load_balancer != LoadBalancer::Haproxy
    }

    /// Whether kubeadm made the host a node, and kubeon takes it over.
    pub(crate) fn takes_over(&self, host: &ObservedHost<'_>) -> bool {
        self.intent.taken_over.contains(&host.address())
    }

    /// Whether kubeon runs the network of the pods. Otherwise the owner of the cluster does.
    pub(crate) fn runs_flannel(&self) -> bool {
        self.spec().runs_flannel()
    }

    /// Whether kubeon runs kube-proxy. Otherwise the network plugin of the owner implements Services.
    pub(crate) fn runs_kube_proxy(&self) -> bool {
        self.spec().runs_kube_proxy()
    }

    /// Whether the control plane and haproxy run as static pods.
    pub(crate) fn runs_static_pods(&self) -> bool {
        self.spec().runs_static_pods()
    }

    /// Whether masters are tainted, so that ordinary pods run on workers only.
    pub(crate) fn taints_masters(&self) -> bool {
        // A worker that is skipped, unreachable or reset is still a worker of the cluster.
        !self.spec().workers.is_empty()
    }

    /// Whether the plan resets a host that stays in the cluster, so that the next plan can join it again.
    pub(crate) fn resets_returning_hosts(&self) -> bool {
        self.leaving.iter().any(|host| self.intent.returns(host.spec.address))
    }

    /// The status of a node: `None` if no API server reported the nodes, `Some(None)` if the node does not
    /// exist.
    pub(crate) fn node(&self, name: &HostName) -> Option<Option<&'a NodeFact>> {
        let mut reports = self.masters().filter_map(|master| master.facts.cluster.as_ref());
        let nodes = reports.find_map(|report| report.nodes.as_ref().filter(|_| report.api_ready));
        nodes.map(|nodes| nodes.get(name.as_str()))
    }

    /// Whether API servers are ready but none of them listed the nodes in time.
    pub(crate) fn nodes_unknown(&self) -> bool {
        let reports = self.masters().filter_map(|master| master.facts.cluster.as_ref());
        let mut ready = reports.filter(|report| report.api_ready).peekable();
        ready.peek().is_some() && ready.all(|report| report.nodes.is_none())
    }

    pub(crate) fn fence(&self, role: HostRole, generation: u64) -> Fence {
        Fence {
            cluster: self.spec().name.clone(),
            uid: self.intent.uid.clone(),
            generation,
            version: self.spec().version,
            role,
        }
    }
}

/// Whether the journal of a host contains the step, with any content.
pub(crate) fn records(journal: &[JournalEntry], id: &StepId) -> bool {
    let text = id.to_string();
    journal.iter().any(|entry| entry.id == text)
}

/// Whether the entries contain the step with this effect, as a step that reads no other.
fn records_effect(entries: &[JournalEntry], id: &StepId, effect: &Sha256) -> bool {
    let (text, digest) = (id.to_string(), hex::encode(effect.clone().finalize()));
    entries.iter().any(|entry| entry.id == text && entry.digest == digest)
}

/// The hash of what an operation does, and of which keys its secrets are made from.
fn effect(op: &Op, keys: ClusterKeys) -> Sha256 {
    effect_with(op, keys, &mut Vec::new())
}

/// The same as [`effect`]. `json` is a buffer that is reused for every step.
pub(crate) fn effect_with(op: &Op, keys: ClusterKeys, json: &mut Vec<u8>) -> Sha256 {
    json.clear();
    // Serializing plain data into memory cannot fail. A truncated text would only plan the step once too
    // often.
    serde_json::to_writer(&mut *json, op).ok();
    // Clusters that never changed their keys keep the digests that they recorded.
    if !keys.is_first()
        && let Op::Files { files } = op
    {
        for file in files {
            let Content::Secret(secret) = &file.content else { continue };
            let used = secret.keys(keys);
            if used != secret.keys(ClusterKeys::default()) {
                serde_json::to_writer(&mut *json, &used).ok();
            }
        }
    }
    Sha256::new_with_prefix(&json)
}

impl ObservedHost<'_> {
    /// The address that identifies the host.
    pub(crate) fn address(&self) -> HostAddress {
        self.spec.address
    }

    /// Its address in the cluster's network.
    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.spec.cluster_address().ip()
    }

    pub(crate) fn is_master(&self) -> bool {
        self.role.is_master()
    }

    /// The id of a step on this host.
    pub(crate) fn id(&self, stage: StageName, what: impl Into<Cow<'static, str>>) -> StepId {
        StepId::new(stage, what, &self.name)
    }

    pub(crate) fn cgroup_v2(&self) -> bool {
        self.facts.cgroup == Cgroup::V2
    }

    /// The largest MTU of pods in bytes: the MTU of the link with the cluster address of the host, minus the headers of the
    /// overlay. flannel calculates the same value for its device.
    pub(crate) fn largest_pod_mtu(&self) -> u32 {
        // The MTU of the loopback interface does not limit the links to other hosts.
        let link = self.facts.links.iter().find(|link| link.address == self.ip() && link.name != "lo");
        link.map_or(DEFAULT_MTU, |link| link.mtu).saturating_sub(OVERLAY_HEADER_BYTES)
    }

    /// The proxy mode on this host: the requested mode if the kernel supports it.
    pub(crate) fn proxy_mode(&self, wanted: ProxyMode) -> ProxyMode {
        supported(self.facts, wanted)
    }

    /// Whether the host needs the packet filter programs of the bundle.
    pub(crate) fn lacks_tools(&self, wanted: ProxyMode) -> bool {
        missing_tool(self.facts, wanted).is_some()
    }

    /// Whether the programs of the bundle come before those of the host, because the host's nft is too old.
    pub(crate) fn prefers_tools(&self, wanted: ProxyMode) -> bool {
        missing_tool(self.facts, wanted).is_some_and(|tool| tool.old.is_some())
    }

    /// Whether the service that this step started runs.
    pub(crate) fn runs(&self, id: &StepId) -> bool {
        let text = id.to_string();
        let stopped = |entry: &JournalEntry| matches!(entry.state, ResultState::Stopped(_));
        self.facts.journal.iter().any(|entry| entry.id == text && !stopped(entry))
    }

    /// Whether the host executed this step before, with any content.
    pub(crate) fn has_executed(&self, id: &StepId) -> bool {
        records(&self.facts.journal, id)
    }
}
