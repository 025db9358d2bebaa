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
    without_a_bundle_on_the_way(&lab, &versions[2])?;
    serve(&lab)?;
    probe::start(&lab, "h4")?;
    probe::start_service(&lab, "h4", "web")?;

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

    println!("  {}", probe::none_failed(&lab, "h4")?);
    println!("  {}", probe::none_to_service_failed(&lab, "h4")?);
    upgraded(&lab)?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// Without the bundle of a version on the way, nothing changes.
fn without_a_bundle_on_the_way(lab: &TestLab, middle: &str) -> Result<()> {
    let environment = lab.environment();
    let cache = environment.iter().find(|(name, _)| *name == "XDG_CACHE_HOME").context("no cache")?;
    let bundles = std::path::Path::new(&cache.1).join("kubeon/bundles");
    let others = lab.file("bundles-but-one");
    std::fs::create_dir_all(&others)?;
    for entry in std::fs::read_dir(bundles)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(middle) {
            std::os::unix::fs::symlink(entry.path(), others.join(entry.file_name()))?;
        }
    }
    let others = others.display().to_string();
    let refused = lab.kubeon_with(&["upgrade", lab.name(), NEXT], &[("KUBEON_BUNDLES", &others)])?;
    ensure!(refused.code == 2 && refused.err.contains(&format!("no bundle for {middle}")), "{refused:?}");
    ensure!(lab.plan(lab.name())?.is_empty(), "the refused upgrade changed nothing");
    Ok(())
}
