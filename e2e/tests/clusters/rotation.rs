//! All keys of a cluster are replaced while it serves.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{eventually, run};
use kubeon_e2e::running::Running;
use kubeon_e2e::{probe, writer};

const MINUTE: Duration = Duration::from_secs(60);
const PKI: &str = "/etc/kubernetes/pki";
const SECRET: &str = "sealed";
/// What the output of `openssl verify` contains for a certificate that the authority signed.
const VERIFIED: &str = ": OK";

#[test]
#[ignore = "takes several minutes: ./test long"]
fn soak_a_killed_rotation_continues() -> Result<()> {
    let lab = TestLab::up("e2e-rotation", 2)?;
    let cluster = lab.name();
    lab.must(&lab.create(cluster, 1))?;
    let before = Before::of(&lab)?;
    let refused = lab.kubeon(&["certs", "rotate", cluster])?;
    ensure!(refused.code == 2 && refused.err.contains("--yes"), "{refused:?}");

    // The second phase has begun: both keys are in use.
    let mut rotation = Running::start(&lab, &["certs", "rotate", cluster, "--yes"])?;
    rotation.until("the second phase", 3 * MINUTE, |run| phase_after(&run.output(), "phase 2 of 4"))?;
    rotation.kill()?;
    let plan = lab.must(&["plan", cluster])?;
    ensure!(!plan.contains("nothing to do"), "the phase is not complete: {plan}");

    lab.must(&["certs", "rotate", cluster])?;
    before.is_over(&lab, &["h1"], "h2")?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// Whether a step was completed after the announcement of the phase.
fn phase_after(output: &str, phase: &str) -> bool {
    output.split_once(phase).is_some_and(|(_, after)| after.contains('✓') || after.contains("\"done\""))
}

#[test]
#[ignore = "takes several minutes: ./test long"]
fn soak_a_rotation_of_three_masters_loses_no_write() -> Result<()> {
    let lab = TestLab::up("e2e-rotate-ha", 4)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let masters = ["-m", &hosts[0], "-m", &hosts[1], "-m", &hosts[2], "-w", &hosts[3]];
    lab.must(&[&["create", cluster, VERSION], &masters[..]].concat())?;
    let before = Before::of(&lab)?;
    writer::start(&lab, "rotation", 420)?;
    probe::start(&lab, "h4")?;
    let begin = Instant::now();
    lab.must(&["certs", "rotate", cluster, "--yes"])?;
    println!("  the rotation of 3 + 1 hosts took {:.0} s", begin.elapsed().as_secs_f64());
    // The writer repeats a write that failed; the probe does not.
    println!("  {}", probe::none_failed(&lab, "h4")?);
    before.is_over(&lab, &["h1", "h2", "h3"], "h4")?;
    println!("  {}", writer::report(&lab)?);
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// What was there before the rotation.
pub(crate) struct Before {
    authority: String,
    kubeconfig: PathBuf,
    /// The pods of CoreDNS with the number of their restarts.
    dns: String,
}

impl Before {
    pub(crate) fn of(lab: &TestLab) -> Result<Self> {
        let cluster = lab.name();
        lab.must(&["use", cluster])?;
        lab.wait_up_to_date(cluster, MINUTE)?;
        lab.kubectl(cluster, &["create", "secret", "generic", SECRET, "--from-literal=word=kept"])?;
        let kubeconfig = lab.file("old-kubeconfig");
        std::fs::copy(lab.file(&format!("conf/cluster/{cluster}.yaml")), &kubeconfig)?;
        let authority = lab.on("h1", &format!("cat {PKI}/ca.crt"))?;
        Ok(Self { authority, kubeconfig, dns: dns_pods(lab)? })
    }

    /// Checks that the cluster uses new keys only, and that its pods did not notice.
    pub(crate) fn is_over(&self, lab: &TestLab, masters: &[&str], worker: &str) -> Result<()> {
        let cluster = lab.name();
        lab.wait_up_to_date(cluster, MINUTE)?;
        let kept = lab.kubectl(cluster, &["get", "secret", SECRET, "-o", "jsonpath={.data.word}"])?;
        ensure!(kept == "a2VwdA==", "the Secret is still readable: {kept}");
        ensure!(stored(lab)?.starts_with("k8s:enc:secretbox:v1:key2:"), "{}", stored(lab)?);
        let kubeconfig = self.kubeconfig.display().to_string();
        let old = run(lab.file("bin/kubectl"), &["--kubeconfig", &kubeconfig, "get", "nodes"], &[])?;
        ensure!(old.code != 0, "the old kubeconfig is refused: {old:?}");
        for master in masters {
            self.authority_is_replaced(lab, master)?;
        }
        self.authority_is_replaced(lab, worker)?;
        ensure!(dns_pods(lab)? == self.dns, "the pods run on: {} became {}", self.dns, dns_pods(lab)?);
        self.dns_follows_the_api(lab, worker)?;
        let folder = lab.file(&format!("secret/{cluster}"));
        let mut left = std::fs::read_dir(&folder)?.map(|file| file.map(|file| file.file_name()));
        let old = left.find(|name| name.as_ref().is_ok_and(|name| name == "ca-kubernetes.pem"));
        ensure!(old.is_none(), "the old key is still in {}", folder.display());
        Ok(())
    }

    /// The host trusts one authority, which is new, and the kubelet has a certificate of it.
    fn authority_is_replaced(&self, lab: &TestLab, host: &str) -> Result<()> {
        let now = lab.on(host, &format!("cat {PKI}/ca.crt"))?;
        ensure!(now.matches("BEGIN CERTIFICATE").count() == 1 && now != self.authority, "{host}: {now}");
        let own = "/var/lib/kubelet/pki/kubelet-client-current.pem";
        let verified = lab.on(host, &format!("openssl verify -CAfile {PKI}/ca.crt {own}"))?;
        ensure!(verified.contains(VERIFIED), "{host}: {verified}");
        Ok(())
    }

    /// CoreDNS read the old authority when it started. It still learns of a new Service.
    fn dns_follows_the_api(&self, lab: &TestLab, worker: &str) -> Result<()> {
        let cluster = lab.name();
        lab.kubectl(cluster, &["create", "service", "clusterip", "fresh", "--tcp=80"])?;
        let address =
            lab.kubectl(cluster, &["get", "service", "fresh", "-o", "jsonpath={.spec.clusterIP}"])?;
        let dns = lab.kubectl(
            cluster,
            &["get", "service", "-n", "kube-system", "kube-dns", "-o", "jsonpath={.spec.clusterIP}"],
        )?;
        // Its client waits up to a minute after a failed attempt, and the API server was restarted several times.
        eventually("CoreDNS knows the new Service", 3 * MINUTE, || {
            let answer = lab.on(worker, &format!("python3 -c '{QUERY}' {dns}"))?;
            ensure!(answer.trim() == address, "{answer} is not {address}");
            Ok(())
        })
    }
}

/// Prints the address of `fresh.default.svc.cluster.local` by the server in its argument.
const QUERY: &str = "import socket, sys
question = b\"\".join(bytes([len(word)]) + word for word in b\"fresh.default.svc.cluster.local\".split(b\".\"))
query = b\"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\" + question + b\"\\0\\0\\1\\0\\1\"
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(5)
client.sendto(query, (sys.argv[1], 53))
print(\".\".join(str(byte) for byte in client.recv(512)[-4:]))";

fn dns_pods(lab: &TestLab) -> Result<String> {
    let fields =
        "jsonpath={range .items[*]}{.metadata.name} {.status.containerStatuses[0].restartCount};{end}";
    lab.kubectl(lab.name(), &["get", "pods", "-n", "kube-system", "-l", "k8s-app=kube-dns", "-o", fields])
}

/// The beginning of the Secret in etcd.
fn stored(lab: &TestLab) -> Result<String> {
    let etcd = format!("{PKI}/etcd");
    lab.on(
        "h1",
        &format!(
            "etcdctl --endpoints=https://127.0.0.1:2379 --cacert={etcd}/ca.crt --cert={etcd}/healthcheck-client.crt \
             --key={etcd}/healthcheck-client.key get /registry/secrets/default/{SECRET} --print-value-only | head -c 26"
        ),
    )
}
