//! Operations, at once or one after the other, each on a cluster of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::audit::counts;
use super::ground::Ground;
use super::jobs::WORK;
use super::objects;
use super::report::{Phase, many};
use super::statistics::Times;
use super::usage::Used;
use super::world::{Seen, Sights};

const SETTLE: Duration = Duration::from_secs(3);

/// Creates `count` operations at once and waits until each succeeded.
pub(super) async fn at_once(ground: &mut Ground, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(ground.clusters >= count, "there are not enough clusters for {count} operations");
    let mut made = Made::begin(ground)?;
    let names = made.names(ground, count, 0);
    made.operations(ground, &names, limit + WORK).await?;
    let what = format!("{}, {}", many(count, "operation"), many(ground.clusters, "cluster"));
    made.phase(ground, what, &names).await
}

/// Creates `count` operations, each when the one before has ended: how long one takes that has the API server to itself.
pub(super) async fn alone(ground: &mut Ground, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(ground.clusters > 0, "there is no cluster for an operation");
    let mut made = Made::begin(ground)?;
    let mut names = Vec::new();
    for number in 0..count {
        let one = made.names(ground, 1, number % ground.clusters);
        made.operations(ground, &one, limit + WORK).await?;
        names.extend(one);
    }
    let what = format!("1 operation, {count} times, {}", many(ground.clusters, "cluster"));
    made.phase(ground, what, &names).await
}

/// Operations that were made, and when.
struct Made {
    before: Used,
    begin: Instant,
    /// Seconds that the harness took.
    created: f64,
    sent: HashMap<String, Instant>,
}

impl Made {
    fn begin(ground: &mut Ground) -> Result<Self> {
        let before = ground.begin()?;
        Ok(Self { before, begin: Instant::now(), created: 0.0, sent: HashMap::new() })
    }

    /// Names of new operations, each on a cluster of its own from that number on.
    fn names(&self, ground: &mut Ground, count: usize, cluster: usize) -> Vec<(String, String)> {
        let first = ground.operations;
        ground.operations += count;
        let name = |number| (operation_name(first + number), objects::cluster_name(cluster + number));
        (0..count).map(name).collect()
    }

    /// Creates them and waits until each succeeded.
    async fn operations(
        &mut self,
        ground: &mut Ground,
        names: &[(String, String)],
        limit: Duration,
    ) -> Result<()> {
        let begin = Instant::now();
        let sent = objects::operations(&ground.client, &ground.candidate, &ground.kinds, names).await?;
        self.created += begin.elapsed().as_secs_f64();
        self.sent.extend(sent);
        let all = |sights: &Sights| names.iter().all(|(name, _)| sights.succeeded.contains_key(name));
        ground.until(limit, all).await?;
        Ok(())
    }

    /// What was seen of them.
    async fn phase(self, ground: &mut Ground, what: String, names: &[(String, String)]) -> Result<Phase> {
        let (times, done, wall) = ground.world.look(|sights| self.seen(sights, names));
        tokio::time::sleep(SETTLE).await;
        let used = ground.usage()?.since(self.before);
        let requests = counts(&ground.requests()?);
        let (objects, ends, created) = (names.len(), ground.ends, self.created);
        Ok(Phase { what, objects, done, ends, wall, created, times, requests, used })
    }

    fn seen(&self, sights: &Sights, names: &[(String, String)]) -> (Vec<(&'static str, Times)>, usize, f64) {
        let of = |from: &Seen, to: &Seen| {
            let time = |(name, _): &(String, String)| {
                Some(to.get(name)?.saturating_duration_since(*from.get(name)?).as_secs_f64())
            };
            Times::new(names.iter().filter_map(time))
        };
        let ends: Vec<_> = names.iter().filter_map(|(name, _)| sights.succeeded.get(name)).collect();
        let wall = ends.iter().map(|end| (**end - self.begin).as_secs_f64()).fold(0.0, f64::max);
        let times = vec![
            ("created → Job", of(&self.sent, &sights.jobs)),
            ("the API server itself: created → seen", of(&self.sent, &sights.operations)),
            ("Job done → status", of(&sights.ending, &sights.succeeded)),
            ("the API server itself: Job done → seen", of(&sights.ending, &sights.ended)),
            ("against that: Job seen done → status", of(&sights.ended, &sights.succeeded)),
        ];
        (times, ends.len(), wall)
    }
}

/// The name of an operation by its number.
pub(super) fn operation_name(number: usize) -> String {
    format!("op-{number:05}")
}
