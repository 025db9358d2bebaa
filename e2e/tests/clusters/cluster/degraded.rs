//! The first of three masters is dead: a worker leaves and joins, and drift is repaired.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;

const MINUTE: Duration = Duration::from_secs(60);

/// Requires the masters h1, which is dead, h2 and h3, and the workers h4 and h5.
pub(super) fn operate(lab: &TestLab, cluster: &str) -> Result<()> {
    let plan = lab.must(&["plan", cluster])?;
    ensure!(plan.contains("nothing to do"), "no record was lost with the first master: {plan}");
    ensure!(plan.contains("waits for h1: everything on it"), "{plan}");

    lab.must(&["delon", cluster, "name=h5", "--yes"])?;
    lab.is_bare("h5")?;
    let start = Instant::now();
    lab.must(&["addon", cluster, "-w", &lab.addresses[4]])?;
    super::print_time("a worker added while h1 is dead", start);
    let ready = || -> Result<()> {
        let node = lab.kubectl(cluster, &["get", "node", "h5"])?;
        ensure!(node.contains(" Ready "), "{node}");
        Ok(())
    };
    eventually("the new node is Ready", MINUTE, ready)?;

    lab.on("h2", "systemctl stop kube-scheduler")?;
    lab.must(&["create", cluster])?;
    lab.on("h2", "systemctl is-active kube-scheduler").map(drop)
}

/// Requires that h1 runs again.
pub(super) fn repair(lab: &TestLab, cluster: &str) -> Result<()> {
    eventually("the first master is repaired", MINUTE * 2, || lab.must(&["create", cluster]).map(drop))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let plan = lab.must(&["plan", cluster])?;
    ensure!(!plan.contains("waits for"), "{plan}");
    Ok(())
}
