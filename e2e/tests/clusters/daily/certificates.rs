//! Certificates past two thirds of their life are renewed by any run that finds them. The hosts are given leaves of the
//! cluster's own authorities that began 300 days ago and end in 65; what is served then is looked at from the machine.

use std::collections::BTreeSet;
use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::must;
use serde_json::Value;

/// Ports that serve with a leaf: the host, the port, what listens there.
const SERVED: [(usize, u16, &str); 6] = [
    (1, 6443, "kube-apiserver"),
    (1, 2379, "etcd to its clients"),
    (1, 2380, "etcd to its peers"),
    (1, 10250, "kubelet of h1"),
    (2, 10250, "kubelet of h2"),
    (3, 10250, "kubelet of h3"),
];

/// The steps that write leaves.
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

/// Why all other steps of a renewal are due: nothing but the leaves has changed.
const FOLLOWS: [&str; 4] = [
    "what it reads is written again",
    "its agents were changed",
    "it was changed",
    "what it rests on was changed",
];

/// Days since a certificate began.
type Age = i64;
const OLD: Age = 300;
const NEW: Age = 0;

/// Needs the cluster `daily` with the master h1 and the workers h2 and h3, with nothing to do.
pub(crate) fn are_renewed(lab: &TestLab) -> Result<()> {
    let start = Instant::now();
    all(lab, NEW)?;
    grow_old(lab)?;
    all(lab, OLD)?;
    let kubeconfig = fs::read_to_string(lab.file("conf/cluster/daily.yaml"))?;
    usable(lab).context("with leaves of 300 days")?;
    planned(lab)?;
    lab.must(&["create", "daily"])?;
    all(lab, NEW)?;
    shown(lab)?;
    usable(lab).context("with renewed leaves")?;
    ensure!(lab.plan("daily")?.is_empty(), "nothing to do after a renewal");
    kubeconfig_alone(lab, &kubeconfig)?;
    println!("  leaves of 300 days on 3 hosts, renewed: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Everything that serves with a leaf, and the admin's kubeconfig.
fn all(lab: &TestLab, wanted: Age) -> Result<()> {
    for (host, port, what) in SERVED {
        let seen = served(&format!("{}:{port}", lab.addresses[host - 1])).context(what)?;
        ensure!(seen == wanted, "{what} serves a certificate of {seen} days, not {wanted}");
    }
    let seen = in_kubeconfig(lab)?;
    ensure!(seen == wanted, "the kubeconfig holds a certificate of {seen} days, not {wanted}");
    Ok(())
}

/// The certificate that a client gets.
fn served(address: &str) -> Result<Age> {
    age(&format!("openssl s_client -connect {address} < /dev/null 2> /dev/null"))
}

fn in_kubeconfig(lab: &TestLab) -> Result<Age> {
    let file = lab.file("conf/cluster/daily.yaml");
    age(&format!("sed -n 's/.*client-certificate-data: //p' '{}' | base64 -d", file.display()))
}

/// Of the certificate that a command prints.
fn age(command: &str) -> Result<Age> {
    let told =
        must("sh", &["-c", &format!("{command} | openssl x509 -noout -startdate -dateopt iso_8601")], &[])?;
    let date = told.trim().strip_prefix("notBefore=").with_context(|| told.clone())?;
    Ok(Timestamp::now().duration_since(date.parse()?).as_hours() / 24)
}

/// Gives every host and the admin's kubeconfig leaves of 300 days and restarts the services that use them.
fn grow_old(lab: &TestLab) -> Result<()> {
    let script = lab.file("aged.sh");
    fs::write(&script, include_str!("aged.sh"))?;
    let mut files = vec![script];
    for name in ["kubernetes", "etcd", "front-proxy", "kubelet-serving"] {
        files.push(lab.file(&format!("secret/daily/ca-{name}.pem")));
    }
    for file in &files {
        let name = file.file_name().context("a name")?.to_string_lossy();
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
        ensure!(restarted.lines().collect::<BTreeSet<_>>() == wanted, "started again on {host}: {restarted}");
    }
    old_kubeconfig(lab)
}

/// The leaf of the same name on the master has the same rights.
fn old_kubeconfig(lab: &TestLab) -> Result<()> {
    let file = lab.file("conf/cluster/daily.yaml");
    let mut text = fs::read_to_string(&file)?;
    for (key, leaf) in [("client-certificate-data: ", "admin.crt"), ("client-key-data: ", "admin.key")] {
        let old = lab.on("h1", &format!("base64 -w 0 /etc/kubernetes/pki/{leaf}"))?;
        let (head, rest) = text.split_once(key).with_context(|| format!("no {key}"))?;
        let rest = rest.split_once('\n').map_or("", |it| it.1);
        text = format!("{head}{key}{}\n{rest}", old.trim());
    }
    Ok(fs::write(&file, text)?)
}

/// The plan renews because of the dates that it saw on the hosts, and does nothing that does not follow.
fn planned(lab: &TestLab) -> Result<()> {
    let steps = lab.plan("daily")?;
    let mut renewals = BTreeSet::new();
    for step in &steps {
        let (id, why) = (step["id"].as_str().context("an id")?, step["why"].as_str().context("a reason")?);
        if why.starts_with("/etc/kubernetes/pki/")
            && why.ends_with(".crt is past two thirds of its life (65 days left)")
        {
            renewals.insert(id);
        } else {
            ensure!(FOLLOWS.contains(&why), "{id}: {why}");
        }
    }
    ensure!(renewals == BTreeSet::from(RENEWALS), "renewed would be {renewals:?}");
    println!("  planned: {} steps, {} of them renew leaves with 65 days left", steps.len(), renewals.len());
    Ok(())
}

/// What a person sees of the leaves on the master.
fn shown(lab: &TestLab) -> Result<()> {
    let told: Value = serde_json::from_str(&lab.must(&["display", "daily", "-o", "json"])?)?;
    let certificates = told["certificates"].as_array().context("certificates")?;
    ensure!(certificates.len() > 15, "{certificates:?}");
    for one in certificates {
        ensure!(one["residualDays"].as_i64() >= Some(364), "{one}");
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
        let said = lab.kubectl("daily", &["get", "--raw", &format!("/api/v1/nodes/{host}/proxy/healthz")])?;
        ensure!(said == "ok", "kubelet of {host}: {said}");
    }
    Ok(())
}

/// Another machine may have renewed what is on the hosts: `create` finds nothing to do there, and an old kubeconfig here.
fn kubeconfig_alone(lab: &TestLab, old: &str) -> Result<()> {
    let file = lab.file("conf/cluster/daily.yaml");
    let new = fs::read_to_string(&file)?;
    lab.must(&["create", "daily"])?;
    ensure!(fs::read_to_string(&file)? == new, "a kubeconfig that is new stays");
    fs::write(&file, old)?;
    lab.must(&["create", "daily"])?;
    all(lab, NEW)?;
    lab.kubectl("daily", &["get", "nodes"]).map(drop)
}
