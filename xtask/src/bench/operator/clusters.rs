//! Clusters at once, and idleness.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::audit::counts;
use super::ground::Ground;
use super::objects;
use super::report::{Idle, Phase, many};
use super::statistics::Times;
use super::world::Sights;

/// After a phase, until nothing of it is on its way any more.
const SETTLE: Duration = Duration::from_secs(3);

/// Whether a cluster owns what it refers to, and its status says that it was reconciled.
pub(super) fn is_done(sights: &Sights, name: &str, references: &[String]) -> bool {
    done_at(sights, name, references).is_some()
}

/// When the last of it was seen.
fn done_at(sights: &Sights, name: &str, references: &[String]) -> Option<Instant> {
    let mut last = *sights.reconciled.get(name)?;
    for reference in references {
        last = last.max(*sights.owned.get(&(reference.clone(), name.to_owned()))?);
    }
    Some(last)
}

/// Creates clusters at once until there are `count`, and waits until each is reconciled.
pub(super) async fn reach(ground: &mut Ground, count: usize, limit: Duration) -> Result<Phase> {
    let names: Vec<_> = (ground.clusters..count).map(objects::cluster_name).collect();
    let mut wanted = Vec::new();
    for name in &names {
        wanted.push((name.clone(), objects::references_of(&ground.candidate, name)?));
    }
    let (before, begin) = (ground.begin()?, Instant::now());
    let sent = objects::clusters(&ground.client, &ground.candidate, &ground.kinds, &names).await?;
    ground.clusters = ground.clusters.max(count);
    let created = begin.elapsed().as_secs_f64();
    let all = |sights: &Sights| wanted.iter().all(|(name, references)| is_done(sights, name, references));
    ground.until(limit, all).await?;
    let done: Vec<_> = ground.world.look(|sights| {
        let at = |(name, references): &(String, Vec<String>)| {
            Some((*sent.get(name)?, done_at(sights, name, references)?))
        };
        wanted.iter().filter_map(at).collect()
    });
    let wall = done.iter().map(|(_, end)| (*end - begin).as_secs_f64()).fold(0.0, f64::max);
    tokio::time::sleep(SETTLE).await;
    let used = ground.usage()?.since(before);
    Ok(Phase {
        what: format!("{}, {} of them new", many(count, "cluster"), names.len()),
        objects: names.len(),
        done: done.len(),
        ends: ground.ends,
        wall,
        created,
        times: vec![("created → reconciled", Times::new(done.iter().map(|(a, b)| (*b - *a).as_secs_f64())))],
        requests: counts(&ground.requests()?),
        used,
    })
}

/// Lets the operator alone.
pub(super) async fn idle(ground: &mut Ground, clusters: usize, time: Duration) -> Result<Idle> {
    let before = ground.begin()?;
    tokio::time::sleep(time).await;
    let used = ground.usage()?.since(before).operator;
    let requests = ground.requests()?;
    let (leases, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| request.is_lease());
    Ok(Idle {
        clusters,
        seconds: time.as_secs_f64(),
        leases: leases.len(),
        ends: ground.ends,
        requests: counts(&others),
        used,
    })
}
