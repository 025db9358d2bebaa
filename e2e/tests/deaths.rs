//! The program or a host dies while a cluster is made. The same command goes on.

#![allow(clippy::print_stdout, reason = "what was measured is for people")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::Lab;

fn create_killed_after(lab: &Lab, seconds: f64) -> Result<()> {
    let mut child = lab.spawn(&lab.create("demo", 1))?;
    std::thread::sleep(Duration::from_secs_f64(seconds));
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn comes_up(lab: &Lab) -> Result<()> {
    lab.must(&lab.create("demo", 1))?;
    lab.settled("demo", Duration::from_secs(60))?;
    lab.must(&["destroy", "demo", "--yes"]).map(|_| ())
}

#[test]
fn the_program_killed_at_several_moments() -> Result<()> {
    let lab = Lab::up("e2e-kill", 2)?;
    for seconds in [1.0, 3.0, 6.0, 10.0] {
        create_killed_after(&lab, seconds)?;
    }
    comes_up(&lab)
}

/// `create` ends by itself and names the lost host; once it is back, the same command goes on.
fn host_lost(deed: &str, undo: &str, name: &str, host: usize) -> Result<()> {
    let lab = Lab::up(name, 3)?;
    let create = lab.create("demo", 1);
    let lost = format!("h{host}");
    std::thread::scope(|scope| {
        let making = scope.spawn(|| lab.kubeon(&create));
        std::thread::sleep(Duration::from_secs(4));
        lab.host(deed, &lost)?;
        let start = Instant::now();
        let answer = making.join().map_err(|_| anyhow::anyhow!("the test's own thread died"))??;
        ensure!(answer.code == 1, "create failed on the way: {answer:?}");
        ensure!(answer.err.contains(&lab.addresses[host - 1]), "the host is named: {}", answer.err);
        ensure!(start.elapsed() < Duration::from_secs(120), "create ended after {:?}", start.elapsed());
        println!("  {deed} {lost}: create ended after {:.1} s", start.elapsed().as_secs_f64());
        Ok(())
    })?;
    lab.host(undo, &lost)?;
    comes_up(&lab)
}

#[test]
fn a_worker_without_power() -> Result<()> {
    host_lost("kill", "start", "e2e-power", 2)
}

#[test]
fn a_master_without_network() -> Result<()> {
    host_lost("cut", "heal", "e2e-cut", 1)
}
