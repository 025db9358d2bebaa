//! The program is killed or a host fails while a cluster is created, and the same command continues. Each failure
//! happens after a certain number of completed steps, while the program runs.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

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
/// runs, after which so many remain. This run has completed at least one step.
fn start_create(lab: &TestLab, (steps, remaining): (usize, usize), percent: usize) -> Result<Running> {
    let completed = steps.saturating_sub(remaining);
    let mut create = Running::start(lab, &lab.create(lab.name(), 1))?;
    let wanted = (steps * percent / 100).saturating_sub(completed).max(1);
    create.until("steps are complete", 3 * MINUTE, |create| create.completed_steps() >= wanted)?;
    Ok(create)
}

/// What interrupts `create`.
enum Interruption {
    /// The program is killed.
    Kill,
    /// The program gets this signal, and stops after the running steps.
    Signal(&'static str),
    /// The host with this number fails; the program ends with an error that names it.
    Host(Failure, usize),
}

use Interruption::{Host, Kill, Signal};

/// What happens after which percentage of all steps. The same command continues each time. When a worker fails, the other hosts
/// complete their steps, so nothing but the failed host is left to interrupt.
const PROGRAM: [(usize, Interruption); 8] = [
    (2, Kill),
    (20, Kill),
    (30, Signal("INT")),
    (45, Kill),
    (55, Signal("TERM")),
    (65, Kill),
    (75, Host(POWER, 2)),
    (90, Kill),
];
const MASTER: [(usize, Interruption); 3] =
    [(10, Host(NETWORK, 1)), (50, Host(POWER, 1)), (60, Host(NETWORK, 3))];

#[test]
fn create_and_destroy_complete_after_every_interruption() -> Result<()> {
    let lab = TestLab::up("e2e-crashes", 3)?;
    create_interrupted(&lab, &PROGRAM)?;
    destroy_interrupted(&lab)?;
    create_interrupted(&lab, &MASTER)?;
    lab.must(&["destroy", lab.name(), "--yes"]).map(drop)
}

/// The same command continues, and is killed again when its first step begins. Returns the time from the end of its look to that.
fn first_step(lab: &TestLab) -> Result<Duration> {
    let mut arguments = lab.create(lab.name(), 1);
    arguments.extend(["--progress", "json", "--v", "4"]);
    let mut create = Running::start(lab, &arguments)?;
    // Hosts with addresses that must be found are looked at twice.
    let looked = Cell::new((0, Instant::now()));
    create.until("the first step begins", MINUTE, |create| {
        let output = create.output();
        let looks = output.matches("the hosts were observed").count();
        if looks > looked.get().0 {
            looked.set((looks, Instant::now()));
        }
        output.contains(r#""event":"started""#)
    })?;
    let (looks, end) = looked.get();
    let took = end.elapsed();
    ensure!(looks > 0, "the look did not end: {}", create.output());
    create.kill()?;
    Ok(took)
}

/// A run that continues after a kill begins its first step at most this long after its look.
const FIRST_STEP: Duration = Duration::from_secs(2);

fn first_steps_are_soon(mut times: Vec<Duration>) -> Result<()> {
    times.sort_unstable();
    let Some(median) = times.get(times.len() / 2) else { return Ok(()) };
    println!("  from the look to the first step after a kill: median {median:.2?} of {times:.2?}");
    ensure!(*median <= FIRST_STEP, "the first step begins {median:.2?} after the look, not {FIRST_STEP:?}");
    Ok(())
}

fn create_interrupted(lab: &TestLab, interruptions: &[(usize, Interruption)]) -> Result<()> {
    let steps = remaining_steps(lab)?;
    let (mut remaining, mut first_steps) = (steps, Vec::new());
    for (percent, interruption) in interruptions {
        let create = start_create(lab, (steps, remaining), *percent)?;
        match interruption {
            Kill => {
                create.kill()?;
                // Near the end, the step after the first one could be the last.
                if *percent < 90 {
                    first_steps.push(first_step(lab)?);
                }
            }
            Signal(signal) => {
                stop(create, signal, &format!("continue with: kubeon create {}", lab.name()))?;
                no_program_runs_on_hosts(lab)?;
            }
            Host(failure, host) => fail_host(lab, create, failure, *host)?,
        }
        remaining = remaining_steps(lab)?;
        ensure!(remaining > 0, "interrupted at {percent} %, no step remained");
        println!("  interrupted at about {percent} %: {remaining} of {steps} steps remain");
    }
    first_steps_are_soon(first_steps)?;
    lab.must(&["create", lab.name()])?;
    lab.wait_up_to_date(lab.name(), MINUTE)
}

fn no_program_runs_on_hosts(lab: &TestLab) -> Result<()> {
    for host in HOSTS {
        eventually("no kubeon-node runs on the hosts", MINUTE, || lab.on(host, "! pgrep -x kubeon-node"))?;
    }
    Ok(())
}

/// A stopped `destroy` has reset a worker, but not the master before all workers.
fn destroy_interrupted(lab: &TestLab) -> Result<()> {
    let mut destroy = Running::start(lab, &["destroy", lab.name(), "--yes", "--v", "4"])?;
    destroy.until("a worker is reset", MINUTE, |destroy| {
        destroy.output().contains("● reset h2: remove everything")
            || destroy.output().contains("● reset h3: remove everything")
    })?;
    stop(destroy, "TERM", &format!("continue with: kubeon destroy {} --yes", lab.name()))?;
    lab.on("h1", "test -e /etc/kubernetes").context("the master was reset before the workers")?;
    lab.must(&["destroy", lab.name(), "--yes"])?;
    for host in HOSTS {
        lab.on(host, "test ! -e /var/lib/kubeon && test ! -e /etc/kubernetes")?;
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

/// `create` fails and names the host. Afterwards the host is available again.
fn fail_host(lab: &TestLab, mut create: Running, failure: &Failure, host: usize) -> Result<()> {
    let name = format!("h{host}");
    lab.host(failure.begin, &name)?;
    create.ensure_running()?;
    let start = Instant::now();
    let answer = create.wait(2 * MINUTE)?;
    ensure!(answer.code == 1, "create must fail: {answer:?}");
    ensure!(answer.err.contains(&lab.addresses[host - 1]), "the error must name the host: {}", answer.err);
    println!("  {} {name}: create ended after {:.1} s", failure.begin, start.elapsed().as_secs_f64());
    lab.host(failure.end, &name)
}

/// The lab commands that cause a failure and end it.
struct Failure {
    begin: &'static str,
    end: &'static str,
}

const POWER: Failure = Failure { begin: "kill", end: "start" };
const NETWORK: Failure = Failure { begin: "cut", end: "heal" };

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
            start_create(&lab, (steps, steps), percent)?.kill()?;
            complete_and_destroy(&lab)?;
        } else {
            let create = start_create(&lab, (steps, steps), percent)?;
            fail_host(&lab, create, &POWER, host)?;
            ensure!(remaining_steps(&lab)? > 0, "steps must remain");
            complete_and_destroy(&lab)?;
        }
    }
    Ok(())
}
