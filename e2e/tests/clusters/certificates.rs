//! A cluster with certificates of ten minutes, the shortest life that an API server signs, lives on without a command.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::certificates::{kubeconfig_of_master, redate_kubelet};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{again_after, must};

const MINUTES: u32 = 10;
const LIFE: Duration = Duration::from_secs(MINUTES as u64 * 60);
/// Looks for due certificates as often, in relation to their life, as a host with certificates of a year.
const TIMER: &str = "mkdir -p /etc/systemd/system/kubeon-renew.timer.d && printf '[Timer]\\nOnActiveSec=10s\\n\
                     OnUnitInactiveSec=30s\\nRandomizedDelaySec=0\\n' > /etc/systemd/system/kubeon-renew.timer.d/test.conf && \
                     systemctl daemon-reload && systemctl restart kubeon-renew.timer";
/// The servers of each host, by port.
const SERVED: [(usize, u16); 6] = [(0, 6443), (0, 2379), (0, 2380), (0, 10250), (1, 10250), (2, 10250)];

#[test]
#[ignore = "takes an hour: ./test long"]
fn soak_a_cluster_outlives_five_lifetimes_of_its_certificates() -> Result<()> {
    let lab = TestLab::up("e2e-leaves", 3)?;
    create(&lab)?;
    lab.must(&["use", lab.name()])?;
    let begin = Instant::now();
    for host in ["h1", "h2", "h3"] {
        lab.on(host, TIMER)?;
    }
    // From here on nobody gives the cluster a command. One host is off for two of the five lifetimes.
    live_until(begin, LIFE)?;
    // The controller manager issues the kubelet's own certificate for a year: this one ends while its host is off.
    redate_kubelet(&lab, lab.name(), "h3", ["-365 days", "+2 minutes"])?;
    lab.host("kill", "h3")?;
    live_until(begin, 3 * LIFE + LIFE / 10)?;
    lab.host("start", "h3")?;
    lab.on("h3", TIMER)?;
    live_until(begin, 5 * LIFE + LIFE / 10)?;
    // Its bootstrap certificate has ended too, so the kubelet could not request another one by itself.
    let renewed =
        "journalctl -q --no-pager -u kubeon-renew | grep 'renewed /var/lib/kubelet/pki/kubelet-client'";
    lab.on("h3", renewed).context("the client certificate of the kubelet of h3 is not renewed")?;

    for (host, port) in SERVED {
        let address = format!("{}:{port}", lab.addresses[host]);
        let what = format!("{address} serves a valid certificate");
        again_after(Duration::from_secs(5), &what, LIFE / 5, || valid(&address))?;
    }
    // No command repaired anything: the kubeconfig on the control machine has ended, and that of a master has not.
    let kubeconfig = lab.file("valid-kubeconfig");
    fs::write(&kubeconfig, kubeconfig_of_master(&lab, lab.name(), "h1")?)?;
    nodes_are_ready(&lab, &kubeconfig).context("without a command")?;
    lab.wait_up_to_date(lab.name(), LIFE / 10)?;
    // The next command renews the kubeconfig on the control machine.
    create(&lab)?;
    nodes_are_ready(&lab, &lab.file(&format!("conf/cluster/{}.yaml", lab.name())))?;
    pods_run_on_every_host(&lab)?;
    lab.must(&["destroy", lab.name(), "--yes"]).map(drop)
}

fn create(lab: &TestLab) -> Result<()> {
    let minutes = MINUTES.to_string();
    let answer = lab.kubeon_with(&lab.create(lab.name(), 1), &[("KUBEON_TEST_LEAF_MINUTES", &minutes)])?;
    ensure!(answer.code == 0, "{answer:?}");
    Ok(())
}

fn live_until(begin: Instant, age: Duration) -> Result<()> {
    sleep(age.checked_sub(begin.elapsed()).context("the steps before took too long")?);
    Ok(())
}

/// The server's certificate is valid now, and is one of the short ones.
fn valid(address: &str) -> Result<()> {
    let show = |option: &str| {
        let command = format!(
            "openssl s_client -connect {address} < /dev/null 2> /dev/null | openssl x509 -noout {option}"
        );
        must("sh", &["-c", &command], &[])
    };
    show("-checkend 0").with_context(|| address.to_owned())?;
    let hours = show("-checkend 7200");
    ensure!(hours.is_err(), "{address} serves a certificate of a long life");
    Ok(())
}

fn nodes_are_ready(lab: &TestLab, kubeconfig: &Path) -> Result<()> {
    let ready =
        r#"jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {end}"#;
    let nodes = lab.kubectl_with(kubeconfig, &["get", "nodes", "-o", ready])?;
    ensure!(nodes.trim() == "h1 True h2 True h3 True", "{nodes}");
    Ok(())
}

/// A new pod needs the API server, the scheduler, the controllers and the kubelet; its log needs the kubelet's server.
fn pods_run_on_every_host(lab: &TestLab) -> Result<()> {
    lab.load_client(lab.name())?;
    for host in ["h1", "h2", "h3"] {
        lab.apply(lab.name(), &kubeon_e2e::image::pod(host, Some(host)))?;
    }
    let wait = ["wait", "--for=condition=Ready", "pod/h1", "pod/h2", "pod/h3", "--timeout=120s"];
    lab.kubectl(lab.name(), &wait)?;
    for host in ["h1", "h2", "h3"] {
        lab.kubectl(
            lab.name(),
            &["exec", host, "--", "/lab-client", "resolve", "kubernetes.default.svc.cluster.local"],
        )?;
    }
    Ok(())
}
