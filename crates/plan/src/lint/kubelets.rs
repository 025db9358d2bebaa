//! A kubelet changes to another minor version after all API servers: none may be newer than an API server.

use kubeon_api::Version;

use super::finding::LintFinding;
use crate::desired::control_plane::is_apiserver;
use crate::desired::join::is_kubelet;
use crate::input::{Observation, Snapshot};
use crate::output::{Plan, Step};
use crate::step_id::StepId;

pub(super) fn check(plan: &Plan, snapshot: &Snapshot) -> Vec<LintFinding> {
    let api_servers: Vec<&StepId> =
        plan.steps.iter().map(|step| &step.id).filter(|id| is_apiserver(id)).collect();
    let facts = snapshot.hosts.values().filter_map(Observation::fresh);
    let mut reports = facts.filter_map(|facts| facts.cluster.as_ref()).filter(|report| report.api_ready);
    let nodes = reports.find_map(|report| report.nodes.as_ref());
    let changes_minor = |step: &&Step| {
        let node = step.id.host().and_then(|name| nodes?.get(name.as_str()));
        let now = node.and_then(|node| node.kubelet.parse::<Version>().ok());
        let wanted = plan.node_version();
        now.is_some_and(|now| (now.major, now.minor) != (wanted.major, wanted.minor))
    };
    let kubelets = plan.steps.iter().filter(|step| is_kubelet(&step.id)).filter(changes_minor);
    let early = kubelets.filter_map(|step| {
        let api = api_servers.iter().find(|id| !step.needs.contains(id))?;
        Some(format!("{} may be newer than the API server that {api} changes", step.id))
    });
    early.map(|text| LintFinding::fatal("kubelets", text)).collect()
}
