//! Measures the time of a plan by cluster size: `cargo bench -p kubeon-plan`. A plan for 5,000 hosts must
//! take at most 1 s.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark prints")]

#[path = "../tests/integration/support/mod.rs"]
mod support;

use std::time::Instant;

use mimalloc::MiMalloc;

use kubeon_plan::{plan, sim};

/// The same allocator as in the program `kubeon`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    for hosts in [5, 50, 500, 5000] {
        let (intent, mut snapshot) = (support::intent(3, hosts - 3), support::bare_hosts(hosts));
        let start = Instant::now();
        let made = plan(&intent, &snapshot).unwrap();
        let bare = start.elapsed();
        sim::apply(&made, usize::MAX, &mut snapshot);
        let start = Instant::now();
        let again = plan(&intent, &snapshot).unwrap();
        println!(
            "{hosts:>5} hosts: bare {bare:>9.2?} for {} steps; made {:>9.2?} for {} steps",
            made.steps.len(),
            start.elapsed(),
            again.steps.len()
        );
    }
}
