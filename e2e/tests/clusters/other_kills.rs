//! The program is killed in a change of the load balancer, in a restore, and while a host gets another address. The same command
//! continues.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::killed::{FirstSteps, MarkedStep};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::writer;

use crate::readdress::{change, other, works};
use crate::scale::balancer::{SERVICE, leads_to};

const MINUTE: Duration = Duration::from_secs(60);
const WORKER: &str = "h4";

#[test]
#[ignore = "takes six minutes: ./test long"]
fn soak_other_changes_are_killed_half_way() -> Result<()> {
    let lab = TestLab::up("e2e-kills", 4)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[..3].join(","), "-w", &hosts[3]])?;
    lab.must(&["use", cluster])?;
    let mut first_steps = FirstSteps::default();
    way_to_the_masters(&lab, &mut first_steps)?;
    restored(&lab, &mut first_steps)?;
    another_address(&lab, &mut first_steps)?;
    println!("  first steps after a kill: {:.2?} at most", first_steps.are_soon()?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// The worker changes from haproxy to the Service of the API servers, and back.
fn way_to_the_masters(lab: &TestLab, first_steps: &mut FirstSteps) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let ways: [(&str, MarkedStep, &str); 2] = [
        (
            "loadBalancer.mode=updater",
            ("the way by the Service", r#""name":"h4","stage":"join","step":"keep the API's name leading"#),
            SERVICE,
        ),
        (
            "loadBalancer=",
            ("the start of haproxy", r#""name":"h4","stage":"join","step":"start haproxy"#),
            "127.0.0.1",
        ),
    ];
    for (setting, step, address) in ways {
        let set = ["config", "set", cluster, setting];
        first_steps.kill_in_each(lab, &set, &[step])?;
        lab.must(&set)?;
        leads_to(lab, WORKER, address)?;
        lab.wait_up_to_date(cluster, MINUTE)?;
    }
    lab.on(WORKER, "systemctl is-active -q haproxy && ! systemctl cat apiserver-startup")?;
    println!(
        "  another way to the masters and back, with kills, took {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The cluster is destroyed and made out of its snapshot again.
fn restored(lab: &TestLab, first_steps: &mut FirstSteps) -> Result<()> {
    let (cluster, file) = (lab.name(), lab.file("kills.db").display().to_string());
    lab.kubectl(cluster, &["create", "configmap", "kept", "--from-literal=word=kept"])?;
    lab.must(&["etcd", "save", cluster, &file])?;
    lab.must(&["destroy", cluster, "--yes"])?;
    let (restore, begin) = (["etcd", "restore", cluster, &file], Instant::now());
    let steps = [
        ("the data of a member", r#""step":"make the data of etcd member h2"#),
        ("the first start of a member", r#""name":"h1","stage":"etcd","step":"start etcd member h1"#),
        ("the first start of a kubelet", r#""name":"h4","stage":"join","step":"start kubelet"#),
    ];
    first_steps.kill_in_each(lab, &restore, &steps)?;
    lab.must(&restore)?;
    println!("  a restore with kills took {:.0} s", begin.elapsed().as_secs_f64());
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let word = lab.kubectl(cluster, &["get", "configmap", "kept", "-o", "jsonpath={.data.word}"])?;
    ensure!(word == "kept", "{word}");
    Ok(())
}

/// The first master gets another address while a pod writes.
fn another_address(lab: &TestLab, first_steps: &mut FirstSteps) -> Result<()> {
    let (cluster, old) = (lab.name(), &lab.addresses[0]);
    let (new, key) = (other(old)?, lab.key().display().to_string());
    writer::start(lab, "address", 60)?;
    change(lab, "h1", old, &new)?;
    // The lab's own key is found by the address of a host.
    let readdress = ["readdress", cluster, "h1", &new, "--default-pk-file", &key];
    let begin = Instant::now();
    let steps = [
        ("the new address of a member", r#""stage":"etcd","step":"tell etcd the new address of member h1"#),
        ("the member at its new address", r#""name":"h1","stage":"etcd","step":"start etcd member h1"#),
    ];
    first_steps.kill_in_each(lab, &readdress, &steps)?;
    lab.must(&readdress)?;
    println!("  another address with kills took {:.0} s", begin.elapsed().as_secs_f64());
    works(lab, "h1", &new)?;
    println!("  {}", writer::report(lab)?);
    Ok(())
}
