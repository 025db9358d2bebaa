//! Measures the time of a plan by cluster size: `cargo bench -p kubeon-plan`. The goal of a plan for
//! 5,000 hosts is 1 s, and of one that changes their version, with all drains, 2 s.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark prints")]

#[path = "../tests/integration/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use mimalloc::MiMalloc;

use kubeon_plan::{Intent, lint, plan, precheck, sim, validate};

/// The same allocator as in the program `kubeon`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The number of hosts for which the goals hold.
const MOST_HOSTS: usize = 5000;
const PLAN_GOAL: Duration = Duration::from_secs(1);
const UPGRADE_GOAL: Duration = Duration::from_secs(2);

fn main() {
    for hosts in [5, 50, 500, MOST_HOSTS] {
        let (intent, mut snapshot) = (support::intent(3, hosts - 3), support::bare_hosts(hosts));
        let start = Instant::now();
        let made = plan(&intent, &snapshot).unwrap();
        let bare = start.elapsed();
        sim::apply(&made, usize::MAX, &mut snapshot);
        let start = Instant::now();
        let again = plan(&intent, &snapshot).unwrap();
        let made_in = start.elapsed();
        let (newer, old) = (newer(hosts), support::created(3, hosts - 3, &[Some(true); 3]));
        let start = Instant::now();
        let upgrade = plan(&newer, &old).unwrap();
        let upgrade_in = start.elapsed();
        let addition = addition(hosts);
        println!(
            "{hosts:>5} hosts: bare {bare:>9.2?} for {} steps; made {made_in:>9.2?} for {} steps; another minor version \
             {upgrade_in:>9.2?} for {} steps; one more worker {addition:>9.2?}",
            made.steps.len(),
            again.steps.len(),
            upgrade.steps.len()
        );
        if hosts == MOST_HOSTS {
            verdict("a plan", bare.max(made_in), PLAN_GOAL);
            verdict("the plan of an upgrade", upgrade_in, UPGRADE_GOAL);
        }
    }
}

fn verdict(what: &str, time: Duration, goal: Duration) {
    let verdict = if time <= goal { "kept" } else { "missed" };
    println!("{what} for {MOST_HOSTS} hosts: {time:.2?} (goal ≤ {goal:?}: {verdict})");
}

/// The same cluster with the next minor version.
fn newer(hosts: usize) -> Intent {
    let intent = support::named(3, hosts - 3);
    let mut spec = (*intent.spec).clone();
    spec.version = "v1.37.2".parse().unwrap();
    let known = [spec.version];
    Intent { spec: validate(spec, &known).unwrap().0, artifacts: sim::artifacts("v1.37.2"), ..intent }
}

/// The time until a worker that joins has its plan: the checks, the plan and its rules, with the masters and this worker observed.
fn addition(hosts: usize) -> Duration {
    let mut intent = support::named(3, hosts - 3);
    let joining = intent.spec.workers.last().unwrap().address;
    intent.limit_to(&[joining].into());
    let mut snapshot = support::created(3, hosts - 3, &[Some(true); 3]);
    snapshot.hosts.retain(|address, _| !intent.unconcerned.contains(address));
    let bare = support::bare_hosts(hosts).hosts.remove(&joining).unwrap();
    snapshot.hosts.insert(joining, bare);
    let start = Instant::now();
    let targets = precheck::connection_targets(&intent, &[]);
    let report = precheck(&intent, &snapshot);
    let made = plan(&intent, &snapshot).unwrap();
    let findings = lint(&made, &snapshot);
    let time = start.elapsed();
    assert!(report.ok && targets.len() == 4, "the checks fail");
    assert!(findings.is_empty() && made.steps.iter().any(|step| step.host == joining), "nothing is planned");
    time
}
