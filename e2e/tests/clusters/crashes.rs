//! The program is killed or a host fails while a cluster is created, and the same command continues. Each failure
//! happens after a certain number of completed steps, while the program runs.

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

/// Checks that `create` completes the cluster, and destroys it.
fn complete_and_destroy(lab: &TestLab) -> Result<()> {
    lab.must(&lab.create(lab.name(), 1))?;
    lab.wait_up_to_date(lab.name(), MINUTE)?;
    lab.must(&["destroy", lab.name(), "--yes"]).map(|_| ())
}

/// The number of steps of a plan for `create`.
fn remaining_steps(lab: &TestLab) -> Result<usize> {
    let mut arguments = lab.create(lab.name(), 1);
    arguments.extend(["--dry-run", "-o", "json"]);
    let plan: Value = serde_json::from_str(&lab.must(&arguments)?)?;
    Ok(plan["steps"].as_array().context("the plan has no steps")?.len())
}

/// Starts `create` and returns when this percentage of all steps is complete, including those of earlier
/// runs. This run has completed at least one step.
fn start_create(lab: &TestLab, steps: usize, percent: usize) -> Result<Running> {
    let completed = steps.saturating_sub(remaining_steps(lab)?);
    let mut create = Running::start(lab, &lab.create(lab.name(), 1))?;
    let wanted = (steps * percent / 100).saturating_sub(completed).max(1);
    create.until("steps are complete", 3 * MINUTE, |create| create.completed_steps() >= wanted)?;
    Ok(create)
}

#[test]
fn a_killed_create_completes_when_it_is_repeated() -> Result<()> {
    let lab = TestLab::up("e2e-kill", 2)?;
    let steps = remaining_steps(&lab)?;
    for percent in [2, 25, 50, 70, 90] {
        let create = start_create(&lab, steps, percent)?;
        let completed = create.completed_steps();
        create.kill()?;
        let remaining = remaining_steps(&lab)?;
        ensure!(remaining > 0, "killed at {percent} %, no step remained");
        println!("  killed after {completed} steps at about {percent} %: {remaining} of {steps} remain");
    }
    complete_and_destroy(&lab)
}

/// `create` fails and names the host. After the host is available again, the same command continues.
fn fail_host(lab: &TestLab, (command, undo): (&str, &str), host: usize, percent: usize) -> Result<()> {
    let steps = remaining_steps(lab)?;
    let name = format!("h{host}");
    let mut create = start_create(lab, steps, percent)?;
    lab.host(command, &name)?;
    create.ensure_running()?;
    let start = Instant::now();
    let answer = create.wait(2 * MINUTE)?;
    ensure!(answer.code == 1, "create must fail: {answer:?}");
    ensure!(answer.err.contains(&lab.addresses[host - 1]), "the error must name the host: {}", answer.err);
    println!("  {command} {name} at {percent} %: create ended after {:.1} s", start.elapsed().as_secs_f64());
    lab.host(undo, &name)?;
    ensure!(remaining_steps(lab)? > 0, "steps must remain");
    complete_and_destroy(lab)
}

/// The lab commands that cause a failure and end it.
const POWER: (&str, &str) = ("kill", "start");
const NETWORK: (&str, &str) = ("cut", "heal");

/// One lab is sufficient: every case ends with a destroyed cluster.
#[test]
fn create_completes_after_a_host_lost_power_or_network() -> Result<()> {
    let lab = TestLab::up("e2e-lost", 3)?;
    for (failure, host, percent) in [(POWER, 2, 30), (POWER, 1, 50), (NETWORK, 1, 30), (NETWORK, 3, 10)] {
        fail_host(&lab, failure, host, percent)?;
    }
    Ok(())
}

/// Sends a signal and checks that the program stops gracefully and prints the command to continue.
fn stop(mut running: Running, signal: &str, next_command: &str) -> Result<()> {
    running.signal(signal)?;
    let answer = running.wait(MINUTE)?;
    ensure!(answer.code == 130, "{signal}: {answer:?}");
    for text in ["press Ctrl-C again to stop at once", next_command] {
        ensure!(answer.err.contains(text), "{text:?} is missing in\n{}", answer.err);
    }
    Ok(())
}

#[test]
fn a_signal_stops_create_gracefully_and_the_same_command_completes() -> Result<()> {
    let lab = TestLab::up("e2e-signal", 2)?;
    let steps = remaining_steps(&lab)?;
    for (signal, percent) in [("INT", 30), ("TERM", 60)] {
        let create = start_create(&lab, steps, percent)?;
        stop(create, signal, &format!("continue with: kubeon create {}", lab.name()))?;
        for host in ["h1", "h2"] {
            eventually("no kubeon-node runs on the hosts", MINUTE, || {
                lab.on(host, "! pgrep -x kubeon-node")
            })?;
        }
        ensure!(remaining_steps(&lab)? > 0, "steps must remain");
    }
    lab.must(&["create", lab.name()])?;
    lab.wait_up_to_date(lab.name(), MINUTE)?;
    let mut destroy = Running::start(&lab, &["destroy", lab.name(), "--yes", "--v", "4"])?;
    destroy.until("the worker is reset", MINUTE, |destroy| {
        destroy.output().contains("h2  ● reset h2: remove everything")
    })?;
    stop(destroy, "TERM", &format!("continue with: kubeon destroy {} --yes", lab.name()))?;
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
fn soak_fifteen_failures_at_random_moments() -> Result<()> {
    let lab = TestLab::up("e2e-soak", 2)?;
    let seed =
        std::env::var("KUBEON_SOAK_SEED").ok().map_or_else(|| Ok(rand::random()), |text| text.parse())?;
    println!("  KUBEON_SOAK_SEED={seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    for round in 1..=15 {
        let (percent, host) = (random.random_range(1..95), random.random_range(1..=2));
        let steps = remaining_steps(&lab)?;
        println!("  round {round}: {percent} % of {steps} steps");
        if random.random_bool(0.5) {
            start_create(&lab, steps, percent)?.kill()?;
            complete_and_destroy(&lab)?;
        } else {
            fail_host(&lab, POWER, host, percent)?;
        }
    }
    Ok(())
}
