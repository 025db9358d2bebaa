//! Phases with many clusters at once, and idle phases.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::audit::counts;
use super::candidate_run::CandidateRun;
use super::objects;
use super::report::{Idle, Phase};
use super::sightings::{Sightings, done_at, is_done};
use super::statistics::{Times, many};

/// The pause after a phase until its last requests have ended.
const SETTLE: Duration = Duration::from_secs(3);

/// Creates clusters at once until there are `count`, and waits until each is reconciled.
pub(super) async fn reach(run: &mut CandidateRun, count: usize, limit: Duration) -> Result<Phase> {
    let names: Vec<_> = (run.clusters..count).map(objects::cluster_name).collect();
    let mut wanted = Vec::new();
    for name in &names {
        wanted.push((name.clone(), objects::references_of(&run.candidate, name)?));
    }
    let (before, begin) = (run.begin()?, Instant::now());
    let sent = objects::clusters(&run.client, &run.candidate, &run.kinds, &names).await?;
    run.clusters = run.clusters.max(count);
    let created = begin.elapsed().as_secs_f64();
    let all =
        |sightings: &Sightings| wanted.iter().all(|(name, references)| is_done(sightings, name, references));
    run.until(limit, all).await?;
    let done: Vec<_> = run.watches.read(|sightings| {
        let at = |(name, references): &(String, Vec<String>)| {
            Some((*sent.get(name)?, done_at(sightings, name, references)?))
        };
        wanted.iter().filter_map(at).collect()
    });
    let wall = done.iter().map(|(_, end)| (*end - begin).as_secs_f64()).fold(0.0, f64::max);
    tokio::time::sleep(SETTLE).await;
    let used = run.usage()?.since(before);
    Ok(Phase {
        title: format!("{}, {} of them new", many(count, "cluster"), names.len()),
        objects: names.len(),
        done: done.len(),
        ends: run.ends,
        wall,
        created,
        times: vec![("created → reconciled", Times::new(done.iter().map(|(a, b)| (*b - *a).as_secs_f64())))],
        requests: counts(&run.requests()?),
        used,
    })
}

/// Measures the operator without any changes.
pub(super) async fn idle(run: &mut CandidateRun, clusters: usize, time: Duration) -> Result<Idle> {
    let before = run.begin()?;
    tokio::time::sleep(time).await;
    let used = run.usage()?.since(before).operator;
    let requests = run.requests()?;
    let (leases, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(|request| request.is_lease());
    Ok(Idle {
        clusters,
        seconds: time.as_secs_f64(),
        leases: leases.len(),
        ends: run.ends,
        requests: counts(&others),
        used,
    })
}
