//! Phases with operations, at once or one after the other, each on its own cluster.

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
    ensure!(run.clusters >= count, "{count} operations need as many clusters");
    let mut phase_run = OperationsPhase::begin(run)?;
    let names = phase_run.names(run, count, 0);
    phase_run.operations(run, &names, limit + WORK).await?;
    let title = format!("{}, {}", many(count, "operation"), many(run.clusters, "cluster"));
    phase_run.phase(run, title, &names).await
}

/// Creates `count` operations one after the other, to measure an operation without concurrent ones.
pub(super) async fn alone(run: &mut CandidateRun, count: usize, limit: Duration) -> Result<Phase> {
    ensure!(run.clusters > 0, "there is no cluster for an operation");
    let mut phase_run = OperationsPhase::begin(run)?;
    let mut names = Vec::new();
    for number in 0..count {
        let name = phase_run.names(run, 1, number % run.clusters);
        phase_run.operations(run, &name, limit + WORK).await?;
        names.extend(name);
    }
    let title = format!("1 operation, {count} times, {}", many(run.clusters, "cluster"));
    phase_run.phase(run, title, &names).await
}

/// A running phase with the operations that it has created.
struct OperationsPhase {
    before: Used,
    begin: Instant,
    /// Seconds that the harness needed to create them.
    created: f64,
    sent: HashMap<String, Instant>,
}

impl OperationsPhase {
    fn begin(run: &mut CandidateRun) -> Result<Self> {
        let before = run.begin()?;
        Ok(Self { before, begin: Instant::now(), created: 0.0, sent: HashMap::new() })
    }

    /// Names of new operations, each with its own cluster, beginning with the cluster of this number.
    fn names(&self, run: &mut CandidateRun, count: usize, cluster: usize) -> Vec<(String, String)> {
        let first = run.operations;
        run.operations += count;
        let name = |number| (operation_name(first + number), objects::cluster_name(cluster + number));
        (0..count).map(name).collect()
    }

    /// Creates the operations and waits until each has succeeded.
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

    /// Ends the phase and returns its results.
    async fn phase(self, run: &mut CandidateRun, title: String, names: &[(String, String)]) -> Result<Phase> {
        let (times, done, wall) = run.watches.read(|sightings| self.evaluate(sightings, names));
        tokio::time::sleep(SETTLE).await;
        let used = run.usage()?.since(self.before);
        let requests = counts(&run.requests()?);
        let (objects, ends, created) = (names.len(), run.ends, self.created);
        Ok(Phase { title, objects, done, ends, wall, created, times, requests, used })
    }

    fn evaluate(
        &self,
        sightings: &Sightings,
        names: &[(String, String)],
    ) -> (Vec<(&'static str, Times)>, usize, f64) {
        let times_between = |from: &FirstSeen, to: &FirstSeen| {
            let time = |(name, _): &(String, String)| {
                Some(to.get(name)?.saturating_duration_since(*from.get(name)?).as_secs_f64())
            };
            Times::new(names.iter().filter_map(time))
        };
        let ends: Vec<_> = names.iter().filter_map(|(name, _)| sightings.succeeded.get(name)).collect();
        let wall = ends.iter().map(|end| (**end - self.begin).as_secs_f64()).fold(0.0, f64::max);
        let times = vec![
            ("created → Job", times_between(&self.sent, &sightings.jobs)),
            ("API server alone: created → observed", times_between(&self.sent, &sightings.operations)),
            ("Job done → status", times_between(&sightings.ending, &sightings.succeeded)),
            ("API server alone: Job done → observed", times_between(&sightings.ending, &sightings.ended)),
            (
                "operator alone: Job observed done → status",
                times_between(&sightings.ended, &sightings.succeeded),
            ),
        ];
        (times, ends.len(), wall)
    }
}

/// The name of an operation by its number.
pub(super) fn operation_name(number: usize) -> String {
    format!("op-{number:05}")
}
