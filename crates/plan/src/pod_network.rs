//! The network of the pods, if the owner of the cluster installs it: whether there is one yet, and what cannot work before.

use kubeon_wire::{NodeFact, lacks_only_network};

use crate::context::PlanContext;
use crate::desired::verify;
use crate::output::Note;

impl PlanContext<'_> {
    /// Whether the owner installs the network of the pods, and none was seen yet: no node is reported as Ready, and no host has
    /// resolved a name through the pods of DNS. A cluster that kubeadm made has its network.
    pub(crate) fn finds_no_network(&self) -> bool {
        if self.runs_flannel() || !self.intent.taken_over.is_empty() {
            return false;
        }
        let mut reports = self.masters().filter_map(|master| master.facts.cluster.as_ref());
        let has_ready = reports.any(|report| report.nodes.iter().flatten().any(|(_, node)| node.ready));
        let has_resolved = self.hosts.iter().any(|host| host.has_executed(&verify::names_id(&host.name)));
        !has_ready && !has_resolved
    }

    /// Whether the node does what it can: it is Ready, or lacks nothing but the network that the owner installs.
    pub(crate) fn is_up(&self, node: &NodeFact) -> bool {
        node.ready || self.awaits_network && lacks_only_network(&node.reason)
    }

    /// Whether something on the hosts leads the addresses of Services to their endpoints.
    pub(crate) fn serves_services(&self) -> bool {
        self.runs_kube_proxy() || !self.awaits_network
    }

    /// What is missing until the owner installs the network, and what is not checked.
    pub(crate) fn network_note(&self) -> Option<Note> {
        let (missing, plugin) = if self.runs_kube_proxy() {
            ("no network of pods (network.cni none)", "a network plugin")
        } else {
            (
                "neither a network of pods nor kube-proxy (network.cni none, network.proxyMode bpf)",
                "a network plugin that implements Services too",
            )
        };
        let text = format!(
            "kubeon installs {missing}: no node is Ready and no pod starts before you apply {plugin}, and open its ports in the \
             firewalls of the hosts. Until then no step waits for Ready nodes, and CoreDNS and DNS are not checked"
        );
        self.awaits_network.then_some(Note { host: None, text })
    }
}
