//! The meta cluster raises clusters: operator, Jobs and hosts are real. While it works, the operator is killed.

#[path = "meta_cluster/business.rs"]
mod business;
#[path = "meta_cluster/ends.rs"]
mod ends;
#[path = "meta_cluster/seed.rs"]
mod seed;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::Lab;
use kubeon_e2e::program::{eventually, must};
use serde_json::Value;

/// The meta cluster.
const META: &str = "meta";
/// Where the samples of kube-on-kube put their objects.
const SEED: &str = "kubeonkube";
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_meta_cluster_raises_clusters() -> Result<()> {
    let start = Instant::now();
    let ground = Ground { lab: Lab::up("e2e-meta", 4)? };
    ground.raise()?;
    told("lab, meta cluster and operator", start);
    ground.refuses()?;
    seed::shell_and_playbooks(&ground)?;
    business::made_grown_shrunk_and_gone(&ground)?;
    business::made_again_though_its_runner_is_killed(&ground)
}

#[allow(clippy::print_stderr, reason = "numbers for people who watch the test")]
fn told(what: &str, start: Instant) {
    eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
}

/// The lab: `h1` is the meta cluster, the others are free.
pub struct Ground {
    lab: Lab,
}

impl Ground {
    /// The one command.
    fn raise(&self) -> Result<()> {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
        let images = images.to_string_lossy();
        self.lab.must(&["meta", "up", "--lab", "e2e-meta", "--hosts", "4", "--images", &images])?;
        let replicas = self.kubectl(&[
            "-n",
            "kubeon-system",
            "get",
            "deployment",
            "kubeon-operator",
            "-o",
            "jsonpath={.status.readyReplicas}",
        ])?;
        ensure!(replicas == "2", "{replicas} operators are ready");
        Ok(())
    }

    /// Admission answers with the field and the reason.
    fn refuses(&self) -> Result<()> {
        let object = business::declared("bad", "9.9.9", &self.lab.addresses[1], &[]);
        let refused = self.apply(&object).err().context("an unknown version is refused")?.to_string();
        ensure!(refused.contains("kubeVersion") && refused.contains("9.9.9"), "{refused}");
        let object = business::declared("bad", "v1.36.3", "10.0.0.300", &[]);
        let refused = self.apply(&object).err().context("no address is refused")?.to_string();
        ensure!(refused.contains("masterList"), "{refused}");
        Ok(())
    }

    fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.lab.kubectl(META, words)
    }

    fn apply(&self, object: &Value) -> Result<()> {
        self.lab.apply(META, object)
    }

    fn get(&self, words: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get"], words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("kubectl prints JSON")
    }

    /// Runs the bundle's kubectl with another kubeconfig.
    fn kubectl_of(&self, kubeconfig: &Path, words: &[&str]) -> Result<String> {
        must(self.lab.file("bin/kubectl"), words, &[("KUBECONFIG", &kubeconfig.to_string_lossy())])
    }

    /// As a power failure of its process: all operators of the meta cluster, with no chance to say goodbye.
    fn kill_operators(&self) -> Result<()> {
        self.lab.on("h1", "pkill -9 -x kubeon-operator; true").map(drop)
    }

    /// The same for the one that leads; another one takes over when its lease ends.
    fn kill_leader(&self) -> Result<()> {
        let holder = self.kubectl(&[
            "-n",
            "kubeon-system",
            "get",
            "lease",
            "kubeon-operator",
            "-o",
            "jsonpath={.spec.holderIdentity}",
        ])?;
        let pod = holder.split('_').next().unwrap_or_default();
        let kill = format!(
            "for pid in $(pgrep -x kubeon-operator); do \
             tr '\\0' '\\n' </proc/$pid/environ | grep -qx 'POD_NAME={pod}' && kill -9 $pid && echo $pid; done; true"
        );
        let killed = self.lab.on("h1", &kill)?;
        ensure!(killed.lines().count() == 1, "the leader {holder} is one process of h1: {killed}");
        Ok(())
    }

    /// Everything that was said about an object, for those who look why a test failed.
    fn story(&self, kind: &str, name: &str) -> String {
        let told = |words: &[&str]| self.kubectl(words).unwrap_or_else(|error| error.to_string());
        let jobs = told(&["get", "jobs,pods", "-A", "-o", "wide"]);
        let log = told(&["-n", "kubeon-system", "logs", "deployment/kubeon-operator", "--tail=40"]);
        format!("{}\n{jobs}\n{log}", told(&["describe", kind, name]))
    }

    /// The host has nothing of a cluster.
    fn is_bare(&self, host: &str) -> Result<()> {
        let look = "ls -d /etc/kubernetes /var/lib/kubelet /var/lib/etcd /etc/systemd/system/kubelet.service 2>/dev/null; \
                    ps -eo comm= | grep -E 'kube|etcd|containerd|flanneld|haproxy'; true";
        let left = self.lab.on(host, look)?;
        ensure!(left.trim().is_empty(), "left on {host}: {left}");
        Ok(())
    }

    fn eventually<T>(&self, what: &str, limit: Duration, attempt: impl FnMut() -> Result<T>) -> Result<T> {
        eventually(what, limit, attempt)
    }
}
