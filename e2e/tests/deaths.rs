//! The program dies while a cluster is made. The same command goes on.

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
