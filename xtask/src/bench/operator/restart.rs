//! Killed, and started again with everything there.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::jiff::{Timestamp, Unit};

use super::audit::counts;
use super::clusters::is_done;
use super::ground::Ground;
use super::objects;
use super::operations::operation_name;
use super::report::Restart;
use super::world::Sights;

/// How long requests are counted after it has converged: what else it thinks it must do shows by then.
const AFTER: Duration = Duration::from_secs(10);

/// Kills the operator, creates a cluster and an operation while it is gone, starts it, and waits until it has handled
/// both.
pub(super) async fn kill_and_start(ground: &mut Ground, limit: Duration) -> Result<Restart> {
    ground.begin()?;
    ground.kill().await?;
    let holders = ground.world.look(|sights| sights.holders.len());
    let (cluster, operation) = ("bench-missed".to_owned(), operation_name(ground.operations));
    ground.operations += 1;
    objects::clusters(&ground.client, &ground.candidate, &ground.kinds, std::slice::from_ref(&cluster))
        .await?;
    let pair = (operation.clone(), objects::cluster_name(0));
    objects::operations(&ground.client, &ground.candidate, &ground.kinds, &[pair]).await?;
    let wanted = objects::references_of(&ground.candidate, &cluster)?;
    ground.requests()?;

    let (begin, clock) = (Instant::now(), Timestamp::now());
    ground.spawn()?;
    let handled =
        |sights: &Sights| is_done(sights, &cluster, &wanted) && sights.jobs.contains_key(&operation);
    let converged = ground.until(limit, handled).await?;
    let total = begin.elapsed().as_secs_f64();
    // A holder that did not change is a process that gave the lease to itself, or no election at all.
    let lease = ground.world.look(|sights| {
        let taken = sights.holders.get(holders..)?.iter().find(|(_, holder)| !holder.is_empty())?;
        Some((taken.0 - begin).as_secs_f64())
    });
    tokio::time::sleep(AFTER).await;
    let used = ground.usage().context("after its restart")?.operator;
    let requests = ground.requests()?;
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
        clusters: ground.clusters,
        total: converged.then_some(total),
        lease,
        last: last.map(|at| (at - clock).total(Unit::Second)).transpose()?,
        requests: counts(&requests),
        strange: counts(&strange),
        used,
    })
}
