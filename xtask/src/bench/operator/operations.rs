//! Operations, at once or one after the other, each on a cluster of its own.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::audit::counts;
use super::candidate_run::CandidateRun;
use super::jobs::WORK;
use super::objects;
use super::report::Phase;
use super::sightings::{FirstSeen, Sightings};
use super::statistics::{Times, many};
use super::usage::Used;

const SETTLE: Duration = Duration::from_secs(3);

/// Creates `count` operations at once and waits until each succeeded.
pub(super) async fn at_once(run: &mut CandidateRun, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(run.clusters >= count, "there are not enough clusters for {count} operations");
    let mut made = Made::begin(run)?;
    let names = made.names(run, count, 0);
    made.operations(run, &names, limit + WORK).await?;
    let what = format!("{}, {}", many(count, "operation"), many(run.clusters, "cluster"));
    made.phase(run, what, &names).await
}

/// Creates `count` operations, each when the one before has ended: how long one takes that has the API server to itself.
pub(super) async fn alone(run: &mut CandidateRun, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(run.clusters > 0, "there is no cluster for an operation");
    let mut made = Made::begin(run)?;
    let mut names = Vec::new();
    for number in 0..count {
        let one = made.names(run, 1, number % run.clusters);
        made.operations(run, &one, limit + WORK).await?;
        names.extend(one);
    }
    let what = format!("1 operation, {count} times, {}", many(run.clusters, "cluster"));
    made.phase(run, what, &names).await
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
    fn begin(run: &mut CandidateRun) -> Result<Self> {
        let before = run.begin()?;
        Ok(Self { before, begin: Instant::now(), created: 0.0, sent: HashMap::new() })
    }

    /// Names of new operations, each on a cluster of its own from that number on.
    fn names(&self, run: &mut CandidateRun, count: usize, cluster: usize) -> Vec<(String, String)> {
        let first = run.operations;
        run.operations += count;
        let name = |number| (operation_name(first + number), objects::cluster_name(cluster + number));
        (0..count).map(name).collect()
    }

    /// Creates them and waits until each succeeded.
    async fn operations(
        &mut self,
        run: &mut CandidateRun,
        names: &[(String, String)],
        limit: Duration,
    ) -> Result<()> {
        let begin = Instant::now();
        let sent = objects::operations(&run.client, &run.candidate, &run.kinds, names).await?;
        self.created += begin.elapsed().as_secs_f64();
        self.sent.extend(sent);
        let all =
            |sightings: &Sightings| names.iter().all(|(name, _)| sightings.succeeded.contains_key(name));
        run.until(limit, all).await?;
        Ok(())
    }

    /// What was seen of them.
    async fn phase(self, run: &mut CandidateRun, what: String, names: &[(String, String)]) -> Result<Phase> {
        let (times, done, wall) = run.watches.look(|sightings| self.seen(sightings, names));
        tokio::time::sleep(SETTLE).await;
        let used = run.usage()?.since(self.before);
        let requests = counts(&run.requests()?);
        let (objects, ends, created) = (names.len(), run.ends, self.created);
        Ok(Phase { what, objects, done, ends, wall, created, times, requests, used })
    }

    fn seen(
        &self,
        sightings: &Sightings,
        names: &[(String, String)],
    ) -> (Vec<(&'static str, Times)>, usize, f64) {
        let of = |from: &FirstSeen, to: &FirstSeen| {
            let time = |(name, _): &(String, String)| {
                Some(to.get(name)?.saturating_duration_since(*from.get(name)?).as_secs_f64())
            };
            Times::new(names.iter().filter_map(time))
        };
        let ends: Vec<_> = names.iter().filter_map(|(name, _)| sightings.succeeded.get(name)).collect();
        let wall = ends.iter().map(|end| (**end - self.begin).as_secs_f64()).fold(0.0, f64::max);
        let times = vec![
            ("created → Job", of(&self.sent, &sightings.jobs)),
            ("the API server itself: created → seen", of(&self.sent, &sightings.operations)),
            ("Job done → status", of(&sightings.ending, &sightings.succeeded)),
            ("the API server itself: Job done → seen", of(&sightings.ending, &sightings.ended)),
            ("against that: Job seen done → status", of(&sightings.ended, &sightings.succeeded)),
        ];
        (times, ends.len(), wall)
    }
}

/// The name of an operation by its number.
pub(super) fn operation_name(number: usize) -> String {
    format!("op-{number:05}")
}
