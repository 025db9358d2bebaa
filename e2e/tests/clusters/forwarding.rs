//! Twenty hosts with slow links get the parts of a bundle in about the time of one, because they forward them to each other.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::must;
use kubeon_e2e::running::Running;
use serde_json::Value;

const HOSTS: usize = 20;
const LIMIT: Duration = Duration::from_secs(600);
/// Each host and this machine send 100 Mbit/s at most.
const SLOW: [&str; 6] = ["rate", "100mbit", "burst", "256kb", "latency", "100ms"];

#[test]
#[ignore = "about three minutes, twenty hosts: ./test long"]
fn soak_parts_reach_twenty_hosts_over_slow_links() -> Result<()> {
    let lab = TestLab::up("e2e-parts", HOSTS + 2)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[0]])?;
    for host in 1..=HOSTS + 2 {
        let link = "$(ip -4 -o route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/')";
        lab.on(&format!("h{host}"), &format!("tc qdisc add dev {link} root tbf {}", SLOW.join(" ")))?;
    }
    let link = lab.link()?;
    must("tc", &[&["qdisc", "add", "dev", &link, "root", "tbf"][..], &SLOW].concat(), &[])?;

    let (one, bytes) = time_of_parts(&lab, &hosts[1..2])?;
    let (many, all) = time_of_parts(&lab, &hosts[2..])?;
    let (one, many) = (one.as_secs_f64(), many.as_secs_f64());
    println!(
        "  parts of {} MiB: one host {one:.1} s, {HOSTS} hosts {many:.1} s ({} MiB), ratio {:.2}",
        bytes >> 20,
        all >> 20,
        many / one
    );
    // Sent from here, they would take twenty times as long. All hosts unpack on the processors of this machine.
    ensure!(many < 10.0 * one, "{HOSTS} hosts took {many:.1} s, one took {one:.1} s");
    Ok(())
}

/// The time from the start of the command until all parts are on all hosts, and the size of all of them. The command is killed
/// then.
fn time_of_parts(lab: &TestLab, hosts: &[String]) -> Result<(Duration, u64)> {
    let workers = hosts.join(",");
    let add = ["addon", lab.name(), "-w", &workers];
    let plan: Value = serde_json::from_str(&lab.must(&[&add[..], &["--dry-run", "-o", "json"]].concat())?)?;
    let steps = plan["steps"].as_array().context("the plan has no steps")?;
    let parts = || steps.iter().filter(|step| step["op"]["op"] == "part");
    let titles: Vec<&str> = parts().filter_map(|step| step["title"].as_str()).collect();
    let bytes = parts().filter_map(|step| step["op"]["size"].as_u64()).sum();
    let start = Instant::now();
    let mut run = Running::start(lab, &add)?;
    run.until("all parts are on the hosts", LIMIT, |run| {
        let output = run.output();
        let done =
            output.lines().filter(|line| line.contains("  ✓ ") && titles.iter().any(|t| line.contains(t)));
        done.count() >= titles.len()
    })?;
    let took = start.elapsed();
    run.kill()?;
    Ok((took, bytes))
}
