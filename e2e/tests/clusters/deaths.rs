//! The program or a host dies while a cluster is made. The same command goes on. Every death is at a moment that is
//! seen: so many steps are done, and the program is at work.

#![allow(clippy::print_stdout, reason = "what was measured is for people")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

fn comes_up(lab: &TestLab) -> Result<()> {
    lab.must(&lab.create(lab.name(), 1))?;
    lab.settled(lab.name(), MINUTE)?;
    lab.must(&["destroy", lab.name(), "--yes"]).map(|_| ())
}

/// How many steps `create` would do now.
fn left(lab: &TestLab) -> Result<usize> {
    let mut arguments = lab.create(lab.name(), 1);
    arguments.extend(["--dry-run", "-o", "json"]);
    let plan: Value = serde_json::from_str(&lab.must(&arguments)?)?;
    Ok(plan["steps"].as_array().context("a plan has steps")?.len())
}

/// `create`, after this share of a whole cluster's steps was done by it and those before it; always some of its own.
fn making(lab: &TestLab, steps: usize, share: usize) -> Result<Running> {
    let stood = steps.saturating_sub(left(lab)?);
    let mut making = Running::begin(lab, &lab.create(lab.name(), 1))?;
    let wanted = (steps * share / 100).saturating_sub(stood).max(1);
    making.until("steps are done", 3 * MINUTE, |making| making.done() >= wanted)?;
    Ok(making)
}

#[test]
fn the_program_killed_at_several_moments() -> Result<()> {
    let lab = TestLab::up("e2e-kill", 2)?;
    let steps = left(&lab)?;
    for share in [2, 25, 50, 70, 90] {
        let making = making(&lab, steps, share)?;
        let done = making.done();
        making.kill()?;
        let left = left(&lab)?;
        ensure!(left > 0, "killed at {share} %, nothing was left to do");
        println!("  killed after {done} steps at about {share} %: {left} of {steps} are left");
    }
    comes_up(&lab)
}

/// `create` ends by itself and names the lost host; once it is back, the same command goes on.
fn host_lost(lab: &TestLab, (deed, undo): (&str, &str), host: usize, share: usize) -> Result<()> {
    let steps = left(lab)?;
    let lost = format!("h{host}");
    let mut making = making(lab, steps, share)?;
    lab.host(deed, &lost)?;
    making.is_at_work()?;
    let start = Instant::now();
    let answer = making.end(2 * MINUTE)?;
    ensure!(answer.code == 1, "create failed on the way: {answer:?}");
    ensure!(answer.err.contains(&lab.addresses[host - 1]), "the host is named: {}", answer.err);
    println!("  {deed} {lost} at {share} %: create ended after {:.1} s", start.elapsed().as_secs_f64());
    lab.host(undo, &lost)?;
    ensure!(left(lab)? > 0, "something is left to do");
    comes_up(lab)
}

const POWER: (&str, &str) = ("kill", "start");
const CABLE: (&str, &str) = ("cut", "heal");

#[test]
fn a_host_without_power() -> Result<()> {
    let lab = TestLab::up("e2e-power", 3)?;
    host_lost(&lab, POWER, 2, 30)?;
    host_lost(&lab, POWER, 1, 50)
}

#[test]
fn a_host_without_network() -> Result<()> {
    let lab = TestLab::up("e2e-cut", 3)?;
    host_lost(&lab, CABLE, 1, 30)?;
    host_lost(&lab, CABLE, 3, 10)
}

/// Stopped gently, said how to go on, and the same command finishes.
fn stopped(mut running: Running, signal: &str, again: &str) -> Result<()> {
    running.signal(signal)?;
    let answer = running.end(MINUTE)?;
    ensure!(answer.code == 130, "{signal}: {answer:?}");
    for words in ["press Ctrl-C again to stop at once", again] {
        ensure!(answer.err.contains(words), "{words:?} is missing in\n{}", answer.err);
    }
    Ok(())
}

#[test]
fn signals_end_it_gently_and_the_same_command_finishes() -> Result<()> {
    let lab = TestLab::up("e2e-signal", 2)?;
    let steps = left(&lab)?;
    for (signal, share) in [("INT", 30), ("TERM", 60)] {
        stopped(
            making(&lab, steps, share)?,
            signal,
            &format!("continue with: kubeon create {}", lab.name()),
        )?;
        for host in ["h1", "h2"] {
            eventually("nothing of it works on a host", MINUTE, || lab.on(host, "! pgrep -x kubeon-node"))?;
        }
        ensure!(left(&lab)? > 0, "something is left to do");
    }
    lab.must(&["create", lab.name()])?;
    lab.settled(lab.name(), MINUTE)?;
    let mut going = Running::begin(&lab, &["destroy", lab.name(), "--yes", "--v", "4"])?;
    going.until("the worker is reset", MINUTE, |going| going.said().contains("h2  ● take everything"))?;
    stopped(going, "TERM", &format!("continue with: kubeon destroy {} --yes", lab.name()))?;
    lab.on("h1", "test -e /etc/kubernetes").context("the master waits for the worker")?;
    lab.must(&["destroy", lab.name(), "--yes"])?;
    for host in ["h1", "h2"] {
        lab.on(host, "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes")?;
    }
    Ok(())
}

/// Deaths of one kind each round: the program, or a host's power, after a share of the steps that chance chose. The seed
/// is printed; `KUBEON_SOAK_SEED` repeats a run.
#[test]
#[ignore = "takes about ten minutes: ./test long"]
fn soak_fifteen_deaths_at_random_moments() -> Result<()> {
    let lab = TestLab::up("e2e-soak", 2)?;
    let seed = std::env::var("KUBEON_SOAK_SEED").ok().map_or_else(|| Ok(rand::random()), |it| it.parse())?;
    println!("  KUBEON_SOAK_SEED={seed}");
    let mut chance = SmallRng::seed_from_u64(seed);
    for round in 1..=15 {
        let (share, host) = (chance.random_range(1..95), chance.random_range(1..=2));
        let steps = left(&lab)?;
        println!("  round {round}: {share} % of {steps} steps");
        if chance.random_bool(0.5) {
            making(&lab, steps, share)?.kill()?;
            comes_up(&lab)?;
        } else {
            host_lost(&lab, POWER, host, share)?;
        }
    }
    Ok(())
}
