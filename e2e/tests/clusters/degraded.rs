//! A cluster with three masters is operated while the first one is dead.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::eventually;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_worker_joins_and_leaves_while_the_first_master_is_dead() -> Result<()> {
    let lab = TestLab::up("e2e-degraded", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let masters = ["-m", &hosts[0], "-m", &hosts[1], "-m", &hosts[2], "-w", &hosts[3]];
    lab.must(&[&["create", cluster, VERSION], &masters[..]].concat())?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.host("kill", "h1")?;

    let plan = lab.must(&["plan", cluster])?;
    ensure!(plan.contains("nothing to do"), "no record was lost with the first master: {plan}");
    ensure!(plan.contains("waits for h1: everything on it"), "{plan}");

    lab.must(&["addon", cluster, "-w", &hosts[4]])?;
    let ready = || -> Result<()> {
        let node = lab.kubectl(cluster, &["get", "node", "h5"])?;
        ensure!(node.contains(" Ready "), "{node}");
        Ok(())
    };
    eventually("the new node is Ready", MINUTE, ready)?;

    lab.on("h2", "systemctl stop kube-scheduler")?;
    lab.must(&["create", cluster])?;
    lab.on("h2", "systemctl is-active kube-scheduler")?;
    lab.must(&["delon", cluster, "name=h5", "--yes"])?;
    lab.is_bare("h5")?;

    lab.host("start", "h1")?;
    eventually("the first master is repaired", MINUTE * 2, || lab.must(&["create", cluster]).map(drop))?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let plan = lab.must(&["plan", cluster])?;
    ensure!(!plan.contains("waits for"), "{plan}");
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}
