//! Measures `kubeon addon` of one worker in the lab, at several numbers of declared nodes, and in the same run its lower bound (a
//! script that brings the same parts to the host and starts the same processes). Most of the nodes are stand-ins.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;

use super::lab::{BenchLab, median};
use super::stand_ins::{StandIns, undeclare};

const CLUSTER: &str = "bench";
const VERSION: &str = "v1.36.3";
/// Longer than the benchmark: nodes count as Ready although nobody reports them.
const NO_HEARTBEATS: &str = "extraArgs.kubeControllerManager.node-monitor-grace-period=24h";
/// The nodes with hosts before the addition: a master and a worker.
const REAL: u32 = 2;
/// At each number of nodes, an addition may take this much more or less than at the first.
const MOST_CHANGE: f64 = 0.1;
/// An addition may take this many times its lower bound.
const MOST_OF_FLOOR: f64 = 1.3;

/// The arguments of the benchmark.
#[derive(Args)]
pub(crate) struct ScaleArguments {
    /// Number of additions at each number of nodes, and again at the first one; the medians are printed last.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Numbers of nodes that the cluster declares before the addition.
    #[arg(long, value_delimiter = ',', default_value = "5,50,500")]
    declared: Vec<u32>,
    /// The stand-ins renew no Leases, and the cluster waits for none: shows how much of the time is due to heartbeats.
    #[arg(long)]
    silent: bool,
    /// All hosts and `kubeon` share all processors, instead of one half for the master and one for the rest.
    #[arg(long)]
    shared: bool,
    /// Print what every addition prints, with the seconds since its begin.
    #[arg(long)]
    lines: bool,
}

/// Seconds of an addition, measured on the same machine within minutes.
struct AdditionTimes {
    /// Until the node is Ready.
    ready: f64,
    /// Until the command has ended.
    end: f64,
    /// The lower bound of `ready`.
    floor: f64,
}

/// Measures `runs` times at each number of nodes; the medians are printed last.
pub(super) fn run(root: &Path, arguments: &ScaleArguments) -> Result<()> {
    let mut lab = BenchLab::new(root);
    let measured = additions(&mut lab, arguments);
    // The state must not stay: the next benchmark makes another cluster with this name.
    let destroyed =
        undeclare(lab.home(), CLUSTER).and_then(|()| lab.kubeon(&["destroy", CLUSTER, "--yes"]).map(drop));
    lab.down()?;
    measured.and(destroyed)
}

fn additions(lab: &mut BenchLab, arguments: &ScaleArguments) -> Result<()> {
    let addresses = lab.hosts(3)?;
    if !arguments.shared {
        lab.separate(&["h1"], &["h2", "h3"])?;
    }
    let (nodes, joining) = addresses.split_at(2);
    lab.kubeon(&["create", CLUSTER, VERSION, "-m", &nodes[0], "-w", &nodes[1]])?;
    if arguments.silent {
        lab.kubeon(&["config", "set", CLUSTER, NO_HEARTBEATS])?;
    }
    let stand_ins = StandIns::of(lab.home(), CLUSTER, !arguments.silent)?;
    let mut declared = arguments.declared.clone();
    declared.sort_unstable();
    let measure = |count: u32| -> Result<Vec<AdditionTimes>> {
        let mut all = Vec::new();
        for _ in 0..arguments.runs.max(1) {
            let times = addition(lab, &nodes[..1], joining, arguments.lines)?;
            crate::terminal::say(&format!(
                "{count} nodes: kubeon addon {:.2} s, {:.2} s until its end, floor {:.2} s",
                times.ready, times.end, times.floor
            ));
            all.push(times);
        }
        Ok(all)
    };
    let mut measured = Vec::new();
    for count in declared {
        stand_ins.reach(count.saturating_sub(REAL), lab, "h2")?;
        measured.push((count, measure(count)?));
    }
    // A machine becomes slower and faster. The other numbers lie between two measurements of the first one.
    if let [(first, times), _, ..] = &mut measured[..] {
        stand_ins.reduce(first.saturating_sub(REAL), lab, "h2")?;
        times.extend(measure(*first)?);
    }
    let medians: Vec<_> = measured.iter().map(|(count, all)| (*count, medians_of(all))).collect();
    print(&medians);
    crate::terminal::say(&stand_ins.renewals()?);
    Ok(())
}

fn medians_of(all: &[AdditionTimes]) -> AdditionTimes {
    let median_of = |pick: fn(&AdditionTimes) -> f64| median(all.iter().map(pick).collect());
    AdditionTimes {
        ready: median_of(|times| times.ready),
        end: median_of(|times| times.end),
        floor: median_of(|times| times.floor),
    }
}

/// Adds a worker, measures the lower bound on its host, and removes it.
fn addition(
    lab: &BenchLab,
    masters: &[String],
    joining: &[String],
    print_lines: bool,
) -> Result<AdditionTimes> {
    let worker = joining.first().context("no host is left to join")?;
    let times = lab.own().until_ready(&["addon", CLUSTER, "-w", worker])?;
    if print_lines {
        crate::terminal::say(&times.output);
    }
    let bundle = lab.bundle(VERSION)?;
    let floor = lab.script("addon-floor", masters, joining, &[&bundle])?;
    lab.kubeon(&["delon", CLUSTER, worker, "--yes"])?;
    Ok(AdditionTimes { ready: times.ready, end: times.end, floor })
}

fn print(medians: &[(u32, AdditionTimes)]) {
    let Some((_, first)) = medians.first() else { return };
    for (count, times) in medians {
        let (of_first, of_floor) = (times.end / first.end, times.ready / times.floor);
        let verdict = |kept: bool| if kept { "kept" } else { "missed" };
        crate::terminal::say(&format!(
            "{count} nodes: medians {:.2} s, {:.2} s until its end, floor {:.2} s: {of_first:.2} of the time at the first number \
             (goal 1 ± {MOST_CHANGE}: {}), {of_floor:.2} of the floor (goal ≤ {MOST_OF_FLOOR}: {})",
            times.ready,
            times.end,
            times.floor,
            verdict((of_first - 1.0).abs() <= MOST_CHANGE),
            verdict(of_floor <= MOST_OF_FLOOR)
        ));
    }
}
