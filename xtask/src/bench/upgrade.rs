//! Measures `kubeon upgrade` in the lab and, in the same run, its lower bound (a script that makes the restarts which it needs) and its
//! peer (`kubeadm upgrade` of a cluster that kubeadm made).

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::lab::{BenchLab, median};

const FROM: &str = "v1.36.3";
const TO: &str = "v1.37.2";
const MASTERS: usize = 3;
const WORKERS: usize = 2;

/// Seconds of an upgrade, measured on the same machine within minutes.
struct UpgradeTimes {
    upgrade: f64,
    floor: f64,
    kubeadm: f64,
}

/// Measures `runs` times; the medians are printed last.
pub(super) fn run(root: &Path, runs: usize) -> Result<()> {
    let lab = BenchLab::new(root);
    let measured = upgrades(&lab, runs);
    lab.down()?;
    measured
}

fn upgrades(lab: &BenchLab, runs: usize) -> Result<()> {
    let bundles = [lab.bundle(FROM)?, lab.bundle(TO)?];
    let mut all = Vec::new();
    for _ in 0..runs.max(1) {
        let times = times(lab, &bundles)?;
        crate::terminal::say(&format!(
            "{MASTERS} + {WORKERS}: kubeon upgrade {:.1} s, floor {:.1} s, kubeadm {:.1} s",
            times.upgrade, times.floor, times.kubeadm
        ));
        all.push(times);
    }
    let median_of = |pick: fn(&UpgradeTimes) -> f64| median(all.iter().map(pick).collect());
    let (upgrade, floor, kubeadm) =
        (median_of(|times| times.upgrade), median_of(|times| times.floor), median_of(|times| times.kubeadm));
    crate::terminal::say(&format!(
        "{MASTERS} + {WORKERS}: medians {upgrade:.1} s, {floor:.1} s, {kubeadm:.1} s: {:.2} of the floor, {:.2} of kubeadm",
        upgrade / floor,
        upgrade / kubeadm
    ));
    Ok(())
}

/// Measures an upgrade, the lower bound on the same hosts, and kubeadm's on new bare hosts.
fn times(lab: &BenchLab, bundles: &[String; 2]) -> Result<UpgradeTimes> {
    let addresses = lab.hosts(MASTERS + WORKERS)?;
    let (masters, workers) = addresses.split_at(MASTERS);
    lab.kubeon(&["create", "bench", FROM, "-m", &masters.join(","), "-w", &workers.join(",")])?;
    let begin = Instant::now();
    lab.kubeon(&["upgrade", "bench", TO])?;
    let upgrade = begin.elapsed().as_secs_f64();
    let floor = lab.script("upgrade-floor", masters, workers, &[])?;
    // kubeadm's takes much longer, and may fail.
    crate::terminal::say(&format!("  kubeon upgrade {upgrade:.1} s, floor {floor:.1} s"));
    lab.kubeon(&["destroy", "bench", "--yes"])?;
    let addresses = lab.hosts(addresses.len())?;
    let (masters, workers) = addresses.split_at(MASTERS);
    let [old, new] = bundles;
    lab.script("kubeadm", masters, workers, &[old, FROM, "upgradable"])?;
    let kubeadm = lab.script("kubeadm-upgrade", masters, workers, &[new, TO])?;
    Ok(UpgradeTimes { upgrade, floor, kubeadm })
}
