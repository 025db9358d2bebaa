//! Hosts renew certificates past two thirds of their lifetime without a command of the control machine and without a
//! restart. The test gives the hosts leaf certificates of the cluster's authorities that began 300 days ago and end in
//! 65 days, and reads the served certificates from this machine.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{eventually, must};
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
    for host in ["h1", "h2", "h3", "h1", "h2", "h3"] {
        lab.on(host, "systemctl start kubeon-renew.service")?;
    }
    renews_only_the_kubeconfig(lab, &kubeconfig)?;
    eventually("new certificates are served", RELOAD, || all(lab, NEW))?;
    displayed(lab)?;
    usable(lab).context("with renewed certificates")?;
    ensure!(lab.plan("daily")?.is_empty(), "the plan must have no steps after a renewal");
    ensure!(processes(lab)? == before, "a renewal restarts nothing");
    println!("  certificates of 300 days on 3 hosts renewed: {:.1} s", start.elapsed().as_secs_f64());
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
        let age = served(&format!("{}:{port}", lab.addresses[host - 1])).context(server)?;
        ensure!(age == wanted, "{server} serves a certificate of {age} days, not {wanted}");
    }
    let age = in_kubeconfig(lab)?;
    ensure!(age == wanted, "the kubeconfig contains a certificate of {age} days, not {wanted}");
    Ok(())
}

/// The age of the certificate that a server sends to clients.
fn served(address: &str) -> Result<Age> {
    age(&format!("openssl s_client -connect {address} < /dev/null 2> /dev/null"))
}

fn in_kubeconfig(lab: &TestLab) -> Result<Age> {
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

/// Gives every host and the admin's kubeconfig certificates of 300 days. Returns the old kubeconfig.
fn install_old_certificates(lab: &TestLab) -> Result<String> {
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
    for host in ["h1", "h2", "h3"] {
        lab.on(host, "sh /run/aged/aged.sh /run/aged")?;
    }
    old_kubeconfig(lab)?;
    Ok(fs::read_to_string(lab.file("conf/cluster/daily.yaml"))?)
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

/// `display` shows the renewed certificates of the master.
fn displayed(lab: &TestLab) -> Result<()> {
    let output: Value = serde_json::from_str(&lab.must(&["display", "daily", "-o", "json"])?)?;
    let certificates = output["certificates"].as_array().context("certificates")?;
    ensure!(certificates.len() > 15, "{certificates:?}");
    for certificate in certificates {
        ensure!(certificate["residualDays"].as_i64() >= Some(364), "{certificate}");
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
