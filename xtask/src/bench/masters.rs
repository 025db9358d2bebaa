//! Measures in the lab, in one run, how a master is added and how one that died is replaced.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::lab::{BenchLab, median};

const CLUSTER: &str = "bench";
const VERSION: &str = "v1.36.3";
/// A replacement may take this many times an addition.
const MOST_OF_ADDITION: f64 = 2.0;

/// The arguments of the benchmark.
#[derive(Args)]
pub(crate) struct MastersArguments {
    /// Number of runs; the medians are printed last.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Seconds from the death of a master to its replacement; without any, the cluster does not know yet that its node is lost.
    #[arg(long, default_value_t = 0)]
    dead_for: u64,
    /// Print what every command prints, with the seconds since its begin.
    #[arg(long)]
    lines: bool,
}

/// Seconds of both changes of one cluster.
struct MasterTimes {
    addition: f64,
    replacement: f64,
}

/// Measures as often as the arguments say; the medians are printed last.
pub(super) fn run(root: &Path, arguments: &MastersArguments) -> Result<()> {
    let lab = BenchLab::new(root);
    let measured = changes(&lab, arguments);
    lab.down()?;
    measured
}

fn changes(lab: &BenchLab, arguments: &MastersArguments) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..arguments.runs.max(1) {
        let times = times(lab, arguments)?;
        let ratio = times.replacement / times.addition;
        crate::terminal::say(&format!(
            "a master added {:.1} s, a dead one replaced {:.1} s: {ratio:.2}",
            times.addition, times.replacement
        ));
        all.push(times);
    }
    let median_of = |pick: fn(&MasterTimes) -> f64| median(all.iter().map(pick).collect());
    let (addition, replacement) = (median_of(|times| times.addition), median_of(|times| times.replacement));
    let ratio = replacement / addition;
    let verdict = if ratio <= MOST_OF_ADDITION { "kept" } else { "missed" };
    crate::terminal::say(&format!(
        "medians {addition:.1} s, {replacement:.1} s: {ratio:.2} (goal ≤ {MOST_OF_ADDITION}: {verdict})"
    ));
    Ok(())
}

/// The third master joins a cluster; then the first one dies, and another host replaces it.
fn times(lab: &BenchLab, arguments: &MastersArguments) -> Result<MasterTimes> {
    let addresses = lab.hosts(5)?;
    let (masters, worker) = (addresses[..2].join(","), &addresses[2]);
    lab.kubeon(&["create", CLUSTER, VERSION, "-m", &masters, "-w", worker])?;
    let addition = lab.own().until_ready(&["addon", CLUSTER, "-m", &addresses[3]])?;
    lab.kill("h1")?;
    std::thread::sleep(Duration::from_secs(arguments.dead_for));
    let replace = ["replace", CLUSTER, "h1", &addresses[4], "--yes"];
    let replacement = lab.own().until_ready(&replace)?;
    for times in [&addition, &replacement].into_iter().filter(|_| arguments.lines) {
        crate::terminal::say(&times.output);
    }
    lab.kubeon(&["destroy", CLUSTER, "--yes"])?;
    Ok(MasterTimes { addition: addition.end, replacement: replacement.end })
}
