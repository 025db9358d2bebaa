//! Hosts renew certificates past two thirds of their lifetime without a command of the control machine and without a
//! restart. The test gives the hosts leaf certificates of the cluster's authorities that began 300 days ago and end in
//! 65 days, and reads the served certificates from this machine.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::certificates::{
    DUE, EXPIRED, kubeconfig_age, kubeconfig_of_master, redate_leaves, served_age,
};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::eventually;
use serde_json::Value;

/// Ports that serve a leaf certificate: the host, the port, the server.
const SERVED: [(usize, u16, &str); 6] = [
    (1, 6443, "kube-apiserver"),
    (1, 2379, "etcd to its clients"),
    (1, 2380, "etcd to its peers"),
    (1, 10250, "kubelet of h1"),
    (2, 10250, "kubelet of h2"),
    (3, 10250, "kubelet of h3"),
];

/// Days since the start of a certificate's validity.
type Age = i64;
const OLD: Age = 300;
const NEW: Age = 0;

/// How long a server may take to read a changed certificate: kubelets look once a minute.
const RELOAD: Duration = Duration::from_secs(90);

/// Requires the cluster `daily` with the master h1 and the workers h2 and h3, and a plan without steps.
pub(crate) fn are_renewed(lab: &TestLab) -> Result<()> {
    let start = Instant::now();
    all(lab, NEW)?;
    let kubeconfig = install_old_certificates(lab)?;
    eventually("old certificates are served", RELOAD, || all(lab, OLD))?;
    usable(lab).context("with certificates of 300 days")?;
    ensure!(lab.plan("daily")?.is_empty(), "a plan leaves the renewal to the hosts");
    let before = processes(lab)?;
    // A worker requests, the master signs, the worker installs.
    let renew = |host: &str| lab.on(host, "systemctl start kubeon-renew.service").map(drop);
    ["h1", "h2", "h3"].into_iter().try_for_each(renew)?;
    old_ones_are_shown(lab, &["h2", "h3"]).context("only workers have old certificates")?;
    ["h1", "h2", "h3"].into_iter().try_for_each(renew)?;
    renews_only_the_kubeconfig(lab, &kubeconfig)?;
    eventually("new certificates are served", RELOAD, || all(lab, NEW))?;
    displayed(lab)?;
    usable(lab).context("with renewed certificates")?;
    ensure!(lab.plan("daily")?.is_empty(), "the plan must have no steps after a renewal");
    ensure!(processes(lab)? == before, "a renewal restarts nothing");
    println!("  certificates of 300 days on 3 hosts renewed: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The master was off until all its leaves had ended: it starts with new ones, without a command.
pub(crate) fn are_renewed_at_boot(lab: &TestLab) -> Result<()> {
    let start = Instant::now();
    redate_leaves(lab, "daily", "h1", EXPIRED)?;
    lab.host("kill", "h1")?;
    lab.host("start", "h1")?;
    eventually("the master works with new certificates", RELOAD, || {
        all(lab, NEW)?;
        usable(lab)
    })?;
    for (unit, leaf) in [("etcd", "etcd/server"), ("kube-apiserver", "apiserver")] {
        let before = format!(
            "test $(stat -c %Y /etc/kubernetes/pki/{leaf}.crt) -le \
             $(date -d \"$(systemctl show -p ExecMainStartTimestamp --value {unit})\" +%s)"
        );
        lab.on("h1", &before).with_context(|| format!("{unit} started before {leaf}.crt was renewed"))?;
    }
    lab.wait_up_to_date("daily", RELOAD)?;
    println!("  a master with expired certificates started: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The main processes of the services of every host.
fn processes(lab: &TestLab) -> Result<Vec<String>> {
    let units =
        "etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy flanneld haproxy";
    let show = format!("systemctl show --property=Id,MainPID,ActiveEnterTimestamp {units}");
    ["h1", "h2", "h3"].iter().map(|host| lab.on(host, &show)).collect()
}

/// Checks the age of all served certificates and of the admin's kubeconfig.
fn all(lab: &TestLab, wanted: Age) -> Result<()> {
    for (host, port, server) in SERVED {
        let age = served_age(&format!("{}:{port}", lab.addresses[host - 1])).context(server)?;
        ensure!(age == wanted, "{server} serves a certificate of {age} days, not {wanted}");
    }
    let age = kubeconfig_age(lab, "daily")?;
    ensure!(age == wanted, "the kubeconfig contains a certificate of {age} days, not {wanted}");
    Ok(())
}

/// Gives every host and the admin's kubeconfig certificates of 300 days. Returns the old kubeconfig.
fn install_old_certificates(lab: &TestLab) -> Result<String> {
    for host in ["h1", "h2", "h3"] {
        redate_leaves(lab, "daily", host, DUE)?;
    }
    let old = kubeconfig_of_master(lab, "daily", "h1")?;
    fs::write(lab.file("conf/cluster/daily.yaml"), &old)?;
    Ok(old)
}

/// The certificate that ends first, as `ls` and `display` show it.
fn earliest(lab: &TestLab) -> Result<[Value; 2]> {
    let json = |arguments: &[&str]| -> Result<Value> { Ok(serde_json::from_str(&lab.must(arguments)?)?) };
    let listed = json(&["ls", "-o", "json"])?;
    let row = listed.as_array().and_then(|rows| rows.iter().find(|row| row["name"] == "daily"));
    let shown = json(&["display", "daily", "-o", "json"])?;
    Ok([row.context("daily is not listed")?["certificates"].clone(), shown["earliestExpiry"].clone()])
}

/// Whether `ls` and `display` show a certificate of one of the hosts that ends in 65 days.
fn old_ones_are_shown(lab: &TestLab, hosts: &[&str]) -> Result<()> {
    for shown in earliest(lab)? {
        let (host, days) = (shown["host"].as_str(), shown["residualDays"].as_i64());
        ensure!(host.is_some_and(|host| hosts.contains(&host)), "{shown} is not on {hosts:?}");
        ensure!(days.is_some_and(|days| days <= 65), "{shown}");
    }
    Ok(())
}

/// `display` shows the renewed certificates of the master, and `ls` and `display` no older one of a worker.
fn displayed(lab: &TestLab) -> Result<()> {
    let output: Value = serde_json::from_str(&lab.must(&["display", "daily", "-o", "json"])?)?;
    let certificates = output["certificates"].as_array().context("certificates")?;
    ensure!(certificates.len() > 15, "{certificates:?}");
    for certificate in certificates {
        ensure!(certificate["residualDays"].as_i64() >= Some(364), "{certificate}");
    }
    for shown in earliest(lab)? {
        ensure!(shown["residualDays"].as_i64() >= Some(364), "{shown}");
    }
    Ok(())
}

/// All services run, all nodes are Ready, the API server and every kubelet trust each other.
fn usable(lab: &TestLab) -> Result<()> {
    let node = "kubelet kube-proxy flanneld containerd";
    lab.on(
        "h1",
        &format!("systemctl is-active etcd kube-apiserver kube-controller-manager kube-scheduler {node}"),
    )?;
    lab.kubectl("daily", &["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"])?;
    for host in ["h1", "h2", "h3"] {
        lab.on(host, &format!("systemctl is-active {node}"))?;
        // A kubelet closes its connections when it reads another certificate; the API server then connects again.
        eventually(&format!("the API server reaches the kubelet of {host}"), RELOAD, || {
            let health =
                lab.kubectl("daily", &["get", "--raw", &format!("/api/v1/nodes/{host}/proxy/healthz")])?;
            ensure!(health == "ok", "kubelet of {host}: {health}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Hosts do not renew the local kubeconfig: `create` does, and changes nothing else.
fn renews_only_the_kubeconfig(lab: &TestLab, old: &str) -> Result<()> {
    let file = lab.file("conf/cluster/daily.yaml");
    ensure!(fs::read_to_string(&file)? == old, "only a command changes the kubeconfig");
    lab.must(&["create", "daily"])?;
    let new = fs::read_to_string(&file)?;
    ensure!(new != old, "an old kubeconfig must be renewed");
    lab.must(&["create", "daily"])?;
    ensure!(fs::read_to_string(&file)? == new, "a new kubeconfig must not change");
    lab.kubectl("daily", &["get", "nodes"]).map(drop)
}
