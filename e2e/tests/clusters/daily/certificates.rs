//! `create` renews certificates past two thirds of their lifetime. The test gives the hosts leaf certificates
//! of the cluster's authorities that are valid since 300 days and expire in 65 days, and reads the served
//! certificates from this machine.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::must;
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

/// The steps that write leaf certificates.
const RENEWALS: [&str; 8] = [
    "etcd/keys@h1",
    "control/keys@h1",
    "join/keys@h1",
    "join/keys@h2",
    "join/keys@h3",
    "network/config@h1",
    "network/config@h2",
    "network/config@h3",
];

/// The reasons of all other steps of a renewal: they follow from the changed certificates.
const REASONS_OF_OTHER_STEPS: [&str; 4] = [
    "a step that it reads runs again",
    "its agents were changed",
    "it was changed",
    "a component that DNS depends on was changed",
];

/// Days since the start of a certificate's validity.
type Age = i64;
const OLD: Age = 300;
const NEW: Age = 0;

/// Requires the cluster `daily` with the master h1 and the workers h2 and h3, and a plan without steps.
pub(crate) fn are_renewed(lab: &TestLab) -> Result<()> {
    let start = Instant::now();
    check_ages(lab, NEW)?;
    install_old_certificates(lab)?;
    check_ages(lab, OLD)?;
    let kubeconfig = fs::read_to_string(lab.file("conf/cluster/daily.yaml"))?;
    check_cluster_works(lab).context("with certificates of 300 days")?;
    plan_renews_certificates(lab)?;
    lab.must(&["create", "daily"])?;
    check_ages(lab, NEW)?;
    display_shows_new_certificates(lab)?;
    check_cluster_works(lab).context("with renewed certificates")?;
    ensure!(lab.plan("daily")?.is_empty(), "the plan must have no steps after a renewal");
    renews_only_the_kubeconfig(lab, &kubeconfig)?;
    println!("  certificates of 300 days on 3 hosts renewed: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Checks the age of all served certificates and of the admin's kubeconfig.
fn check_ages(lab: &TestLab, wanted: Age) -> Result<()> {
    for (host, port, server) in SERVED {
        let age = age_of_served(&format!("{}:{port}", lab.addresses[host - 1])).context(server)?;
        ensure!(age == wanted, "{server} serves a certificate of {age} days, not {wanted}");
    }
    let age = age_in_kubeconfig(lab)?;
    ensure!(age == wanted, "the kubeconfig contains a certificate of {age} days, not {wanted}");
    Ok(())
}

/// The age of the certificate that a server sends to clients.
fn age_of_served(address: &str) -> Result<Age> {
    age(&format!("openssl s_client -connect {address} < /dev/null 2> /dev/null"))
}

fn age_in_kubeconfig(lab: &TestLab) -> Result<Age> {
    let file = lab.file("conf/cluster/daily.yaml");
    age(&format!("sed -n 's/.*client-certificate-data: //p' '{}' | base64 -d", file.display()))
}

/// The age of the certificate that a command prints.
fn age(command: &str) -> Result<Age> {
    let output =
        must("sh", &["-c", &format!("{command} | openssl x509 -noout -startdate -dateopt iso_8601")], &[])?;
    let date = output.trim().strip_prefix("notBefore=").with_context(|| output.clone())?;
    Ok(Timestamp::now().duration_since(date.parse()?).as_hours() / 24)
}

/// Gives every host and the admin's kubeconfig certificates of 300 days, and restarts the services that use
/// them.
fn install_old_certificates(lab: &TestLab) -> Result<()> {
    let script = lab.file("aged.sh");
    fs::write(&script, include_str!("aged.sh"))?;
    let mut files = vec![script];
    for name in ["kubernetes", "etcd", "front-proxy", "kubelet-serving"] {
        files.push(lab.file(&format!("secret/daily/ca-{name}.pem")));
    }
    for file in &files {
        let name = file.file_name().context("no file name")?.to_string_lossy();
        lab.must(&["copy", "daily@all", &file.to_string_lossy(), &format!("/run/aged/{name}")])?;
    }
    let agents = ["flanneld.service", "kube-proxy.service", "kubelet.service"];
    let masters = [
        "etcd.service",
        "kube-apiserver.service",
        "kube-controller-manager.service",
        "kube-scheduler.service",
    ];
    for (host, more) in [("h1", &masters[..]), ("h2", &[]), ("h3", &[])] {
        let restarted = lab.on(host, "sh /run/aged/aged.sh /run/aged")?;
        let wanted: BTreeSet<&str> = agents.iter().chain(more).copied().collect();
        ensure!(restarted.lines().collect::<BTreeSet<_>>() == wanted, "restarted on {host}: {restarted}");
    }
    old_kubeconfig(lab)
}

/// Uses the master's `admin.crt`, which has the same permissions.
fn old_kubeconfig(lab: &TestLab) -> Result<()> {
    let file = lab.file("conf/cluster/daily.yaml");
    let mut text = fs::read_to_string(&file)?;
    for (key, leaf) in [("client-certificate-data: ", "admin.crt"), ("client-key-data: ", "admin.key")] {
        let old = lab.on("h1", &format!("base64 -w 0 /etc/kubernetes/pki/{leaf}"))?;
        let (head, rest) = text.split_once(key).with_context(|| format!("no {key}"))?;
        let rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
        text = format!("{head}{key}{}\n{rest}", old.trim());
    }
    Ok(fs::write(&file, text)?)
}

/// The plan renews the certificates because of their dates, and all other steps follow from that.
fn plan_renews_certificates(lab: &TestLab) -> Result<()> {
    let steps = lab.plan("daily")?;
    let mut renewals = BTreeSet::new();
    for step in &steps {
        let (id, why) = (step["id"].as_str().context("no id")?, step["why"].as_str().context("no reason")?);
        if why.starts_with("/etc/kubernetes/pki/")
            && why.ends_with(".crt is past two thirds of its life (65 days left)")
        {
            renewals.insert(id);
        } else {
            ensure!(REASONS_OF_OTHER_STEPS.contains(&why), "{id}: {why}");
        }
    }
    ensure!(renewals == BTreeSet::from(RENEWALS), "the plan renews {renewals:?}");
    println!(
        "  planned: {} steps, {} of them renew certificates with 65 days left",
        steps.len(),
        renewals.len()
    );
    Ok(())
}

/// `display` shows the renewed certificates of the master.
fn display_shows_new_certificates(lab: &TestLab) -> Result<()> {
    let output: Value = serde_json::from_str(&lab.must(&["display", "daily", "-o", "json"])?)?;
    let certificates = output["certificates"].as_array().context("no certificates")?;
    ensure!(certificates.len() > 15, "{certificates:?}");
    for certificate in certificates {
        ensure!(certificate["residualDays"].as_i64() >= Some(364), "{certificate}");
    }
    Ok(())
}

/// All services run, all nodes are Ready, the API server and every kubelet trust each other.
fn check_cluster_works(lab: &TestLab) -> Result<()> {
    let node = "kubelet kube-proxy flanneld containerd";
    lab.on(
        "h1",
        &format!("systemctl is-active etcd kube-apiserver kube-controller-manager kube-scheduler {node}"),
    )?;
    lab.kubectl("daily", &["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"])?;
    for host in ["h1", "h2", "h3"] {
        lab.on(host, &format!("systemctl is-active {node}"))?;
        let health =
            lab.kubectl("daily", &["get", "--raw", &format!("/api/v1/nodes/{host}/proxy/healthz")])?;
        ensure!(health == "ok", "kubelet of {host}: {health}");
    }
    Ok(())
}

/// Another machine may have renewed the hosts' certificates: `create` then only renews the local kubeconfig.
fn renews_only_the_kubeconfig(lab: &TestLab, old: &str) -> Result<()> {
    let file = lab.file("conf/cluster/daily.yaml");
    let new = fs::read_to_string(&file)?;
    lab.must(&["create", "daily"])?;
    ensure!(fs::read_to_string(&file)? == new, "a new kubeconfig must not change");
    fs::write(&file, old)?;
    lab.must(&["create", "daily"])?;
    check_ages(lab, NEW)?;
    lab.kubectl("daily", &["get", "nodes"]).map(drop)
}
