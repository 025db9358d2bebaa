//! Kills the operator and starts it again with all objects in place.

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

/// How long requests are counted after the operator has converged, to find unexpected writes.
const OBSERVATION_TIME: Duration = Duration::from_secs(10);

/// Kills the operator, creates a cluster and an operation, starts the operator, and waits until it has
/// handled both.
pub(super) async fn kill_and_start(run: &mut CandidateRun, limit: Duration) -> Result<Restart> {
    run.begin()?;
    run.kill().await?;
    let holders = run.watches.read(|sightings| sightings.holders.len());
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
    // If the holder did not change, the process renewed its own lease or has no leader election.
    let lease = run.watches.read(|sightings| {
        let taken = sightings.holders.get(holders..)?.iter().find(|(_, holder)| !holder.is_empty())?;
        Some((taken.0 - begin).as_secs_f64())
    });
    tokio::time::sleep(OBSERVATION_TIME).await;
    let used = run.usage().context("after its restart")?.operator;
    let requests = run.requests()?;
    let last = requests.iter().filter(|request| !request.is_lease()).map(|request| request.at).max();
    let missed = [cluster.as_str(), operation.as_str()];
    let is_missed = |name: &str| missed.iter().any(|missed| name.contains(missed));
    let unexpected: Vec<_> = requests
        .iter()
        .filter(|request| request.is_write() && !request.name.is_empty() && !is_missed(&request.name))
        .filter(|request| request.name != objects::cluster_name(0))
        .cloned()
        .collect();
    Ok(Restart {
        clusters: run.clusters,
        total: converged.then_some(total),
        lease,
        last: last.map(|at| (at - clock).total(Unit::Second)).transpose()?,
        requests: counts(&requests),
        unexpected: counts(&unexpected),
        used,
    })
}
