//! The plan that destroys a cluster. Every host is reset, workers first, so that no worker writes to a control plane that is
//! being removed.

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{Facts, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::diff::planned_hosts;
use crate::hosts;
use crate::input::{Intent, Snapshot};
use crate::output::{Plan, PlanError, Step};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// Plans the removal of a cluster. Hosts that hold nothing of it are not changed, and neither are skipped hosts, including
/// masters. If no host is left, the plan is empty. A note names the hosts of other clusters.
///
/// # Errors
/// When a host cannot be observed and is not skipped, unless no host was ever written to.
pub fn destroy(intent: &Intent, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let (site, notes) = hosts::recognize(intent, snapshot)?;
    let ours = |facts: &Facts| facts.claim.as_ref().is_some_and(|claim| claim.uid == intent.uid);
    let claimed = |host: &&ObservedHost<'_>| ours(host.facts);
    let workers = site.workers().filter(claimed).map(|host| (host.address(), &host.name));
    // A host that was about to leave goes with the workers.
    let leaving = site.leaving.iter().filter(|host| host.facts.as_ref().is_ok_and(|facts| ours(facts)));
    let workers: Vec<_> = workers.chain(leaving.map(|host| (host.spec.address, &host.name))).collect();
    let before: Vec<StepId> = workers.iter().map(|(_, name)| reset_id(name)).collect();
    let generation = site.generation + 1;
    let masters = site.masters().filter(claimed);
    let steps: Vec<Step> = workers
        .iter()
        .map(|(address, name)| reset(&site, *address, name, Vec::new()))
        .chain(masters.map(|host| reset(&site, host.address(), &host.name, before.clone())))
        .collect();
    Ok(Plan {
        cluster: site.spec().name.clone(),
        version: site.spec().version,
        generation,
        hosts: planned_hosts(&site, generation),
        facts: site.hosts.len(),
        up_to_date: 0,
        steps,
        notes,
    })
}

/// The name of the one stage of a removal.
const STAGE: StageName = StageName::Reset;

fn reset_id(name: &HostName) -> StepId {
    StepId::new(STAGE, "host", name)
}

fn reset(site: &PlanContext<'_>, host: HostAddress, name: &HostName, needs: Vec<StepId>) -> Step {
    Step {
        id: reset_id(name),
        stage: STAGE,
        host,
        title: format!("take everything of {} off {name}", site.spec().name),
        why: "the cluster is to be destroyed".to_owned(),
        needs,
        digest: String::new(),
        timeout_seconds: 180,
        tries: 2,
        journal: false,
        destructive: true,
        op: Op::Reset { cluster: site.spec().name.clone() },
    }
}
