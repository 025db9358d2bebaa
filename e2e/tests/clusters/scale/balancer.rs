//! The workers of a living cluster change to an external load balancer, to a Service of the API servers, and back.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;

use super::rolling;

const MINUTE: Duration = Duration::from_secs(60);
const WORKERS: [&str; 2] = ["h2", "h3"];
/// The fifteenth address of the service network.
pub(crate) const SERVICE: &str = "10.64.0.15";

/// On a cluster of h1 as the master, and h2 and h3.
#[allow(clippy::print_stderr, reason = "prints measured times")]
pub(super) fn workers_change_to_a_load_balancer_and_back(lab: &TestLab, cluster: &str) -> Result<()> {
    let set = |fields: &[&str]| lab.kubeon(&[&["config", "set", cluster], fields].concat());
    let start = Instant::now();
    let balancer = "systemd-run --quiet --unit=balancer --socket-property=ListenStream=0.0.0.0:7443 \
                    /lib/systemd/systemd-socket-proxyd 127.0.0.1:6443";
    lab.on("h1", balancer)?;
    let address = format!("loadBalancer.address={}", lab.addresses[0]);
    let changed = set(&["loadBalancer.mode=external", &address, "loadBalancer.port=7443"])?;
    ensure!(changed.code == 0, "{changed:?}");
    for worker in WORKERS {
        reaches(lab, worker, "https://apiserver.cluster.local:7443")?;
        names(lab, worker, &lab.addresses[0])?;
        lab.on(
            worker,
            "! systemctl cat haproxy && ! test -e /etc/kubernetes/haproxy.cfg && ! pgrep -x haproxy",
        )?;
    }
    lab.wait_up_to_date(cluster, MINUTE)?;
    eprintln!("two workers changed to a load balancer: {:.1} s", start.elapsed().as_secs_f64());

    let (start, changed) = (Instant::now(), set(&["loadBalancer=", "loadBalancer.mode=updater"])?);
    ensure!(changed.code == 0, "{changed:?}");
    lab.on("h1", "systemctl stop balancer.socket balancer.service")?;
    for worker in WORKERS {
        reaches(lab, worker, "https://apiserver.cluster.local:6443")?;
        leads_to(lab, worker, SERVICE)?;
    }
    lab.wait_up_to_date(cluster, MINUTE)?;
    eprintln!("two workers changed to the Service: {:.1} s", start.elapsed().as_secs_f64());

    let changed = set(&["loadBalancer=", "--max-unavailable", "100%"])?;
    ensure!(changed.code == 0, "{changed:?}");
    rolling::workers_restarted_together(lab)?;
    let left = lab.kubectl(cluster, &["-n", "kube-system", "get", "service,endpointslice", "-o", "name"])?;
    ensure!(!left.contains("apiserver"), "{left}");
    lab.on("h1", "! systemctl cat apiserver-updater")?;
    for worker in WORKERS {
        reaches(lab, worker, "https://127.0.0.1:6443")?;
        names(lab, worker, "127.0.0.1")?;
        lab.on(worker, "systemctl is-active -q haproxy && ! systemctl cat apiserver-startup")?;
    }
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The programs of the host reach the API by its name, which leads to this address.
pub(crate) fn leads_to(lab: &TestLab, host: &str, address: &str) -> Result<()> {
    let ready =
        "curl -sS -m 5 --cacert /etc/kubernetes/pki/ca.crt https://apiserver.cluster.local:6443/readyz";
    eventually(&format!("{host} reaches the API through {address}"), MINUTE, || {
        names(lab, host, address)?;
        let answer = lab.on(host, ready)?;
        ensure!(answer == "ok", "{answer}");
        Ok(())
    })
}

/// A load balancer that leads elsewhere changes nothing that a worker uses, and another address goes on.
pub(super) fn another_server_changes_no_worker(lab: &TestLab, cluster: &str) -> Result<()> {
    let address = format!("loadBalancer.address={}", lab.addresses[1]);
    let set = ["config", "set", cluster, "loadBalancer.mode=external", &address, "loadBalancer.port=22"];
    let refused = lab.kubeon(&set)?;
    ensure!(refused.code == 1 && refused.err.contains("the load balancer"), "{refused:?}");
    reaches(lab, "h2", "https://127.0.0.1:6443")?;
    names(lab, "h2", "127.0.0.1")?;
    lab.on("h2", "systemctl is-active -q haproxy")?;
    lab.must(&["config", "set", cluster, "loadBalancer="])?;
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The agents of the host use this server.
fn reaches(lab: &TestLab, host: &str, server: &str) -> Result<()> {
    for agent in ["kubelet", "kube-proxy", "flannel"] {
        let found = lab.on(host, &format!("grep -o 'https://[a-z0-9.:]*' /etc/kubernetes/{agent}.conf"))?;
        ensure!(found.trim() == server, "{agent} of {host}: {found}");
    }
    Ok(())
}

/// The API's name in the hosts file of the host has this address.
fn names(lab: &TestLab, host: &str, address: &str) -> Result<()> {
    let found = lab.on(host, "grep apiserver.cluster.local /etc/hosts")?;
    ensure!(found.split_whitespace().next() == Some(address), "{host}: {found}");
    Ok(())
}
