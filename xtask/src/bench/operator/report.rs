//! The tables of results.

use super::audit::Counts;
use super::floor::Floor;
use super::statistics::{Times, many};
use super::usage::{ProcessUsage, Used};

/// The result of a phase.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) title: String,
    pub(super) objects: usize,
    pub(super) done: usize,
    /// The number of unexpected ends of the operator.
    pub(super) ends: usize,
    /// Seconds from the first request of the harness until the last object was done.
    pub(super) wall: f64,
    /// Seconds that the harness needed to create the objects.
    pub(super) created: f64,
    pub(super) times: Vec<(&'static str, Times)>,
    pub(super) requests: Counts,
    pub(super) used: Used,
}

/// The result of an idle phase.
#[derive(Debug)]
pub(super) struct Idle {
    pub(super) clusters: usize,
    pub(super) seconds: f64,
    pub(super) leases: usize,
    /// The number of unexpected ends of the operator.
    pub(super) ends: usize,
    pub(super) requests: Counts,
    pub(super) used: ProcessUsage,
}

/// The result of killing and starting the operator.
#[derive(Debug)]
pub(super) struct Restart {
    pub(super) clusters: usize,
    /// Seconds from the start until it had handled the missed objects; none if not in time.
    pub(super) total: Option<f64>,
    /// Seconds from the start until it held the lease; none if there is no lease.
    pub(super) lease: Option<f64>,
    /// Seconds from the start until its last request, without those for the lease.
    pub(super) last: Option<f64>,
    pub(super) requests: Counts,
    /// Writes to objects that had not changed.
    pub(super) unexpected: Counts,
    pub(super) used: ProcessUsage,
}

/// The results of one candidate.
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
    /// The lower bound of the API server.
    pub(super) floor: Option<Floor>,
}

impl Phase {
    /// A summary in one line.
    pub(super) fn line(&self) -> String {
        let times: Vec<_> =
            self.times.iter().map(|(name, times)| format!("{name} {}", times.text())).collect();
        let (done, wall, created) = (self.outcome(), self.wall, self.created);
        let load = load();
        format!(
            "  load {load}; {}: {done} done in {wall:.2} s, created in {created:.2} s; {}; CPU s: operator {:.2}, {}, harness {:.1}",
            self.title,
            times.join("; "),
            self.used.operator.cpu,
            self.used.servers.text(),
            self.used.harness
        )
    }

    /// `400`, `12 of 400`, `400, unexpected ends: 1`.
    fn outcome(&self) -> String {
        let done = match self.done {
            all if all == self.objects => all.to_string(),
            some => format!("{some} of {}", self.objects),
        };
        if self.ends == 0 { done } else { format!("{done}, unexpected ends: {}", self.ends) }
    }

    fn writes(&self) -> f64 {
        let writes =
            self.requests.iter().filter(|(kind, _)| is_write(kind)).map(|(_, count)| count).sum::<usize>();
        per(writes, self.objects)
    }
}

/// The load average of the machine in the last minute, including the benchmark.
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
        if self.ends == 0 { String::new() } else { format!(", unexpected ends: {}", self.ends) }
    }

    pub(super) fn line(&self) -> String {
        let (all, cpu) = (sum(&self.requests), self.used.cpu * 1000.0 / self.seconds);
        let (clusters, seconds, leases, ended) = (self.clusters, self.seconds, self.leases, self.ended());
        format!(
            "  idle {seconds:.0} s at {clusters}: {all} requests, {leases} for the lease, {cpu:.1} mCPU{ended}"
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
            "  killed and started at {}: lease after {}, converged {} later ({} in all), last request after {}, {:.2} CPU s, {:.0} MiB; writes to other objects: {}",
            many(self.clusters, "cluster"),
            text(self.lease),
            text(after),
            text(self.total),
            text(self.last),
            self.used.cpu,
            self.used.peak,
            list(&self.unexpected, 1)
        )
    }
}

fn sum(counts: &Counts) -> usize {
    counts.values().sum()
}

/// `3.0 get secrets, 1.0 patch clusters/status`, sorted by number.
fn list(counts: &Counts, objects: usize) -> String {
    let mut pairs: Vec<_> = counts.iter().collect();
    pairs.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let entries = pairs.iter().map(|(kind, count)| match objects {
        1 => format!("{count} {kind}"),
        _ => format!("{:.2} {kind}", per(**count, objects)),
    });
    let entries: Vec<_> = entries.collect();
    if entries.is_empty() { "none".to_owned() } else { entries.join(", ") }
}

impl CandidateReport {
    pub(super) fn new(name: &str, fsync: bool) -> Self {
        let (clusters, idle, operations) = (Vec::new(), Vec::new(), Vec::new());
        let name = name.to_owned();
        Self { name, fsync, first: 0.0, clusters, idle, operations, restart: None, floor: None }
    }

    /// Prints all results as Markdown.
    pub(super) fn print(&self) {
        let disk = if self.fsync { "with fsync" } else { "in memory" };
        crate::terminal::say(&format!(
            "\n### {}, etcd {disk}, first cluster after {:.2} s\n",
            self.name, self.first
        ));
        phases(&self.clusters);
        phases(&self.operations);
        crate::terminal::say(
            "| idle at | seconds | requests | for the lease | mCPU | MiB |\n|---|---|---|---|---|---|",
        );
        for idle in &self.idle {
            crate::terminal::say(&format!(
                "| {} | {:.0} | {} | {} | {:.1} | {:.1} |",
                many(idle.clusters, "cluster") + &idle.ended(),
                idle.seconds,
                list(&idle.requests, 1),
                idle.leases,
                idle.used.cpu * 1000.0 / idle.seconds,
                idle.used.resident
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
    let times: Vec<_> = first.times.iter().map(|(name, _)| format!("{name}, p50 / p99 / max")).collect();
    crate::terminal::say(&format!(
        "| at once | done | seconds | {} | CPU s | peak MiB | writes each |",
        times.join(" | ")
    ));
    crate::terminal::say(&format!("|---|---|---|{}---|---|---|---|", "---|".repeat(first.times.len())));
    for phase in phases {
        let times: Vec<_> = phase.times.iter().map(|(_, times)| times.text()).collect();
        crate::terminal::say(&format!(
            "| {} | {} | {:.2} | {} | {:.2}; {}, harness {:.1} | {:.1} | {:.2} |",
            phase.title,
            phase.outcome(),
            phase.wall,
            times.join(" | "),
            phase.used.operator.cpu,
            phase.used.servers.text(),
            phase.used.harness,
            phase.used.operator.peak,
            phase.writes()
        ));
    }
    crate::terminal::say("\nRequests for each object:\n");
    for phase in phases {
        crate::terminal::say(&format!("- {}: {}", phase.title, list(&phase.requests, phase.objects)));
    }
    crate::terminal::say("");
}

/// Compares the first candidate with the others: seconds until all objects were done, phase by phase.
pub(super) fn compare(reports: &[CandidateReport]) {
    let Some((first, peers)) = reports.split_first() else { return };
    for peer in peers {
        crate::terminal::say(&format!(
            "\n### {} and {}, seconds until all objects were done\n",
            first.name, peer.name
        ));
        let pairs =
            first.clusters.iter().zip(&peer.clusters).chain(first.operations.iter().zip(&peer.operations));
        for (a, b) in pairs {
            let unfinished = if b.done < b.objects {
                format!(" ({} of {} done)", b.done, b.objects)
            } else {
                String::new()
            };
            let (title, ratio) = (&a.title, b.wall / a.wall.max(0.001));
            crate::terminal::say(&format!(
                "- {title}: {:.2} and {:.2}{unfinished}: {ratio:.0} times",
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
            title: String::new(),
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
