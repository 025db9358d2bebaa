//! The program or a host dies while a cluster is created, and the same command continues. Each death happens
//! after a certain number of completed steps, while the program runs.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

fn completes(lab: &TestLab) -> Result<()> {
    lab.must(&lab.create(lab.name(), 1))?;
    lab.settled(lab.name(), MINUTE)?;
    lab.must(&["destroy", lab.name(), "--yes"]).map(|_| ())
}

/// The number of steps of a plan for `create`.
fn left(lab: &TestLab) -> Result<usize> {
    let mut arguments = lab.create(lab.name(), 1);
    arguments.extend(["--dry-run", "-o", "json"]);
    let plan: Value = serde_json::from_str(&lab.must(&arguments)?)?;
    Ok(plan["steps"].as_array().context("the plan has no steps")?.len())
}

/// Starts `create` and returns when this percentage of all steps is complete, including those of earlier
/// runs. At least one step is its own.
fn making(lab: &TestLab, steps: usize, share: usize) -> Result<Running> {
    let completed = steps.saturating_sub(left(lab)?);
    let mut making = Running::begin(lab, &lab.create(lab.name(), 1))?;
    let wanted = (steps * share / 100).saturating_sub(completed).max(1);
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
        ensure!(left > 0, "killed at {share} %, no step was left");
        println!("  killed after {done} steps at about {share} %: {left} of {steps} are left");
    }
    completes(&lab)
}

/// `create` ends and names the lost host. After the host is back, the same command continues.
fn host_lost(lab: &TestLab, (command, undo): (&str, &str), host: usize, share: usize) -> Result<()> {
    let steps = left(lab)?;
    let lost = format!("h{host}");
    let mut making = making(lab, steps, share)?;
    lab.host(command, &lost)?;
    making.ensure_running()?;
    let start = Instant::now();
    let answer = making.end(2 * MINUTE)?;
    ensure!(answer.code == 1, "create must fail: {answer:?}");
    ensure!(answer.err.contains(&lab.addresses[host - 1]), "the error must name the host: {}", answer.err);
    println!("  {command} {lost} at {share} %: create ended after {:.1} s", start.elapsed().as_secs_f64());
    lab.host(undo, &lost)?;
    ensure!(left(lab)? > 0, "steps must be left");
    completes(lab)
}

const POWER: (&str, &str) = ("kill", "start");
const CABLE: (&str, &str) = ("cut", "heal");

/// One lab is sufficient: every case ends with a destroyed cluster.
#[test]
fn a_host_without_power_and_a_host_without_network() -> Result<()> {
    let lab = TestLab::up("e2e-lost", 3)?;
    for (event, host, share) in [(POWER, 2, 30), (POWER, 1, 50), (CABLE, 1, 30), (CABLE, 3, 10)] {
        host_lost(&lab, event, host, share)?;
    }
    Ok(())
}

/// Sends a signal and checks that the program stops gracefully and prints the command to continue.
fn stop(mut running: Running, signal: &str, next: &str) -> Result<()> {
    running.signal(signal)?;
    let answer = running.end(MINUTE)?;
    ensure!(answer.code == 130, "{signal}: {answer:?}");
    for words in ["press Ctrl-C again to stop at once", next] {
        ensure!(answer.err.contains(words), "{words:?} is missing in\n{}", answer.err);
    }
    Ok(())
}

#[test]
fn a_signal_stops_create_gracefully_and_the_same_command_completes() -> Result<()> {
    let lab = TestLab::up("e2e-signal", 2)?;
    let steps = left(&lab)?;
    for (signal, share) in [("INT", 30), ("TERM", 60)] {
        stop(making(&lab, steps, share)?, signal, &format!("continue with: kubeon create {}", lab.name()))?;
        for host in ["h1", "h2"] {
            eventually("no kubeon-node runs on the hosts", MINUTE, || {
                lab.on(host, "! pgrep -x kubeon-node")
            })?;
        }
        ensure!(left(&lab)? > 0, "steps must be left");
    }
    lab.must(&["create", lab.name()])?;
    lab.settled(lab.name(), MINUTE)?;
    let mut destroying = Running::begin(&lab, &["destroy", lab.name(), "--yes", "--v", "4"])?;
    destroying.until("the worker is reset", MINUTE, |destroying| {
        destroying.output().contains("h2  ● reset h2: remove everything")
    })?;
    stop(destroying, "TERM", &format!("continue with: kubeon destroy {} --yes", lab.name()))?;
    lab.on("h1", "test -e /etc/kubernetes").context("the master was reset before the worker")?;
    lab.must(&["destroy", lab.name(), "--yes"])?;
    for host in ["h1", "h2"] {
        lab.on(host, "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes")?;
    }
    Ok(())
}

/// Each round kills the program or a host after a random percentage of the steps. The test prints its seed;
/// `KUBEON_SOAK_SEED` repeats a run.
#[test]
#[ignore = "takes about ten minutes: ./test long"]
fn soak_fifteen_deaths_at_random_moments() -> Result<()> {
    let lab = TestLab::up("e2e-soak", 2)?;
    let seed =
        std::env::var("KUBEON_SOAK_SEED").ok().map_or_else(|| Ok(rand::random()), |text| text.parse())?;
    println!("  KUBEON_SOAK_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    for round in 1..=15 {
        let (share, host) = (random.random_range(1..95), random.random_range(1..=2));
        let steps = left(&lab)?;
        println!("  round {round}: {share} % of {steps} steps");
        if random.random_bool(0.5) {
            making(&lab, steps, share)?.kill()?;
            completes(&lab)?;
        } else {
            host_lost(&lab, POWER, host, share)?;
        }
    }
    Ok(())
}
