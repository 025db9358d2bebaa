//! When kubelets change to another minor version: after all API servers, because no kubelet may be newer than an API server.

use kubeon_api::{HostName, Version};

use super::control::apiserver_id;
use super::step::WaitReason;
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// Whether the kubelet of the node has another minor version.
pub(crate) fn changes_minor(context: &PlanContext<'_>, node: &HostName) -> bool {
    let kubelet = context.node(node).flatten().and_then(|node| node.kubelet.parse::<Version>().ok());
    let wanted = context.spec().version;
    kubelet.is_some_and(|now| (now.major, now.minor) != (wanted.major, wanted.minor))
}

/// The API servers before a kubelet. `minor` tells whether the kubelet of any node changes to another minor version.
pub(super) fn before(context: &PlanContext<'_>, minor: bool) -> Vec<StepId> {
    if minor { context.masters().map(apiserver_id).collect() } else { Vec::new() }
}

/// Why the kubelet of a node that works keeps its version: masters that do not answer may have the API server of the version
/// before.
pub(super) fn wait_reason(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<WaitReason> {
    let masters = context.unreachable.iter().filter(|host| host.role.is_master());
    let hosts: Vec<_> = masters.map(|host| host.address).collect();
    let works = context.node(&host.name).flatten().is_some_and(|node| node.ready);
    let waits = !hosts.is_empty() && works && changes_minor(context, &host.name);
    waits.then(|| WaitReason {
        hosts,
        risk: "a master that does not answer may have an older API server, and no kubelet may be newer"
            .to_owned(),
    })
}
