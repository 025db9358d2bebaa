//! A client of etcd records all writes and reads while masters lose their power or network, are replaced, leave, and change their
//! version. A checker says whether one order of the operations explains every answer.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::fs;
use std::io::Read as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use serde_json::Value;

const MINUTE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_etcd_is_linearizable_while_masters_fail_and_change() -> Result<()> {
    let lab = TestLab::up("e2e-history", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["bundle", "build", NEXT])?;
    let masters = ["-m", &hosts[0], "-m", &hosts[1], "-m", &hosts[2], "-w", &hosts[3]];
    lab.must(&[&["create", cluster, VERSION], &masters[..]].concat())?;
    let history = History::begin(&lab, &[&hosts[0], &hosts[1], &hosts[2], &hosts[4]])?;
    let begin = Instant::now();
    for (failure, end, host) in [("kill", "start", "h1"), ("cut", "heal", "h2"), ("kill", "start", "h3")] {
        lab.host(failure, host)?;
        sleep(Duration::from_secs(10));
        lab.host(end, host)?;
        lab.wait_up_to_date(cluster, 3 * MINUTE)?;
        println!("  {failure} {host}: complete after {:.0} s", begin.elapsed().as_secs_f64());
    }
    lab.host("kill", "h1")?;
    lab.must(&["replace", cluster, "h1", &hosts[4], "--yes"])?;
    println!("  h1 was replaced after {:.0} s", begin.elapsed().as_secs_f64());
    lab.must(&["upgrade", cluster, NEXT])?;
    println!("  the version was changed after {:.0} s", begin.elapsed().as_secs_f64());
    lab.must(&["delon", cluster, "h2", "--yes"])?;

    let report = history.end()?;
    println!("  {report}");
    let count = |field: &str| report[field].as_u64().unwrap_or_default();
    ensure!(count("writes") > 5000 && count("reads") > 5000 && report["result"] == "Ok", "{report}");
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The client.
struct History {
    program: Child,
    /// It stops when this is closed.
    input: ChildStdin,
}

impl History {
    /// Begins with the members of these hosts, and of hosts that become members.
    fn begin(lab: &TestLab, members: &[&str]) -> Result<Self> {
        let folder = lab.file("history");
        fs::create_dir_all(&folder)?;
        let pki = "/etc/kubernetes/pki/etcd";
        let mut program = Command::new(kubeon_envtest::history_program()?);
        for name in ["ca.crt", "healthcheck-client.crt", "healthcheck-client.key"] {
            let file = folder.join(name);
            fs::write(&file, lab.on("h1", &format!("cat {pki}/{name}"))?)?;
            program.arg(file);
        }
        let mut program = program.args(members).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = program.stdin.take().context("the program has no input")?;
        Ok(Self { program, input })
    }

    /// Ends all operations and checks them.
    fn end(self) -> Result<Value> {
        let Self { mut program, input } = self;
        drop(input);
        let mut text = String::new();
        program.stdout.take().context("the program has no output")?.read_to_string(&mut text)?;
        let status = program.wait()?;
        serde_json::from_str(&text).with_context(|| format!("history ended with {status}: {text:?}"))
    }
}
