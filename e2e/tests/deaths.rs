//! What dies while a cluster is made: the program, a host's power, its network. The same command goes on.

use std::time::Duration;

use anyhow::Result;
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

fn host_lost(deed: &str, undo: &str, name: &str, host: &str) -> Result<()> {
    let lab = Lab::up(name, 2)?;
    let mut child = lab.spawn(&lab.create("demo", 1))?;
    std::thread::sleep(Duration::from_secs(4));
    lab.host(deed, host)?;
    let ended = child.wait()?;
    assert_eq!(ended.code(), Some(1), "create fails on the way when {host} is lost");
    lab.host(undo, host)?;
    comes_up(&lab)
}

#[test]
fn a_worker_loses_power() -> Result<()> {
    host_lost("kill", "start", "e2e-power", "h2")
}

#[test]
fn a_master_loses_its_network() -> Result<()> {
    host_lost("cut", "heal", "e2e-cut", "h1")
}
