//! Measures in the lab, in one run, how a master is added and how one that died a moment ago is replaced.

use std::path::Path;

use anyhow::Result;

use super::lab::{BenchLab, median};

const CLUSTER: &str = "bench";
const VERSION: &str = "v1.36.3";
/// A replacement may take this many times an addition.
const MOST_OF_ADDITION: f64 = 2.0;

/// Seconds of both changes of one cluster.
struct MasterTimes {
    addition: f64,
    replacement: f64,
}

/// Measures `runs` times; the medians are printed last.
pub(super) fn run(root: &Path, runs: usize) -> Result<()> {
    let lab = BenchLab::new(root);
    let measured = changes(&lab, runs);
    lab.down()?;
    measured
}

fn changes(lab: &BenchLab, runs: usize) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..runs.max(1) {
        let times = times(lab)?;
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
fn times(lab: &BenchLab) -> Result<MasterTimes> {
    let addresses = lab.hosts(5)?;
    let (masters, worker) = (addresses[..2].join(","), &addresses[2]);
    lab.kubeon(&["create", CLUSTER, VERSION, "-m", &masters, "-w", worker])?;
    let addition = lab.own().until_ready(&["addon", CLUSTER, "-m", &addresses[3]])?;
    lab.kill("h1")?;
    let replace = ["replace", CLUSTER, "h1", &addresses[4], "--yes"];
    let replacement = lab.own().until_ready(&replace)?;
    lab.kubeon(&["destroy", CLUSTER, "--yes"])?;
    Ok(MasterTimes { addition: addition.end, replacement: replacement.end })
}
