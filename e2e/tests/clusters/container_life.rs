//! A cluster of static pods over the years: its hosts renew its certificates, a tried version is given up, all programs change to the next
//! minor version and to new keys, and the cluster comes back on other hosts out of a snapshot. It serves all the time, and no
//! acknowledged write is lost.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::certificates::{DUE, file_age, redate_leaves, served_age};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use kubeon_e2e::{probe, writer};

use crate::container_mode::{OF_MASTER, runs_static_pods, timed};
use crate::rotation::Before;
use crate::upgrade::{serve, upgraded};

const MINUTE: Duration = Duration::from_secs(60);
const MASTERS: [&str; 3] = ["h1", "h2", "h3"];
const WORKER: &str = "h4";
/// The hosts after the restore, which the cluster never had before.
const NEW_MASTERS: [&str; 2] = ["h5", "h6"];
const NEW_WORKER: &str = "h7";
/// The programs of a master by the names of their processes, which have at most 15 letters.
const PROCESSES: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller", "kube-scheduler"];
const PKI: &str = "/etc/kubernetes/pki";

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_a_cluster_in_containers_is_upgraded_rotated_and_restored() -> Result<()> {
    let lab = TestLab::up("e2e-pods-life", 7)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["bundle", "build", NEXT])?;
    let masters = hosts[..3].join(",");
    let create = ["create", cluster, VERSION, "--deploy-mode", "container", "-m", &masters, "-w", &hosts[3]];
    timed("create 3 + 1", || lab.must(&create))?;
    lab.must(&["use", cluster])?;
    runs_static_pods(&lab, &MASTERS, &[WORKER])?;
    has_version(&lab, &MASTERS, VERSION)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    serve(&lab)?;
    probe::start(&lab, WORKER)?;
    probe::start_service(&lab, WORKER, "web")?;

    certificates_are_renewed(&lab)?;
    // The pod that writes stays on the only worker: no node is drained.
    writer::start(&lab, "upgrade", 480)?;
    let haproxy = start_of(&lab, WORKER, "haproxy")?;
    a_tried_version_is_given_up(&lab)?;
    timed("upgrade of 3 + 1", || lab.must(&["upgrade", cluster, NEXT, "--skip-evict"]))?;
    no_request_failed(&lab)?;
    ensure!(
        start_of(&lab, WORKER, "haproxy")? == haproxy,
        "haproxy was started again: do both bundles have one part haproxy?"
    );
    println!("  {}", writer::report(&lab)?);
    writer::remove(&lab)?;
    upgraded(&lab)?;
    writer::remove(&lab)?;
    runs_static_pods(&lab, &MASTERS, &[WORKER])?;
    has_version(&lab, &MASTERS, NEXT)?;

    keys_are_replaced(&lab)?;
    for unit in ["probe", "service-probe"] {
        lab.on(WORKER, &format!("systemctl stop {unit}"))?;
    }
    restored_on_other_hosts(&lab)
}

/// Every host renews its certificates by itself. The static pods serve the new ones without another start.
fn certificates_are_renewed(lab: &TestLab) -> Result<()> {
    let hosts = || MASTERS.into_iter().chain([WORKER]);
    let timer = |command: &str, host: &str| lab.on(host, &format!("systemctl {command} kubeon-renew.timer"));
    for host in hosts() {
        // It would renew them before they are served.
        timer("stop", host)?;
        redate_leaves(lab, lab.name(), host, DUE)?;
    }
    eventually("the certificates of 300 days are served", 3 * MINUTE, || served(lab, 300))?;
    let before = starts(lab)?;
    // A worker requests, a master signs, the worker installs.
    eventually("the certificates are renewed", 2 * MINUTE, || {
        for host in hosts().chain(hosts()) {
            lab.on(host, "systemctl start kubeon-renew.service")?;
        }
        hosts().try_for_each(|host| is_new(lab, host, "kubelet-serving"))?;
        for host in MASTERS {
            ["apiserver", "etcd/server", "etcd/peer", "controller-manager", "scheduler"]
                .iter()
                .try_for_each(|leaf| is_new(lab, host, leaf))?;
        }
        Ok(())
    })?;
    eventually("the new certificates are served", 3 * MINUTE, || served(lab, 0))?;
    ensure!(starts(lab)? == before, "a renewal starts no static pod again");
    no_request_failed(lab)?;
    hosts().try_for_each(|host| timer("start", host).map(drop))?;
    lab.wait_up_to_date(lab.name(), MINUTE)
}

fn is_new(lab: &TestLab, host: &str, leaf: &str) -> Result<()> {
    let days = file_age(lab, host, &format!("{PKI}/{leaf}.crt"))?;
    ensure!(days == 0, "{leaf} on {host} began {days} days ago");
    Ok(())
}

/// API servers and members of etcd serve certificates that began so many days ago.
fn served(lab: &TestLab, wanted: i64) -> Result<()> {
    for address in &lab.addresses[..MASTERS.len()] {
        for port in [6443, 2379, 2380] {
            let days = served_age(&format!("{address}:{port}"))?;
            ensure!(days == wanted, "{address}:{port} serves a certificate that began {days} days ago");
        }
    }
    Ok(())
}

/// An upgrade that is killed while masters try the version goes back to the images of the old one.
fn a_tried_version_is_given_up(lab: &TestLab) -> Result<()> {
    const TRIED: &str = "--emulated-version=1.36";
    let api_server = |host: &str| lab.on(host, "cat /etc/kubernetes/manifests/kube-apiserver.yaml");
    let mut upgrade = Running::start(lab, &["upgrade", lab.name(), NEXT, "--skip-evict"])?;
    upgrade.until("the trial on the second master", 10 * MINUTE, |_| {
        api_server("h2").is_ok_and(|manifest| manifest.contains(TRIED))
    })?;
    upgrade.kill()?;
    let first = api_server("h1")?;
    ensure!(first.contains(TRIED) && first.contains(&format!("kube-apiserver:{NEXT}")), "{first}");
    timed("abort while two of three masters try the version", || lab.must(&["abort", lab.name()]))?;
    for host in MASTERS {
        let manifest = api_server(host)?;
        ensure!(!manifest.contains(TRIED), "{host}: {manifest}");
    }
    lab.wait_up_to_date(lab.name(), MINUTE)?;
    has_version(lab, &MASTERS, VERSION)?;
    no_request_failed(lab)
}

/// The pods of the masters are of the images of the version, their programs and the API servers that run too, and so is CoreDNS.
/// kubeadm has no configuration in the cluster.
fn has_version(lab: &TestLab, masters: &[&str], version: &str) -> Result<()> {
    let (cluster, tags) = (lab.name(), tags(version)?);
    let tag = |program: &str| tags.get(program).with_context(|| format!("the catalogue has no {program}"));
    for host in masters {
        for program in OF_MASTER {
            let image = format!("registry.k8s.io/{program}:{}", tag(program)?);
            let pod = format!("{program}-{host}");
            let found =
                ["get", "pod", &pod, "-n", "kube-system", "-o", "jsonpath={.spec.containers[0].image}"];
            eventually("the pod has the image", MINUTE, || {
                let found = lab.kubectl(cluster, &found)?;
                ensure!(found == image, "{pod} has {found}, not {image}");
                Ok(())
            })?;
        }
        for (process, program) in PROCESSES.into_iter().zip(OF_MASTER) {
            let running = lab.on(host, &format!("/proc/$(pgrep -xo {process})/exe --version"))?;
            let wanted = tag(program)?.trim_start_matches('v');
            let wanted = wanted.split('-').next().unwrap_or(wanted);
            ensure!(running.contains(wanted), "{program} on {host} is {running}, not {wanted}");
        }
    }
    let image = "jsonpath={.spec.template.spec.containers[0].image}";
    let dns = lab.kubectl(cluster, &["get", "deployment", "coredns", "-n", "kube-system", "-o", image])?;
    let wanted = format!(":{}", tag("coredns")?);
    ensure!(dns.ends_with(&wanted), "CoreDNS is {dns}, not {wanted}");
    let kept = lab.kubectl(cluster, &["get", "configmaps", "-n", "kube-system", "-o", "name"])?;
    for name in ["kubeadm-config", "kubelet-config"] {
        ensure!(!kept.contains(name), "kubeadm would find {name}: {kept}");
    }
    Ok(())
}

/// The tags of the images of a version, as the catalogue says, by their names.
pub(crate) fn tags(version: &str) -> Result<BTreeMap<String, String>> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../catalogue/versions").join(format!("{version}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let (_, tags) = text.split_once("\ntags:\n").context("the version has no tags")?;
    let pairs = tags.lines().filter_map(|line| line.trim().split_once(": "));
    Ok(pairs.map(|(name, tag)| (name.to_owned(), tag.trim_matches('"').to_owned())).collect())
}

/// All keys are replaced. The static pods start again, because they read authorities only then.
fn keys_are_replaced(lab: &TestLab) -> Result<()> {
    let keys = Before::of(lab)?;
    let before = starts(lab)?;
    writer::start(lab, "rotation", 600)?;
    timed("rotation of 3 + 1", || lab.must(&["certs", "rotate", lab.name(), "--yes"]))?;
    no_request_failed(lab)?;
    keys.is_over(lab, &MASTERS, WORKER)?;
    let after = starts(lab)?;
    for (old, new) in before.iter().zip(&after) {
        ensure!(old != new, "a program reads the old authority: {old} of {before:?}, now {after:?}");
    }
    for host in MASTERS {
        trusts_the_new_authorities(lab, host)?;
    }
    println!("  {}", writer::report(lab)?);
    writer::remove(lab)?;
    runs_static_pods(lab, &MASTERS, &[WORKER])
}

/// The API server and the member of etcd of a host serve certificates of the authorities on it.
fn trusts_the_new_authorities(lab: &TestLab, host: &str) -> Result<()> {
    let client = format!("-cert {PKI}/etcd/healthcheck-client.crt -key {PKI}/etcd/healthcheck-client.key");
    for (port, authority, client) in [(6443, "ca.crt", ""), (2379, "etcd/ca.crt", client.as_str())] {
        let command = format!(
            "openssl s_client -connect 127.0.0.1:{port} -CAfile {PKI}/{authority} {client} </dev/null 2>/dev/null \
             | grep 'Verify return code'"
        );
        let verified = lab.on(host, &command)?;
        ensure!(verified.contains(": 0 (ok)"), "port {port} of {host}: {verified}");
    }
    Ok(())
}

/// When each program of the control plane was started, on one master after another.
fn starts(lab: &TestLab) -> Result<Vec<String>> {
    let of_host = |host: &'static str| PROCESSES.into_iter().map(move |process| (host, process));
    MASTERS.into_iter().flat_map(of_host).map(|(host, process)| start_of(lab, host, process)).collect()
}

/// The process of a program, and when it was started. The first one of several is the parent of the others.
fn start_of(lab: &TestLab, host: &str, process: &str) -> Result<String> {
    let started = lab.on(host, &format!("ps -o pid= -o lstart= -p $(pgrep -xo {process})"))?;
    Ok(format!("{process} on {host}: {}", started.trim()))
}

fn no_request_failed(lab: &TestLab) -> Result<()> {
    println!("  {}", probe::none_failed(lab, WORKER)?);
    println!("  {}", probe::none_to_service_failed(lab, WORKER)?);
    Ok(())
}

/// The cluster is saved, destroyed, and made out of its snapshot on hosts that it never had: a Secret can be read, and a token is valid.
fn restored_on_other_hosts(lab: &TestLab) -> Result<()> {
    let (cluster, file) = (lab.name(), lab.file("pods.db").display().to_string());
    let token = lab.kubectl(cluster, &["create", "token", "default", "--duration=24h"])?;
    timed("snapshot", || lab.must(&["etcd", "save", cluster, &file]))?;
    timed("destroy", || lab.must(&["destroy", cluster, "--yes"]))?;
    MASTERS.into_iter().chain([WORKER]).try_for_each(|host| lab.is_bare(host))?;
    let masters = lab.addresses[4..6].join(",");
    let restore = ["etcd", "restore", cluster, &file, "-m", &masters, "-w", &lab.addresses[6]];
    timed("2 + 1 out of the snapshot", || lab.must(&restore))?;
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let nodes = lab.kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes == "node/h5\nnode/h6\nnode/h7\n", "{nodes}");
    runs_static_pods(lab, &NEW_MASTERS, &[NEW_WORKER])?;
    has_version(lab, &NEW_MASTERS, NEXT)?;
    let word = lab.kubectl(cluster, &["get", "secret", "sealed", "-o", "jsonpath={.data.word}"])?;
    ensure!(word == "a2VwdA==", "the Secret can be read: {word}");
    let user = user_of(lab, token.trim())?;
    ensure!(user == "system:serviceaccount:default:default", "the token is of {user}");
    ensure!(lab.plan(cluster)?.is_empty(), "the plan has no steps");
    timed("destroy", || lab.must(&["destroy", cluster, "--yes"]))?;
    NEW_MASTERS.into_iter().chain([NEW_WORKER]).try_for_each(|host| lab.is_bare(host))
}

/// The user of a token, as the API server knows it. The kubeconfig has the token in place of the administrator's certificate.
fn user_of(lab: &TestLab, token: &str) -> Result<String> {
    let own = std::fs::read_to_string(lab.file(&format!("conf/cluster/{}.yaml", lab.name())))?;
    let mut text = String::new();
    for line in own.lines() {
        let key = line.trim_start();
        if key.starts_with("client-certificate-data: ") {
            text += &format!("{}token: {token}\n", &line[..line.len() - key.len()]);
        } else if !key.starts_with("client-key-data: ") {
            text += &format!("{line}\n");
        }
    }
    let file = lab.file("token-kubeconfig");
    std::fs::write(&file, text)?;
    lab.kubectl_with(&file, &["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
}
