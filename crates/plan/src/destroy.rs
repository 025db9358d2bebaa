//! The plan that takes a cluster away: every host is reset, workers first, so that no worker keeps writing
//! to a control plane that is going.

use kubeon_wire::Op;

use crate::diff::planned_hosts;
use crate::hosts;
use crate::input::{Intent, Snapshot};
use crate::output::{Plan, PlanError, Step};
use crate::site::{Host, Site};

/// Plans the removal of a cluster. Hosts that carry nothing of it are left alone.
///
/// # Errors
/// When a host cannot be seen and was not named to be left out, or carries another cluster.
pub fn destroy(intent: &Intent, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let (site, notes) = hosts::recognize(intent, snapshot)?;
    let claimed = |host: &&Host<'_>| host.facts.claim.is_some();
    let workers: Vec<String> = site.workers().filter(claimed).map(reset_id).collect();
    let generation = site.generation + 1;
    let steps: Vec<Step> = site
        .workers()
        .chain(site.masters())
        .filter(claimed)
        .map(|host| reset(&site, host, if host.master { workers.clone() } else { Vec::new() }))
        .collect();
    Ok(Plan {
        cluster: site.spec().name.clone(),
        version: site.spec().version,
        generation,
        hosts: planned_hosts(&site, generation),
        facts: site.hosts.len(),
        standing: 0,
        steps,
        notes,
    })
}

fn reset_id(host: &Host<'_>) -> String {
    host.id("reset/host")
}

fn reset(site: &Site<'_>, host: &Host<'_>, needs: Vec<String>) -> Step {
    Step {
        id: reset_id(host),
        stage: "reset".to_owned(),
        host: host.address(),
        title: format!("take everything of {} off {}", site.spec().name, host.name),
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
