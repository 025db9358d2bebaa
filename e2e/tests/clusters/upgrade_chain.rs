//! A cluster of three masters and two workers changes over several minor versions with one command, while pods serve.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab};
use kubeon_e2e::probe;
use kubeon_e2e::running::Running;

use crate::upgrade::{serve, upgraded};
use crate::versions::newest_patches;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "builds four versions of Kubernetes: ./test long"]
fn soak_an_upgrade_over_three_minor_versions_serves_all_the_time() -> Result<()> {
    let lab = TestLab::up("e2e-upgrade-chain", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let versions = newest_patches(&lab)?;
    for version in &versions {
        lab.must(&["bundle", "build", version])?;
    }
    let oldest = versions.first().context("the catalogue is empty")?;
    let (masters, workers) = (hosts[..3].join(","), hosts[3..].join(","));
    lab.must(&["create", cluster, oldest, "-m", &masters, "-w", &workers])?;
    lab.must(&["use", cluster])?;
    serve(&lab)?;
    probe::start(&lab, "h4")?;

    let begin = Instant::now();
    let second = versions.get(2).context("the catalogue has too few versions")?;
    let mut killed = Running::start(&lab, &["upgrade", cluster, NEXT])?;
    let begun = format!("every master runs the control plane of {second}");
    killed.until("the second hop", 20 * MINUTE, |run| run.output().contains(&begun))?;
    killed.kill()?;
    let other = lab.kubeon(&["upgrade", cluster, &versions[1]])?;
    ensure!(other.code == 2 && other.err.contains("is not complete"), "{other:?}");
    let done = lab.kubeon(&["upgrade", cluster, NEXT])?;
    ensure!(done.code == 0, "{done:?}");
    let between = versions.iter().skip(2).take_while(|version| *version != NEXT);
    let way: Vec<String> = between.map(|version| format!("{version}, then ")).collect();
    ensure!(!way.is_empty() && done.err.contains(&format!("the way is {}{NEXT}", way.concat())), "{done:?}");
    println!("  the upgrade of 3 + 2 from {oldest} to {NEXT} took {:.0} s", begin.elapsed().as_secs_f64());

    let (total, failed) = probe::counts(&lab, "h4")?;
    println!("  {failed} of {total} requests failed on h4");
    ensure!(total > 500 && failed == 0, "{}", probe::log(&lab, "h4")?);
    upgraded(&lab)?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}
