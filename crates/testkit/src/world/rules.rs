//! The dependencies between the programs of a cluster, and the results of checks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::HostAddress;
use kubeon_wire::{API_WAY_FILE, Check, ClusterFacts, JournalEntry, NodeFact, ResultState};

use super::host::{SimulatedHost, pki};
use super::pods::service_of;
use super::state::State;

impl State {
    /// The identity of the cluster that the host belongs to.
    pub(super) fn uid(&self, host: HostAddress) -> Option<String> {
        self.host(host).uid().map(str::to_owned)
    }

    /// The steps that the cluster records, as the API server of the host reports them.
    pub(super) fn cluster_steps(&self, at: HostAddress) -> Option<Vec<JournalEntry>> {
        if !self.api_ready(at) || self.slow.nodes {
            return None;
        }
        let cluster = self.host(at).uid().and_then(|uid| self.clusters.get(uid));
        let records = cluster.into_iter().flat_map(|cluster| &cluster.records);
        let entry = |((_, id), digest): (&(String, String), &String)| JournalEntry {
            id: id.clone(),
            digest: digest.clone(),
            state: ResultState::UpToDate,
        };
        Some(records.map(entry).collect())
    }

    /// Whether the API server of the host answers `/readyz`.
    pub(super) fn api_ready(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        host.runs("kube-apiserver.service") && self.reaches_etcd(at)
    }

    /// Whether the programs of the host reach an API server: its own, or any through haproxy or a load
    /// balancer.
    fn reaches_api(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        if host.units.contains_key("kube-apiserver.service") {
            return self.api_ready(at);
        }
        let kubelet = host.units.get("kubelet.service");
        if kubelet.is_some_and(|unit| !unit.text.contains("server: https://127.0.0.1:")) {
            return self.leads_by_name(at) && self.reaches_load_balancer(at);
        }
        let connected = !host.units.contains_key("haproxy.service") || host.runs("haproxy.service");
        connected && self.any_api(at)
    }

    /// Whether the API's name leads anywhere on the host: the Service of the API servers needs the unit that stands in for it.
    fn leads_by_name(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        !host.files.contains_key(API_WAY_FILE) || host.runs("apiserver-startup.service")
    }

    /// Whether any API server of the cluster is ready.
    pub(super) fn any_api(&self, at: HostAddress) -> bool {
        let uid = self.host(at).uid();
        let serves = |other: HostAddress| self.reaches(at, other) && self.api_ready(other);
        uid.is_some() && self.hosts.values().any(|other| other.uid() == uid && serves(other.address))
    }

    /// Whether a kubelet that has not joined can join: it runs, reaches the API server, has a valid bootstrap
    /// certificate, may request a certificate, and a controller manager approves it.
    pub(super) fn may_join(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        let Some(cluster) = host.uid().and_then(|uid| self.clusters.get(uid)) else { return false };
        let allowed = cluster.objects.keys().any(|path| path.contains("/clusterrolebindings/"));
        let approver = self.hosts.values().any(|other| {
            let runs = other.uid() == host.uid() && other.runs("kube-controller-manager.service");
            runs && self.reaches(at, other.address)
        });
        let valid = host.bootstrap().is_some_and(|certificate| self.now < certificate.not_after);
        !host.joined && valid && host.runs("kubelet.service") && allowed && approver && self.reaches_api(at)
    }

    /// The reports of the API server and the etcd member of the host; `None` if the host is not a master.
    pub(super) fn cluster_facts(&self, at: HostAddress) -> Option<ClusterFacts> {
        let host = self.host(at);
        if !["admin.crt", "etcd/healthcheck-client.crt"].iter().any(|name| host.has(&pki(name))) {
            return None;
        }
        let api_ready = self.api_ready(at);
        let version = host.claim.as_ref().map(|claim| claim.version).filter(|_| api_ready);
        let nodes = (api_ready && !self.slow.nodes).then(|| self.nodes(at));
        Some(ClusterFacts {
            api_ready,
            api_unknown: false,
            version,
            nodes,
            etcd: self.etcd(at),
            learners: self.learners(at),
            member_addresses: self.member_addresses(at),
        })
    }

    fn nodes(&self, at: HostAddress) -> BTreeMap<String, NodeFact> {
        let cluster = self.host(at).uid().and_then(|uid| self.clusters.get(uid)).into_iter();
        cluster
            .flat_map(|cluster| {
                let node = |(name, at): (&String, &HostAddress)| {
                    (name.clone(), self.node(*at, cluster.drained.contains(name)))
                };
                cluster.nodes.iter().map(node)
            })
            .collect()
    }

    fn node(&self, at: HostAddress, unschedulable: bool) -> NodeFact {
        let host = self.host(at);
        let ready = self.node_ready(at);
        NodeFact {
            ready,
            reason: if ready { String::new() } else { "the kubelet stopped posting node status".to_owned() },
            kubelet: host
                .last_version("kubelet.service")
                .map(|version| version.to_string())
                .unwrap_or_default(),
            addresses: vec![at.ip()],
            unschedulable,
            ..NodeFact::default()
        }
    }

    fn node_ready(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        host.joined && host.runs("kubelet.service") && host.runs("containerd.service") && self.reaches_api(at)
    }

    /// Whether the check succeeds on the host.
    ///
    /// # Errors
    /// The unmet condition.
    pub(super) fn holds(&self, at: HostAddress, check: &Check) -> Result<(), String> {
        let (met, what) = match check {
            Check::Tcp { address, port } => (self.listens(at, *address, *port), format!("{address}:{port}")),
            Check::Https { address, port, path, ca_file, certificate_file, key_file } => {
                let files = [Some(ca_file), certificate_file.as_ref(), key_file.as_ref()];
                if let Some(missing) = files.into_iter().flatten().find(|path| !self.host(at).has(path)) {
                    return Err(format!("{missing} does not exist"));
                }
                (self.answers(at, *address, *port), format!("https://{address}:{port}{path}"))
            }
            Check::Socket { path } => {
                (path.contains("containerd") && self.host(at).runs("containerd.service"), path.clone())
            }
            Check::Path { path } => (self.host(at).has(path), path.clone()),
            Check::NodesReady { nodes, .. } => {
                let waiting = nodes.iter().find(|name| !self.named_node_ready(at, name.as_str()));
                (self.api_ready(at) && waiting.is_none(), format!("node {waiting:?}"))
            }
            Check::NodeNotReady { node } => {
                (!self.named_node_ready(at, node.as_str()), format!("the end of node {node}"))
            }
            Check::NodeWorks { node, version, units, .. } => {
                let stopped = units.iter().find(|unit| !self.host(at).runs(&service_of(unit)));
                let runs = self.host(at).running_version("kubelet.service");
                let has_version = version.is_none_or(|version| runs == Some(version));
                let ready = self.named_node_ready(at, node.as_str());
                (ready && stopped.is_none() && has_version, format!("node {node}"))
            }
            Check::PodTokens { unit } => (self.host(at).runs(unit), format!("tokens of {unit}")),
            Check::DeploymentAvailable { namespace, name } => {
                (self.available(at, namespace, name), format!("deployment {namespace}/{name}"))
            }
            Check::Dns { server, name } => {
                let served =
                    self.available(at, "kube-system", "coredns") || self.reaches_api(at) && self.dns(at);
                (served && self.host(at).runs("kube-proxy.service"), format!("{name} from {server}"))
            }
            Check::Overlay { node, name: _ } => {
                let served = self.available(at, "kube-system", "coredns") || self.dns(at);
                let routes = self.host(at).runs("flanneld.service");
                (served && routes, format!("a pod on another host than {node}"))
            }
            Check::DnsUpstream { server, resolv_conf } => {
                let served = self.available(at, "kube-system", "coredns") || self.dns(at);
                (served, format!("a server of {resolv_conf} through {server}"))
            }
            Check::AcceptsArguments { program, arguments } => {
                (!arguments.iter().any(|argument| argument.starts_with("--no-such")), program.clone())
            }
            Check::KnowsFeatureGates { program, arguments } => {
                (!arguments.iter().any(|argument| argument.contains("NoSuch=")), program.clone())
            }
            Check::Reachable { addresses, port: _ } => {
                let down = addresses
                    .iter()
                    .find(|other| !self.hosts.get(other).is_some_and(SimulatedHost::is_reachable));
                (down.is_none(), format!("host {down:?}"))
            }
        };
        if met { Ok(()) } else { Err(format!("{what} is not available")) }
    }

    /// The host that has the address, as resolved on the host `at`.
    fn host_at(&self, at: HostAddress, address: Ipv4Addr) -> Option<HostAddress> {
        if address.is_loopback() {
            Some(at)
        } else {
            Some(HostAddress::from(address)).filter(|host| self.hosts.contains_key(host))
        }
    }

    fn listens(&self, at: HostAddress, address: Ipv4Addr, port: u16) -> bool {
        // An address that belongs to no host is the load balancer.
        let Some(target) = self.host_at(at, address) else { return self.reaches_load_balancer(at) };
        if !self.reaches(at, target) {
            return false;
        }
        let units: &[&str] = match port {
            2379..=2381 => &["etcd.service"],
            6443 => &["kube-apiserver.service", "haproxy.service"],
            10248 | 10250 => &["kubelet.service"],
            10249 | 10256 => &["kube-proxy.service"],
            10257 => &["kube-controller-manager.service"],
            10259 => &["kube-scheduler.service"],
            _ => &[],
        };
        units.iter().any(|unit| self.host(target).runs(unit))
    }

    /// Whether the host reaches an API server through the load balancer.
    fn reaches_load_balancer(&self, at: HostAddress) -> bool {
        !self.blocked.contains(&at) && self.any_api(at)
    }

    fn answers(&self, at: HostAddress, address: Ipv4Addr, port: u16) -> bool {
        let Some(target) = self.host_at(at, address) else { return self.reaches_load_balancer(at) };
        if !self.reaches(at, target) {
            return false;
        }
        match port {
            2379 => {
                let host = self.host(target);
                host.runs("etcd.service") && host.uid().is_some_and(|uid| self.quorum(uid))
            }
            6443 => self.reaches_api(target),
            _ => self.listens(at, address, port),
        }
    }

    fn named_node_ready(&self, at: HostAddress, name: &str) -> bool {
        let cluster = self.host(at).uid().and_then(|uid| self.clusters.get(uid));
        cluster.and_then(|cluster| cluster.nodes.get(name)).is_some_and(|node| self.node_ready(*node))
    }

    fn available(&self, at: HostAddress, namespace: &str, name: &str) -> bool {
        self.api_ready(at) && self.deployed(at, namespace, name)
    }

    fn dns(&self, at: HostAddress) -> bool {
        self.deployed(at, "kube-system", "coredns")
    }

    fn deployed(&self, at: HostAddress, namespace: &str, name: &str) -> bool {
        let Some(cluster) = self.host(at).uid().and_then(|uid| self.clusters.get(uid)) else { return false };
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        cluster.objects.contains_key(&path)
            && cluster
                .nodes
                .values()
                .any(|node| self.node_ready(*node) && self.host(*node).runs("flanneld.service"))
    }
}
