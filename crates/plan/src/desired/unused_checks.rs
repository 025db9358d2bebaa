//! Removes the records of checks of a way to the API servers that is not used any more, so that the same way is checked again
//! when it returns.

use kubeon_wire::Op;

use super::control::{self, apiserver_id};
use super::join::{self, ready_id};
use super::step::DesiredStep;
use super::updater;
use crate::context::{PlanContext, records};
use crate::stage_name::StageName;
use crate::step_id::StepId;

const WHY: &str = "the load balancer is not used any more";

/// The steps of `stage` that forget them, in the cluster and on the hosts.
pub(super) fn forget(context: &PlanContext<'_>, stage: StageName, steps: &mut Vec<DesiredStep>) {
    let is_external = context.spec().settings.load_balancer.external().is_some();
    let check = control::load_balancer_id();
    if !is_external && context.cluster_steps().is_some_and(|steps| records(steps, &check)) {
        let forget = Op::RemoveObjects { paths: Vec::new(), step: check.to_string() };
        steps.push(
            DesiredStep::of_cluster(context, StepId::of_cluster(stage, "unused-checks"), forget)
                .title("forget the check of the load balancer")
                .needs([apiserver_id(context.executor())])
                .once(WHY.to_owned()),
        );
    }
    for host in &context.hosts {
        let external = (!is_external).then(|| join::load_balancer_id(host));
        let service = (!updater::is_used(context)).then(|| updater::proof_id(host, stage));
        let unused = external.into_iter().chain(service).filter(|check| host.has_executed(check));
        let checks: Vec<String> = unused.map(|check| check.to_string()).collect();
        if checks.is_empty() {
            continue;
        }
        steps.push(
            DesiredStep::new(host, host.id(stage, "unused-checks"), Op::ForgetChecks { steps: checks })
                .title(format!("forget the check of the load balancer on {}", host.name))
                .needs([ready_id(&host.name)])
                .once(WHY.to_owned()),
        );
    }
}
