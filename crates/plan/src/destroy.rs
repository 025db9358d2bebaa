//! The plan that takes a cluster away: every host is reset, workers first, so that no worker keeps writing
//! to a control plane that is going.

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{Facts, Op};

use crate::context::{ObservedHost, PlanContext};
use crate::diff::planned_hosts;
use crate::hosts;
use crate::input::{Intent, Snapshot};
use crate::output::{Plan, PlanError, Step};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// Plans the removal of a cluster. Hosts that carry nothing of it are left alone, and so are those that were named to be
/// left out, masters too. Where all are, the plan is empty. A note names those that carry another cluster.
///
/// # Errors
/// When a host cannot be seen and was not named to be left out; not where no host was ever written to.
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
