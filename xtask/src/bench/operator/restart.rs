//! Killed, and started again with everything there.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::{Timestamp, Unit};

use super::audit::counts;
use super::candidate_run::CandidateRun;
use super::objects;
use super::operations::operation_name;
use super::report::Restart;
use super::sightings::Sightings;
use super::sightings::is_done;

/// How long requests are counted after it has converged: what else it thinks it must do shows by then.
const AFTER: Duration = Duration::from_secs(10);

/// Kills the operator, creates a cluster and an operation while it is gone, starts it, and waits until it has handled
/// both.
pub(super) async fn kill_and_start(run: &mut CandidateRun, limit: Duration) -> Result<Restart> {
    run.begin()?;
    run.kill().await?;
    let holders = run.watches.look(|sightings| sightings.holders.len());
    let (cluster, operation) = ("bench-missed".to_owned(), operation_name(run.operations));
    run.operations += 1;
    objects::clusters(&run.client, &run.candidate, &run.kinds, std::slice::from_ref(&cluster)).await?;
    let pair = (operation.clone(), objects::cluster_name(0));
    objects::operations(&run.client, &run.candidate, &run.kinds, &[pair]).await?;
    let wanted = objects::references_of(&run.candidate, &cluster)?;
    run.requests()?;

    let (begin, clock) = (Instant::now(), Timestamp::now());
    run.spawn()?;
    let handled = |sightings: &Sightings| {
        is_done(sightings, &cluster, &wanted) && sightings.jobs.contains_key(&operation)
    };
    let converged = run.until(limit, handled).await?;
    let total = begin.elapsed().as_secs_f64();
    // A holder that did not change is a process that gave the lease to itself, or no election at all.
    let lease = run.watches.look(|sightings| {
        let taken = sightings.holders.get(holders..)?.iter().find(|(_, holder)| !holder.is_empty())?;
        Some((taken.0 - begin).as_secs_f64())
    });
    tokio::time::sleep(AFTER).await;
    let used = run.usage().context("after its restart")?.operator;
    let requests = run.requests()?;
    let last = requests.iter().filter(|request| !request.is_lease()).map(|request| request.at).max();
    let ours = [cluster.as_str(), operation.as_str()];
    let about_ours = |name: &str| ours.iter().any(|ours| name.contains(ours));
    let strange: Vec<_> = requests
        .iter()
        .filter(|request| request.is_write() && !request.name.is_empty() && !about_ours(&request.name))
        .filter(|request| request.name != objects::cluster_name(0))
        .cloned()
        .collect();
    Ok(Restart {
        clusters: run.clusters,
        total: converged.then_some(total),
        lease,
        last: last.map(|at| (at - clock).total(Unit::Second)).transpose()?,
        requests: counts(&requests),
        strange: counts(&strange),
        used,
    })
}
