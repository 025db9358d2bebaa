//! Operations at once, each on a cluster of its own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::audit::counts;
use super::ground::Ground;
use super::jobs::WORK;
use super::objects;
use super::report::{Phase, many};
use super::statistics::Times;
use super::world::{Seen, Sights};

const SETTLE: Duration = Duration::from_secs(3);

/// Creates `count` operations at once and waits until each succeeded.
pub(super) async fn at_once(ground: &mut Ground, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(ground.clusters >= count, "there are not enough clusters for {count} operations");
    let first = ground.operations;
    let names: Vec<_> =
        (0..count).map(|number| (operation_name(first + number), objects::cluster_name(number))).collect();
    ground.operations += count;
    let (before, begin) = (ground.begin()?, Instant::now());
    let sent = objects::operations(&ground.client, &ground.candidate, &ground.kinds, &names).await?;
    let created = begin.elapsed().as_secs_f64();
    let all = |sights: &Sights| names.iter().all(|(name, _)| sights.succeeded.contains_key(name));
    ground.until(limit + WORK, all).await?;
    let (times, done, wall) = ground.world.look(|sights| {
        let of = |from: &Seen, to: &Seen| {
            let time = |(name, _): &(String, String)| Some((*to.get(name)? - *from.get(name)?).as_secs_f64());
            Times::new(names.iter().filter_map(time))
        };
        let ends: Vec<_> = names.iter().filter_map(|(name, _)| sights.succeeded.get(name)).collect();
        let wall = ends.iter().map(|end| (**end - begin).as_secs_f64()).fold(0.0, f64::max);
        let times = vec![
            ("created → Job", of(&sent, &sights.jobs)),
            ("the API server itself: created → seen", of(&sent, &sights.operations)),
            ("Job done → status", of(&sights.ending, &sights.succeeded)),
            ("the API server itself: Job done → seen", of(&sights.ending, &sights.ended)),
        ];
        (times, ends.len(), wall)
    });
    tokio::time::sleep(SETTLE).await;
    let used = ground.usage()?.since(before);
    let what = format!("{}, {}", many(count, "operation"), many(ground.clusters, "cluster"));
    let requests = counts(&ground.requests()?);
    let ends = ground.ends;
    Ok(Phase { what, objects: count, done, ends, wall, created, times, requests, used })
}

/// The name of an operation by its number.
pub(super) fn operation_name(number: usize) -> String {
    format!("op-{number:05}")
}
