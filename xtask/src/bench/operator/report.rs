//! Tables.

use super::audit::Counts;
use super::floor::Floor;
use super::statistics::{Times, many};
use super::usage::{ProcessUsage, Used};

/// Objects created at once and what came of it.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) what: String,
    pub(super) objects: usize,
    pub(super) done: usize,
    /// How often the operator ended by itself.
    pub(super) ends: usize,
    /// Seconds from the first request of the harness until the last object was done.
    pub(super) wall: f64,
    /// Seconds that the harness took to create them.
    pub(super) created: f64,
    pub(super) times: Vec<(&'static str, Times)>,
    pub(super) requests: Counts,
    pub(super) used: Used,
}

/// Nothing happens.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) clusters: usize,
    pub(super) seconds: f64,
    pub(super) leases: usize,
    /// How often the operator ended by itself.
    pub(super) ends: usize,
    pub(super) requests: Counts,
    pub(super) used: ProcessUsage,
}

/// Killed and started.
#[derive(Debug)]
pub(super) struct Restart {
    pub(super) clusters: usize,
    /// Seconds from the start until it had handled what it missed; none: not in time.
    pub(super) total: Option<f64>,
    /// Seconds from the start until it held the lease; none: there is none.
    pub(super) lease: Option<f64>,
    /// Seconds from the start until its last request, those about the lease not counted.
    pub(super) last: Option<f64>,
    pub(super) requests: Counts,
    /// Writes about objects that nobody had touched.
    pub(super) strange: Counts,
    pub(super) used: ProcessUsage,
}

/// All about one candidate.
#[derive(Debug)]
pub(super) struct CandidateReport {
    name: String,
    fsync: bool,
    /// Seconds from its first start until it had reconciled its first cluster.
    pub(super) first: f64,
    pub(super) clusters: Vec<Phase>,
    pub(super) idle: Vec<Idle>,
    pub(super) operations: Vec<Phase>,
    pub(super) restart: Option<Restart>,
    /// What the API server itself takes.
    pub(super) floor: Option<Floor>,
}

impl Phase {
    /// The line that tells of it at once.
    pub(super) fn line(&self) -> String {
        let times: Vec<_> =
            self.times.iter().map(|(what, times)| format!("{what} {}", times.text())).collect();
        let (done, wall, created) = (self.outcome(), self.wall, self.created);
        let load = load();
        format!(
            "  load {load}; {}: {done} done in {wall:.2} s, made in {created:.2} s; {}; CPU s: operator {:.2}, {}, harness {:.1}",
            self.what,
            times.join("; "),
            self.used.operator.cpu,
            self.used.servers.text(),
            self.used.harness
        )
    }

    /// `400`, `12 of 400`, `400, it ended 1 times`.
    fn outcome(&self) -> String {
        let done = match self.done {
            all if all == self.objects => all.to_string(),
            some => format!("{some} of {}", self.objects),
        };
        if self.ends == 0 { done } else { format!("{done}, it ended {} times", self.ends) }
    }

    fn writes(&self) -> f64 {
        let writes =
            self.requests.iter().filter(|(kind, _)| is_write(kind)).map(|(_, count)| count).sum::<usize>();
        per(writes, self.objects)
    }
}

/// How busy the machine is with everything, ourselves included: the average of the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

fn is_write(kind: &str) -> bool {
    let verbs = ["create ", "update ", "patch ", "delete ", "deletecollection "];
    let changes = verbs.iter().any(|verb| kind.starts_with(verb));
    changes && !kind.ends_with(" leases") && !kind.ends_with(" events") && !kind.ends_with("reviews")
}

#[allow(clippy::cast_precision_loss, reason = "counts of requests")]
fn per(count: usize, objects: usize) -> f64 {
    count as f64 / objects.max(1) as f64
}

impl Idle {
    fn ended(&self) -> String {
        if self.ends == 0 { String::new() } else { format!(", it ended {} times", self.ends) }
    }

    pub(super) fn line(&self) -> String {
        let (all, cpu) = (sum(&self.requests), self.used.cpu * 1000.0 / self.seconds);
        let (clusters, seconds, leases, ended) = (self.clusters, self.seconds, self.leases, self.ended());
        format!(
            "  idle {seconds:.0} s at {clusters}: {all} requests, {leases} about the lease, {cpu:.1} mCPU{ended}"
        )
    }
}

impl Restart {
    pub(super) fn line(&self) -> String {
        let text = |time: Option<f64>| time.map_or("–".to_owned(), |time| format!("{time:.2} s"));
        let after = match (self.total, self.lease) {
            (Some(total), Some(lease)) => Some((total - lease).max(0.0)),
            (total, None) => total,
            _ => None,
        };
        format!(
            "  killed and started at {}: lease after {}, converged {} later ({} in all), last request after {}, {:.2} CPU s, {:.0} MiB; writes about anything else: {}",
            many(self.clusters, "cluster"),
            text(self.lease),
            text(after),
            text(self.total),
            text(self.last),
            self.used.cpu,
            self.used.peak,
            list(&self.strange, 1)
        )
    }
}

fn sum(counts: &Counts) -> usize {
    counts.values().sum()
}

/// `3.0 get secrets, 1.0 patch clusters/status`: most first.
fn list(counts: &Counts, objects: usize) -> String {
    let mut pairs: Vec<_> = counts.iter().collect();
    pairs.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let words = pairs.iter().map(|(kind, count)| match objects {
        1 => format!("{count} {kind}"),
        _ => format!("{:.2} {kind}", per(**count, objects)),
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

impl CandidateReport {
    pub(super) fn new(name: &str, fsync: bool) -> Self {
        let (clusters, idle, operations) = (Vec::new(), Vec::new(), Vec::new());
        let name = name.to_owned();
        Self { name, fsync, first: 0.0, clusters, idle, operations, restart: None, floor: None }
    }

    /// Everything, as Markdown.
    pub(super) fn print(&self) {
        let disk = if self.fsync { "with fsync" } else { "in memory" };
        crate::terminal::say(&format!(
            "\n### {}, etcd {disk}, first cluster after {:.2} s\n",
            self.name, self.first
        ));
        phases(&self.clusters);
        phases(&self.operations);
        crate::terminal::say(
            "| idle at | seconds | requests | about the lease | mCPU | MiB |\n|---|---|---|---|---|---|",
        );
        for it in &self.idle {
            crate::terminal::say(&format!(
                "| {} | {:.0} | {} | {} | {:.1} | {:.1} |",
                many(it.clusters, "cluster") + &it.ended(),
                it.seconds,
                list(&it.requests, 1),
                it.leases,
                it.used.cpu * 1000.0 / it.seconds,
                it.used.resident
            ));
        }
        if let Some(floor) = &self.floor {
            crate::terminal::say(&format!("\n{}\n", floor.line()));
        }
        if let Some(restart) = &self.restart {
            crate::terminal::say(&format!(
                "\n{}\n  its requests: {}\n",
                restart.line().trim_start(),
                list(&restart.requests, 1)
            ));
        }
    }
}

fn phases(phases: &[Phase]) {
    let Some(first) = phases.first() else { return };
    let times: Vec<_> = first.times.iter().map(|(what, _)| format!("{what}, p50 / p99 / max")).collect();
    crate::terminal::say(&format!(
        "| at once | done | seconds | {} | CPU s | peak MiB | writes each |",
        times.join(" | ")
    ));
    crate::terminal::say(&format!("|---|---|---|{}---|---|---|---|", "---|".repeat(first.times.len())));
    for it in phases {
        let times: Vec<_> = it.times.iter().map(|(_, times)| times.text()).collect();
        crate::terminal::say(&format!(
            "| {} | {} | {:.2} | {} | {:.2}; {}, harness {:.1} | {:.1} | {:.2} |",
            it.what,
            it.outcome(),
            it.wall,
            times.join(" | "),
            it.used.operator.cpu,
            it.used.servers.text(),
            it.used.harness,
            it.used.operator.peak,
            it.writes()
        ));
    }
    crate::terminal::say("\nRequests for each object:\n");
    for it in phases {
        crate::terminal::say(&format!("- {}: {}", it.what, list(&it.requests, it.objects)));
    }
    crate::terminal::say("");
}

/// How the first stands beside the others: seconds until everything was done, phase by phase.
pub(super) fn compare(reports: &[CandidateReport]) {
    let Some((ours, peers)) = reports.split_first() else { return };
    for peer in peers {
        crate::terminal::say(&format!(
            "\n### {} beside {}, seconds until all was done\n",
            ours.name, peer.name
        ));
        let pairs =
            ours.clusters.iter().zip(&peer.clusters).chain(ours.operations.iter().zip(&peer.operations));
        for (a, b) in pairs {
            let unfinished = if b.done < b.objects {
                format!(" ({} of {} done)", b.done, b.objects)
            } else {
                String::new()
            };
            let (what, ratio) = (&a.what, b.wall / a.wall.max(0.001));
            crate::terminal::say(&format!(
                "- {what}: {:.2} and {:.2}{unfinished}: {ratio:.0} times",
                a.wall, b.wall
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_without_leases_and_events() {
        let kinds = ["create jobs", "update leases", "create events", "patch clusters/status", "get secrets"];
        let requests = kinds.iter().map(|kind| ((*kind).to_owned(), 20)).collect();
        let phase = Phase {
            what: String::new(),
            objects: 10,
            done: 10,
            ends: 0,
            wall: 1.0,
            created: 1.0,
            times: vec![("", Times::new([0.5]))],
            requests,
            used: Used::default(),
        };
        assert!((phase.writes() - 4.0).abs() < 1e-9);
        assert!(list(&phase.requests, 10).starts_with("2.00 create events, 2.00 create jobs"));
        assert_eq!(list(&Counts::new(), 10), "none");
    }
}
