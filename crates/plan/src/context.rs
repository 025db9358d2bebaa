//! A cluster's hosts as the stages see them: names settled, facts at hand.

use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_api::{Arch, HostAddress, HostName, HostRole};
use kubeon_wire::{Cgroup, Facts, Fence, NodeFact};

use crate::input::{DesiredCluster, HostSpec, Intent, PartInfo};
use crate::proxy_mode::{missing_tool, usable};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// Bytes that a packet has on an ordinary link.
const USUAL_MTU: u32 = 1500;
/// Bytes of each packet that the overlay takes for itself.
const OVERLAY: u32 = 50;

/// The hosts of a plan, masters first, with what they share.
pub(crate) struct PlanContext<'a> {
    pub(crate) intent: &'a Intent,
    pub(crate) hosts: Vec<ObservedHost<'a>>,
    /// Workers that are to leave.
    pub(crate) leaving: Vec<Leaving<'a>>,
    /// The highest generation seen anywhere.
    pub(crate) generation: u64,
}

/// A host that was seen and may take part.
pub(crate) struct ObservedHost<'a> {
    pub(crate) spec: &'a HostSpec,
    pub(crate) name: HostName,
    pub(crate) master: bool,
    pub(crate) facts: &'a Facts,
}

/// A worker that is to leave.
pub(crate) struct Leaving<'a> {
    pub(crate) spec: &'a HostSpec,
    pub(crate) name: HostName,
    /// What was seen of it, or why nothing was, where it may be left as it is.
    pub(crate) facts: Result<&'a Facts, String>,
}

impl<'a> PlanContext<'a> {
    pub(crate) fn spec(&self) -> &'a DesiredCluster {
        &self.intent.spec
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        self.hosts.iter().filter(|host| host.master)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &ObservedHost<'a>> {
        self.hosts.iter().filter(|host| !host.master)
    }

    /// The host through which cluster-wide steps are done.
    pub(crate) fn first(&self) -> &ObservedHost<'a> {
        &self.hosts[0]
    }

    /// Names and addresses of the masters, in order.
    pub(crate) fn master_addresses(&self) -> Vec<(String, Ipv4Addr)> {
        self.masters().map(|host| (host.name.to_string(), host.ip())).collect()
    }

    /// A part of the bundle; the bundle was checked to hold it.
    pub(crate) fn part(&self, name: &str) -> &'a PartInfo {
        &self.intent.artifacts.parts[name]
    }

    /// What the bundle is for.
    pub(crate) fn arch(&self) -> Arch {
        self.intent.artifacts.arch.unwrap_or(Arch::Amd64)
    }

    /// The API's Service address: the first of the service network.
    pub(crate) fn service_api(&self) -> Ipv4Addr {
        self.spec().settings.service_cidr.nth(1).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// The DNS Service address: the tenth of the service network.
    pub(crate) fn service_dns(&self) -> Ipv4Addr {
        self.spec().settings.service_cidr.nth(10).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Where a host's programs reach the API.
    pub(crate) fn server(&self, host: &ObservedHost<'_>) -> String {
        let external = self.spec().settings.load_balancer.external().filter(|_| !host.master);
        let port = external.map_or(self.spec().settings.api_port, |(_, port)| port);
        format!("https://{}:{port}", self.spec().settings.api_domain)
    }

    /// Whether masters are kept free of ordinary pods.
    pub(crate) fn taints_masters(&self) -> bool {
        let comes_back = |host: &Leaving<'_>| self.intent.returns(host.spec.address);
        self.workers().next().is_some() || self.leaving.iter().any(comes_back)
    }

    /// What the cluster says of a node: `None` where that was not told, `Some(None)` where it has no such node.
    pub(crate) fn node(&self, name: &HostName) -> Option<Option<&'a NodeFact>> {
        let mut seen = self.masters().filter_map(|master| master.facts.cluster.as_ref());
        let nodes = seen.find_map(|seen| seen.nodes.as_ref().filter(|_| seen.api_ready));
        nodes.map(|nodes| nodes.get(name.as_str()))
    }

    /// Whether an API server is ready, and none of those that are told the nodes.
    pub(crate) fn hides_nodes(&self) -> bool {
        let seen = self.masters().filter_map(|master| master.facts.cluster.as_ref());
        let mut ready = seen.filter(|seen| seen.api_ready).peekable();
        ready.peek().is_some() && ready.all(|seen| seen.nodes.is_none())
    }

    pub(crate) fn fence(&self, master: bool, generation: u64) -> Fence {
        Fence {
            cluster: self.spec().name.clone(),
            uid: self.intent.uid.clone(),
            generation,
            version: self.spec().version,
            role: HostRole::of(master),
        }
    }
}

impl ObservedHost<'_> {
    pub(crate) fn address(&self) -> HostAddress {
        self.spec.address
    }

    pub(crate) fn ip(&self) -> Ipv4Addr {
        self.spec.address.ip()
    }

    /// A step's identity on this host.
    pub(crate) fn id(&self, stage: StageName, what: &str) -> StepId {
        StepId::new(stage, what, &self.name)
    }

    pub(crate) fn cgroup_v2(&self) -> bool {
        self.facts.cgroup == Cgroup::V2
    }

    /// Bytes that a packet of a pod may have: what the link with the host's address carries, but for the overlay's share.
    /// flannel reckons the same for its own device.
    pub(crate) fn pod_mtu(&self) -> u32 {
        // An address on the loopback says nothing of the way to the other hosts.
        let link = self.facts.links.iter().find(|link| link.address == self.ip() && link.name != "lo");
        link.map_or(USUAL_MTU, |link| link.mtu).saturating_sub(OVERLAY)
    }

    /// How Services are implemented here: what was asked for, as far as the kernel has it.
    pub(crate) fn proxy_mode(&self, wanted: ProxyMode) -> ProxyMode {
        usable(self.facts, wanted)
    }

    /// Whether the bundle's programs for packet rules are wanted here.
    pub(crate) fn lacks_tools(&self, wanted: ProxyMode) -> bool {
        missing_tool(self.facts, wanted).is_some()
    }

    /// Whether the host did this step before, whatever its content was.
    pub(crate) fn did(&self, id: &StepId) -> bool {
        self.facts.journal.iter().any(|entry| *id == *entry.id)
    }
}
