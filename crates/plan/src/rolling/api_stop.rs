//! The API server of a master ends in an orderly way before its etcd member restarts: it serves until the load balancers
//! chose another one. It starts again after the member.

use kubeon_wire::Op;

use crate::context::{ObservedHost, PlanContext};
use crate::desired::control_plane::{ControlPlaneProgram, apiserver_id};
use crate::desired::{etcd, pods};
use crate::output::Step;
use crate::step_id::StepId;

/// Seconds for an API server to stop: it waits for open requests.
const STOP_SECONDS: u32 = 120;

/// Adds the steps. `waits` tells which steps interrupt a node that works. An API server that no other one replaces
/// meanwhile stays.
pub(super) fn add(context: &PlanContext<'_>, steps: &mut Vec<Step>, waits: &impl Fn(&Step) -> bool) {
    if context.has_external_etcd() || context.masters().nth(1).is_none() {
        return;
    }
    for host in context.masters() {
        let (member, api) = (etcd::member_id(host), apiserver_id(host));
        let starts_again = steps.iter().any(|step| step.id == api);
        let Some(index) = steps.iter().position(|step| step.id == member && starts_again && waits(step))
        else {
            continue;
        };
        let stop = stop(context, host, &steps[index]);
        steps[index].needs.push(stop.id.clone());
        steps.insert(index, stop);
    }
}

/// Whether the step stops an API server whose member restarts.
pub(super) fn is_stop(id: &StepId) -> bool {
    id.stage() == etcd::STAGE && id.what() == STOP
}

const STOP: &str = "stop-api-server";

fn stop(context: &PlanContext<'_>, host: &ObservedHost<'_>, member: &Step) -> Step {
    let unit = pods::unit_name(context, ControlPlaneProgram::ApiServer.part());
    Step {
        id: host.id(etcd::STAGE, STOP),
        stage: etcd::STAGE,
        host: host.address(),
        title: format!("stop the API server on {}; others serve", host.name),
        why: "its etcd member restarts".to_owned(),
        needs: member.needs.clone(),
        digest: String::new(),
        timeout_seconds: STOP_SECONDS,
        tries: 2,
        journal: false,
        record_in: None,
        destructive: false,
        op: Op::StopServices { units: vec![unit], before_member: true },
    }
}
