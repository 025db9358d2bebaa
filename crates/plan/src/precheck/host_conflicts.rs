//! Values that must be unique among the hosts of a cluster.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_wire::Facts;

use crate::desired::firewall::is_managed;
use crate::input::{HostSpec, Intent, Observation, Snapshot};
use crate::node_name::node_name;

/// The hosts of a cluster by the values that must be unique.
pub(super) struct HostConflicts<'a> {
    /// The cluster addresses of all hosts.
    hosts: BTreeMap<HostAddress, Vec<HostAddress>>,
    /// The cluster addresses of the observed hosts.
    observed: BTreeSet<HostAddress>,
    /// The cluster addresses of the hosts whose firewalls kubeon opens.
    opened: BTreeSet<HostAddress>,
    names: BTreeMap<String, Vec<HostAddress>>,
    machine_ids: BTreeMap<&'a str, Vec<HostAddress>>,
    product_uuids: BTreeMap<&'a str, Vec<HostAddress>>,
    mtus: BTreeMap<u32, usize>,
}

/// The MTU of the link with the cluster address of the host.
pub(super) fn mtu(spec: &HostSpec, facts: &Facts) -> Option<u32> {
    facts.links.iter().find(|link| link.address == spec.cluster_address().ip()).map(|link| link.mtu)
}

/// Whether kubeon opens the firewall of a host.
fn is_opened(intent: &Intent, facts: &Facts) -> bool {
    let managed = facts.firewall.as_ref().is_some_and(|firewall| is_managed(firewall.program));
    managed && intent.spec.settings.firewall == FirewallMode::Manage
}

impl<'a> HostConflicts<'a> {
    pub(super) fn of(intent: &Intent, snapshot: &'a Snapshot) -> Self {
        let mut host_conflicts = Self {
            hosts: BTreeMap::new(),
            observed: BTreeSet::new(),
            opened: BTreeSet::new(),
            names: BTreeMap::new(),
            machine_ids: BTreeMap::new(),
            product_uuids: BTreeMap::new(),
            mtus: BTreeMap::new(),
        };
        for spec in intent.spec.hosts() {
            host_conflicts.hosts.entry(spec.cluster_address()).or_default().push(spec.address);
            let Some(facts) = snapshot.hosts.get(&spec.address).and_then(Observation::fresh) else {
                // The name of a host that is not observed is still in use.
                let name = spec.name.as_ref().map(ToString::to_string);
                let named = name.filter(|_| intent.unconcerned.contains(&spec.address));
                named.into_iter().for_each(|name| host_conflicts.add_name(name, spec.address));
                continue;
            };
            host_conflicts.observed.insert(spec.cluster_address());
            if is_opened(intent, facts) {
                host_conflicts.opened.insert(spec.cluster_address());
            }
            if let Ok(name) = node_name(spec, facts) {
                host_conflicts.add_name(name.to_string(), spec.address);
            }
            for (value, all) in [
                (&facts.machine_id, &mut host_conflicts.machine_ids),
                (&facts.product_uuid, &mut host_conflicts.product_uuids),
            ] {
                if !value.is_empty() {
                    all.entry(value).or_default().push(spec.address);
                }
            }
            if let Some(mtu) = mtu(spec, facts) {
                *host_conflicts.mtus.entry(mtu).or_default() += 1;
            }
        }
        host_conflicts
    }

    fn add_name(&mut self, name: String, host: HostAddress) {
        self.names.entry(name).or_default().push(host);
    }

    /// Whether the target is the cluster address of a host that was not observed.
    pub(super) fn is_unobserved(&self, target: &str) -> bool {
        target
            .parse()
            .is_ok_and(|address| self.hosts.contains_key(&address) && !self.observed.contains(&address))
    }

    /// Whether the target is the cluster address of a host whose firewall kubeon opens: until then it may refuse.
    pub(super) fn is_opened(&self, target: &str) -> bool {
        target.parse().is_ok_and(|address| self.opened.contains(&address))
    }

    /// Whether the target is the cluster address of a host.
    pub(super) fn is_host(&self, target: &str) -> bool {
        target.parse().is_ok_and(|address| self.hosts.contains_key(&address))
    }

    /// The first other host with the same value.
    fn other(all: Option<&Vec<HostAddress>>, own: HostAddress) -> Option<HostAddress> {
        all?.iter().copied().find(|other| *other != own)
    }

    pub(super) fn same_cluster_address(&self, spec: &HostSpec) -> Option<HostAddress> {
        Self::other(self.hosts.get(&spec.cluster_address()), spec.address)
    }

    pub(super) fn same_name(&self, name: &str, own: HostAddress) -> Option<HostAddress> {
        Self::other(self.names.get(name), own)
    }

    pub(super) fn same_machine_id(&self, id: &str, own: HostAddress) -> Option<HostAddress> {
        Self::other(self.machine_ids.get(id), own)
    }

    pub(super) fn same_product_uuid(&self, id: &str, own: HostAddress) -> Option<HostAddress> {
        Self::other(self.product_uuids.get(id), own)
    }

    /// The MTU that most hosts have.
    pub(super) fn most_common_mtu(&self) -> Option<u32> {
        self.mtus.iter().max_by_key(|(_, count)| **count).map(|(mtu, _)| *mtu)
    }
}
