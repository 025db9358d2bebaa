//! The plan that destroys a cluster. Every host is reset, workers first, so that no worker writes to a
//! control plane that is being removed, and hosts of etcd alone last.

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{Facts, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::diff::planned_hosts;
use crate::hosts;
use crate::input::{Intent, Snapshot};
use crate::output::{Plan, PlanError, Step};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// Plans the removal of a cluster. Hosts that do not belong to it and skipped hosts, including masters, are
/// not changed. If no host is left, the plan is empty. A note names the hosts of other clusters.
///
/// # Errors
/// When a host cannot be observed and is not skipped, unless no host was ever written to.
pub fn destroy(intent: &Intent, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let (context, notes) = hosts::admit_for_destroy(intent, snapshot)?;
    let claimed_by_cluster =
        |facts: &Facts| facts.claim.as_ref().is_some_and(|claim| claim.uid == intent.uid);
    let claimed = |host: &&ObservedHost<'_>| claimed_by_cluster(host.facts);
    let workers = context.workers().filter(claimed).map(|host| (host.address(), &host.name));
    // Leaving workers are reset together with the other workers.
    let leaving = context
        .leaving
        .iter()
        .filter(|host| host.facts.as_ref().is_ok_and(|facts| claimed_by_cluster(facts)));
    let workers: Vec<_> = workers.chain(leaving.map(|host| (host.spec.address, &host.name))).collect();
    let before: Vec<StepId> = workers.iter().map(|(_, name)| reset_id(name)).collect();
    let generation = context.next_generation;
    let masters: Vec<_> = context.masters().filter(claimed).collect();
    let control_planes: Vec<StepId> = masters.iter().map(|host| reset_id(&host.name)).collect();
    let steps: Vec<Step> = workers
        .iter()
        .map(|(address, name)| reset(&context, *address, name, Vec::new()))
        .chain(masters.iter().map(|host| reset(&context, host.address(), &host.name, before.clone())))
        .chain(
            context
                .etcd_hosts
                .iter()
                .filter(claimed)
                .map(|host| reset(&context, host.address(), &host.name, control_planes.clone())),
        )
        .collect();
    Ok(Plan {
        cluster: context.spec().name.clone(),
        version: context.spec().version,
        nodes_at: None,
        generation,
        hosts: planned_hosts(&context, generation),
        facts: context.all_hosts().count(),
        up_to_date: 0,
        steps,
        continues: false,
        awaits_network: false,
        notes,
        unreachable: Vec::new(),
        waiting: Vec::new(),
        rolling: Vec::new(),
        quorum: None,
    })
}

/// The only stage of a removal.
const STAGE: StageName = StageName::new("reset");

fn reset_id(name: &HostName) -> StepId {
    StepId::new(STAGE, "host", name)
}

fn reset(context: &PlanContext<'_>, host: HostAddress, name: &HostName, needs: Vec<StepId>) -> Step {
    Step {
        id: reset_id(name),
        stage: STAGE,
        host,
        title: format!("reset {name}: remove everything of cluster {}", context.spec().name),
        why: "the cluster is being destroyed".to_owned(),
        needs,
        digest: String::new(),
        timeout_seconds: 180,
        tries: 2,
        journal: false,
        record_in: None,
        destructive: true,
        op: Op::Reset { cluster: context.spec().name.clone() },
    }
}
