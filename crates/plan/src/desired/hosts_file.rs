//! The entries of kubeon in the hosts file of a host.
//!
//! On a worker that joined before, they change only when its programs may follow them: the API's name leads to a load balancer
//! after that was checked, and to the host's own haproxy after nothing needs the name any more.

use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_wire::{HostsEntry, Op};

use super::join_stage::kubelet_id;
use super::step::{DesiredStep, PREPARE};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// The step that writes a host's hosts file.
pub(crate) fn hosts_id(host: &ObservedHost<'_>) -> StepId {
    host.id(PREPARE, "hosts")
}

/// Whether programs of the cluster may run on the worker, which need the names.
pub(super) fn is_in_use(host: &ObservedHost<'_>) -> bool {
    !host.is_master() && host.has_executed(&kubelet_id(host))
}

/// Writes the entries of a host.
pub(super) fn step(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    DesiredStep::new(host, hosts_id(host), Op::Hosts { entries: entries(context, host) })
        .title("write hosts entries")
        .because("the host does not know the names")
}

fn entry(address: Ipv4Addr, name: &str) -> HostsEntry {
    HostsEntry { address, names: vec![name.to_owned()] }
}

/// The API's name, the masters and the host itself. The entries of other workers are left out, so that a new
/// worker changes no other host.
fn entries(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<HostsEntry> {
    let settings = &context.spec().settings;
    let api = match settings.load_balancer {
        _ if host.is_master() => Some(host.ip()),
        LoadBalancer::Haproxy => Some(Ipv4Addr::LOCALHOST),
        LoadBalancer::External { .. } | LoadBalancer::Updater => {
            settings.load_balancer.address(settings.service_cidr)
        }
    };
    let mut entries: Vec<_> = api.into_iter().map(|api| entry(api, settings.api_domain.as_str())).collect();
    entries.extend(context.master_addresses().iter().map(|(name, address)| entry(*address, name)));
    if !host.is_master() {
        entries.push(entry(host.ip(), host.name.as_str()));
    }
    entries
}
