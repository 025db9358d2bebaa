//! Measures the time of a plan by cluster size: `cargo bench -p kubeon-plan`. A plan for 5,000 hosts must
//! take at most 1 s, and one that changes their version, with all drains, at most 2 s.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark prints")]

#[path = "../tests/integration/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use mimalloc::MiMalloc;

use kubeon_plan::{Intent, plan, sim, validate};

/// The same allocator as in the program `kubeon`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The number of hosts for which the limits hold.
const MOST_HOSTS: usize = 5000;
const PLAN_LIMIT: Duration = Duration::from_secs(1);
const UPGRADE_LIMIT: Duration = Duration::from_secs(2);

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
        println!(
            "{hosts:>5} hosts: bare {bare:>9.2?} for {} steps; made {made_in:>9.2?} for {} steps; another minor version \
             {upgrade_in:>9.2?} for {} steps",
            made.steps.len(),
            again.steps.len(),
            upgrade.steps.len()
        );
        if hosts == MOST_HOSTS {
            assert!(bare <= PLAN_LIMIT && made_in <= PLAN_LIMIT, "a plan takes longer than {PLAN_LIMIT:?}");
            assert!(
                upgrade_in <= UPGRADE_LIMIT,
                "the plan of an upgrade takes longer than {UPGRADE_LIMIT:?}"
            );
        }
    }
}

/// The same cluster with the next minor version.
fn newer(hosts: usize) -> Intent {
    let intent = support::named(3, hosts - 3);
    let mut spec = (*intent.spec).clone();
    spec.version = "v1.37.2".parse().unwrap();
    let known = [spec.version];
    Intent { spec: validate(spec, &known).unwrap().0, artifacts: sim::artifacts("v1.37.2"), ..intent }
}
