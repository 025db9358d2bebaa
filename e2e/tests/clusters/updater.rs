//! Workers that reach the API servers by a Service of the cluster: a boot, a master that is killed, cut off, replaced and removed,
//! and a worker that was off meanwhile.

#![allow(clippy::print_stderr, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::eventually;

use crate::scale::balancer::{SERVICE, leads_to};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "minutes: masters die, are cut off, replaced and removed: ./test long"]
fn soak_workers_follow_the_service_of_the_api_servers() -> Result<()> {
    let lab = TestLab::up("e2e-updater", 6)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let (masters, workers) = (hosts[..3].join(","), hosts[3..5].join(","));
    lab.must(&["create", cluster, VERSION, "-m", &masters, "-w", &workers, "--lb-mode", "updater"])?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    endpoints(&lab, &hosts[..3])?;
    for worker in ["h4", "h5"] {
        leads_to(&lab, worker, SERVICE)?;
    }
    for (program, unit) in [("updater", "apiserver-updater"), ("startup", "apiserver-startup")] {
        let config = lab.must(&["view", "config", cluster, program])?;
        ensure!(config.contains(&format!("# {unit}.service")), "{config}");
    }
    // The masters write the endpoints with an identity that may write nothing else.
    let rights = ["auth", "can-i", "--as=kubeon:apiserver-updater", "-n", "kube-system"];
    let may = |what: &[&str]| lab.kubectl(cluster, &[&rights[..], what].concat()).unwrap_or_default();
    ensure!(may(&["patch", "endpointslices/apiserver"]).trim() == "yes", "its own object");
    ensure!(may(&["patch", "endpointslices/kube-dns"]).trim() != "yes", "another one");
    ensure!(may(&["list", "secrets"]).trim() != "yes", "Secrets");
    a_master_is_used_after_a_boot(&lab)?;

    // h5 misses everything until it starts again.
    lab.host("kill", "h5")?;
    let start = Instant::now();
    lab.host("kill", "h1")?;
    endpoints(&lab, &hosts[1..3])?;
    eprintln!("the endpoints are without a dead master after {:.1} s", start.elapsed().as_secs_f64());
    works(&lab, "h4")?;
    lab.must(&["replace", cluster, "h1", &hosts[5], "--yes"])?;
    endpoints(&lab, &[hosts[1].clone(), hosts[2].clone(), hosts[5].clone()])?;

    lab.host("cut", "h2")?;
    endpoints(&lab, &[hosts[2].clone(), hosts[5].clone()])?;
    works(&lab, "h4")?;
    lab.host("heal", "h2")?;
    endpoints(&lab, &[hosts[1].clone(), hosts[2].clone(), hosts[5].clone()])?;
    lab.must(&["delon", cluster, "h2", "--yes"])?;
    endpoints(&lab, &[hosts[2].clone(), hosts[5].clone()])?;
    works(&lab, "h4")?;

    lab.host("start", "h5")?;
    works(&lab, "h5")?;
    // What it missed is written now.
    lab.must(&["create", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE * 2)?;

    let changed = lab.kubeon(&["config", "set", cluster, "loadBalancer="])?;
    ensure!(changed.code == 0, "{changed:?}");
    for worker in ["h4", "h5"] {
        lab.on(worker, "systemctl is-active -q haproxy && ! systemctl cat apiserver-startup")?;
        lab.on(worker, "! grep -q stand-in /etc/hosts && ! test -e /run/kubeon/apiserver-address")?;
    }
    lab.must(&["destroy", cluster, "--yes"])?;
    ["h3", "h4", "h5", "h6"].iter().try_for_each(|host| lab.is_bare(host))
}

/// Nothing of kube-proxy is in the kernel after a boot, so a master stands in until it is.
fn a_master_is_used_after_a_boot(lab: &TestLab) -> Result<()> {
    lab.host("kill", "h4")?;
    lab.host("start", "h4")?;
    let start = Instant::now();
    works(lab, "h4")?;
    eprintln!("a worker uses the Service again {:.1} s after its start", start.elapsed().as_secs_f64());
    let log = lab.on("h4", "journalctl -b -o cat -u apiserver-startup")?;
    ensure!(
        log.contains("the Service 10.64.0.15 does not answer: apiserver.cluster.local leads to "),
        "{log}"
    );
    Ok(())
}

/// The node is Ready, and its programs reach the API by the Service.
fn works(lab: &TestLab, worker: &str) -> Result<()> {
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    eventually(&format!("{worker} is Ready"), MINUTE * 2, || {
        let found = lab.kubectl(lab.name(), &["get", "node", worker, "-o", ready])?;
        ensure!(found == "True", "{found}");
        Ok(())
    })?;
    leads_to(lab, worker, SERVICE)
}

/// The Service has exactly these masters.
fn endpoints(lab: &TestLab, masters: &[String]) -> Result<()> {
    let all = ["-n", "kube-system", "get", "endpointslice", "apiserver", "-o"];
    let addresses = "jsonpath={.endpoints[*].addresses[0]}";
    let mut wanted = masters.to_vec();
    wanted.sort();
    eventually("the Service has the masters that serve", MINUTE * 2, || {
        let found = lab.kubectl(lab.name(), &[&all[..], &[addresses]].concat())?;
        let mut found: Vec<&str> = found.split_whitespace().collect();
        found.sort_unstable();
        ensure!(found == wanted, "{found:?} instead of {wanted:?}");
        Ok(())
    })
}
