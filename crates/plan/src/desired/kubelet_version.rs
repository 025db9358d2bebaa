//! When kubelets change to another minor version: after all API servers, because no kubelet may be newer than an API server.

use kubeon_api::{HostName, Version};
use kubeon_wire::NodeFact;

use super::control::apiserver_id;
use super::join_stage::kubelet_id;
use super::step::WaitReason;
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// Whether the kubelet of the node has another minor version.
pub(crate) fn changes_minor(context: &PlanContext<'_>, node: &HostName) -> bool {
    let kubelet = context.node(node).flatten().and_then(|node| node.kubelet.parse::<Version>().ok());
    let wanted = context.node_version();
    kubelet.is_some_and(|now| (now.major, now.minor) != (wanted.major, wanted.minor))
}

/// Whether the kubelet of the node has the version that it must have, or no API server reports it.
pub(crate) fn has_node_version(context: &PlanContext<'_>, node: &HostName) -> bool {
    let kubelet = context.node(node).flatten().and_then(|node| node.kubelet.parse::<Version>().ok());
    kubelet.is_none_or(|now| now == context.node_version())
}

/// Whether the kubelet of the host may change to another minor version: also if no API server reports the nodes, until one does.
pub(crate) fn may_change_minor(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    match context.node(&host.name) {
        Some(_) => changes_minor(context, &host.name),
        None => host.has_executed(&kubelet_id(host)),
    }
}

/// The API servers before a kubelet. `minor` tells whether the kubelet of any node changes to another minor version.
pub(super) fn before(context: &PlanContext<'_>, minor: bool) -> Vec<StepId> {
    if minor { context.masters().map(apiserver_id).collect() } else { Vec::new() }
}

/// Why the kubelet of a node that works keeps its version: masters that do not answer may have the API server of the version
/// before. If no API server reports the nodes, it waits for the next plan. Nodes that stay behind the control plane wait for none:
/// every API server has had a newer version.
pub(super) fn wait_reason(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<WaitReason> {
    if context.intent.nodes_at.is_some() {
        return None;
    }
    let masters = context.unreachable.iter().filter(|host| host.role.is_master());
    let hosts: Vec<_> = masters.map(|host| host.address).collect();
    let waits = !hosts.is_empty() && will_work(context, host) && may_change_minor(context, host);
    waits.then(|| WaitReason {
        hosts,
        risk: "a master that does not answer may have an older API server, and no kubelet may be newer"
            .to_owned(),
    })
}

/// Whether the node works, or will when the API server of its own host, which is repaired before, answers again.
fn will_work(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> bool {
    let own_api_is_down = host.facts.cluster.as_ref().is_some_and(|own| !own.api_ready);
    let lacks_only_api = own_api_is_down && host.runs(&kubelet_id(host));
    let works = |node: &NodeFact| context.is_up(node) || lacks_only_api;
    context.node(&host.name).is_none_or(|node| node.is_some_and(works))
}
