//! The names of nodes, as a plan determined them.

use kubeon_plan::{DesiredCluster, HostSpec, Plan};

/// The specification with the planned node names. A node keeps its name even if the host is renamed later.
pub(crate) fn with_planned_names(spec: &DesiredCluster, plan: &Plan) -> DesiredCluster {
    let named = |mut host: HostSpec| {
        let unreachable = || plan.unreachable.iter().find(|unreachable| unreachable.address == host.address);
        let planned = plan.hosts.get(&host.address).map(|planned| &planned.name);
        let name = planned.or_else(|| unreachable().map(|unreachable| &unreachable.name)).cloned();
        host.name = host.name.or(name);
        host
    };
    DesiredCluster {
        masters: spec.masters.iter().cloned().map(named).collect(),
        workers: spec.workers.iter().cloned().map(named).collect(),
        etcd_hosts: spec.etcd_hosts.iter().cloned().map(named).collect(),
        ..spec.clone()
    }
}
