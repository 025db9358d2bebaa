//! The lab with its meta cluster, and helpers for both.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::{SignedDuration, Timestamp};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::again_after;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::traces::Traces;
use super::{MINUTE, declared_cluster};

/// The meta cluster.
const META: &str = "meta";
/// The number of hosts; one is the meta cluster, the others are free.
const HOSTS: usize = 7;
/// The images, beside kubeon's, that operations may run.
const FOREIGN_IMAGES: &str = "docker.io/elsewhere/*,127.0.0.1:9/kubeon/none:1";
/// The namespace of the operator.
pub(crate) const OPERATOR: &str = "kubeon-system";
/// The pause between two attempts with kubectl, because many run at the same time.
const PAUSE: Duration = Duration::from_secs(1);
/// The API server's error while no operator serves the webhook.
pub(crate) const WEBHOOK_UNAVAILABLE: &str = "failed calling webhook";
/// The webhook's answer in the first moment after its start.
const WEBHOOK_STARTS: &str = "has not seen all clusters yet";

/// The lab: `h1` is the meta cluster, the others are free.
pub(crate) struct MetaCluster {
    pub lab: TestLab,
    /// The collector of the traces of operators and Jobs.
    pub traces: Traces,
    operator_lock: Mutex<()>,
}

/// Excludes tests that kill operators from tests that measure their times.
pub(crate) struct OperatorLock<'g>(#[allow(dead_code, reason = "held")] MutexGuard<'g, ()>);

impl MetaCluster {
    /// Creates the lab and the meta cluster with one command.
    pub(crate) fn create() -> Result<Self> {
        Self::create_in("e2e-meta", HOSTS)
    }

    /// The same in another lab, with this number of hosts.
    pub(crate) fn create_in(name: &str, hosts: usize) -> Result<Self> {
        let lab = TestLab::up(name, hosts)?;
        let meta = Self { traces: Traces::listen(&lab)?, lab, operator_lock: Mutex::default() };
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
        let (images, hosts) = (images.to_string_lossy(), hosts.to_string());
        let up: [&str; 8] = ["meta", "up", "--lab", name, "--hosts", &hosts, "--images", &images];
        let more = ["--otlp-endpoint", meta.traces.url.as_str(), "--allowed-image", FOREIGN_IMAGES];
        meta.lab.must(&[&up[..], &more[..]].concat())?;
        meta.operators_are_ready()?;
        Ok(meta)
    }

    fn operators_are_ready(&self) -> Result<()> {
        let path = "jsonpath={.status.readyReplicas}";
        let ready = self.kubectl(&["-n", OPERATOR, "get", "deployment", "kubeon-operator", "-o", path])?;
        ensure!(ready == "2", "{ready} operators are ready");
        Ok(())
    }

    /// Checks that admission refuses invalid objects and names the field and the value.
    pub(crate) fn refuses_invalid_objects(&self) -> Result<()> {
        let object = declared_cluster::declared("bad", "9.9.9", &self.lab.addresses[1], &[]);
        let error = self.apply(&object).err().context("an unknown version was accepted")?.to_string();
        ensure!(error.contains("kubeVersion") && error.contains("9.9.9"), "{error}");
        let object = declared_cluster::declared("bad", "v1.36.3", "10.0.0.300", &[]);
        let error = self.apply(&object).err().context("an invalid address was accepted")?.to_string();
        ensure!(error.contains("masterList"), "{error}");
        Ok(())
    }

    /// Checks that the operator and every Job so far run images that are named by their digests.
    pub(crate) fn images_are_pinned(&self) -> Result<()> {
        let operator = "jsonpath={.spec.template.spec.containers[0].image}";
        let operator =
            self.kubectl(&["-n", OPERATOR, "get", "deployment", "kubeon-operator", "-o", operator])?;
        let jobs = "jsonpath={.items[*].spec.template.spec.containers[*].image}";
        let jobs = self.kubectl(&["-n", OPERATOR, "get", "jobs", "-o", jobs])?;
        ensure!(!jobs.is_empty(), "there is no Job");
        for image in jobs.split_whitespace().chain([operator.as_str()]) {
            ensure!(image.contains("@sha256:"), "{image} is not named by its digest");
        }
        Ok(())
    }

    /// Checks that the webhook answers the API server and nobody else. Every other test shows the first.
    pub(crate) fn webhook_answers_only_the_api_server(&self) -> Result<()> {
        let path = "jsonpath={.spec.clusterIP}";
        let address = self.kubectl(&["-n", OPERATOR, "get", "service", "kubeon-webhook", "-o", path])?;
        let ask = |login: &str| {
            self.lab.on(
                "h1",
                &format!("curl -sk {login} -w '%{{http_code}}' -d '{{}}' https://{address}/validate"),
            )
        };
        let refused = ask("")?;
        ensure!(refused.ends_with("403") && refused.contains("has no certificate"), "{refused}");
        let pki = "/etc/kubernetes/pki/front-proxy-client";
        let reviewed = ask(&format!("--cert {pki}.crt --key {pki}.key"))?;
        ensure!(reviewed.ends_with("400"), "{reviewed}");
        Ok(())
    }

    /// The address of a host such as `h2`.
    pub(crate) fn address(&self, host: &str) -> Result<&str> {
        let number: usize = host.trim_start_matches('h').parse()?;
        let address = number.checked_sub(1).and_then(|index| self.lab.addresses.get(index));
        Ok(address.with_context(|| format!("the lab has no host {host}"))?)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.lab.kubectl(META, arguments)
    }

    pub(crate) fn apply(&self, object: &Value) -> Result<()> {
        retry_admission(|| self.lab.apply_text(META, &object.to_string()))
    }

    /// Applies a manifest given as text.
    pub(crate) fn apply_text(&self, text: &str) -> Result<()> {
        retry_admission(|| self.lab.apply_text(META, text))
    }

    /// Changes some fields of an object.
    pub(crate) fn patch(&self, arguments: &[&str], fields: &Value) -> Result<()> {
        let fields = fields.to_string();
        retry_admission(|| {
            self.kubectl(&[&["patch"], arguments, &["--type=merge", "-p", &fields]].concat()).map(drop)
        })
    }

    /// Requests an operation with the annotation, as older clients do.
    pub(crate) fn request_operation(&self, name: &str, operation: &str) -> Result<()> {
        self.annotate(name, "app.kubernetes.io/operation", operation)
    }

    pub(crate) fn annotate(&self, name: &str, key: &str, value: &str) -> Result<()> {
        self.patch(&["ecs", name], &json!({"metadata": {"annotations": {key: value}}}))
    }

    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Value> {
        let text = self.kubectl(&[&["get"], arguments, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).context("kubectl printed no JSON")
    }

    /// Runs the bundle's kubectl with another kubeconfig.
    pub(crate) fn kubectl_with(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
        self.lab.kubectl_with(kubeconfig, arguments)
    }

    /// Takes the lock for killing operators or measuring their times.
    pub(crate) fn lock_operators(&self) -> OperatorLock<'_> {
        OperatorLock(self.operator_lock.lock())
    }

    /// Waits until the pod of a Job runs.
    pub(crate) fn wait_pod_running(&self, namespace: &str, job: &str) -> Result<()> {
        self.eventually(&format!("the pod of {job} runs"), MINUTE, || self.pod_is_running(namespace, job))
    }

    /// Fails unless a Job has exactly one pod and it runs, or has completed its work, which may take less than a second.
    pub(crate) fn pod_is_running(&self, namespace: &str, job: &str) -> Result<()> {
        let (label, path) = (format!("job-name={job}"), "jsonpath={.items[*].status.phase}");
        let phase = self.kubectl(&["-n", namespace, "get", "pods", "-l", &label, "-o", path])?;
        ensure!(phase == "Running" || phase == "Succeeded", "{phase:?}");
        Ok(())
    }

    /// Kills all operators of the meta cluster with SIGKILL while the Job runs. Returns when both are ready again
    /// and one of them leads.
    pub(crate) fn kill_operators(&self, _: &OperatorLock<'_>, namespace: &str, job: &str) -> Result<()> {
        let before = self.leader()?;
        self.lab.on("h1", "pkill -9 -x kubeon-operator")?;
        self.pod_is_running(namespace, job).context("the Job stopped with its operators")?;
        self.wait_for_another_leader(&before)?;
        self.eventually("both operators are ready again", MINUTE * 2, || self.operators_are_ready())
    }

    /// Kills the leading operator with SIGKILL while the Job runs. Returns when the other operator leads, after the
    /// lease expired. Deletes the pod of the killed operator: the kubelet would delay a restart after many kills.
    pub(crate) fn kill_leader(&self, _: &OperatorLock<'_>, namespace: &str, job: &str) -> Result<()> {
        let holder = self.leader()?;
        let pod = holder.split('_').next().unwrap_or_default();
        let kill = format!(
            "for pid in $(pgrep -x kubeon-operator); do \
             tr '\\0' '\\n' </proc/$pid/environ | grep -qx 'POD_NAME={pod}' && kill -9 $pid && echo $pid; done; true"
        );
        let killed = self.lab.on("h1", &kill)?;
        ensure!(
            killed.lines().count() == 1,
            "the leader {holder} is not exactly one process on h1: {killed}"
        );
        self.pod_is_running(namespace, job).context("the Job stopped with the leader")?;
        self.kubectl(&["-n", OPERATOR, "delete", "pod", pod, "--wait=false"])?;
        self.wait_for_another_leader(&holder)
    }

    fn leader(&self) -> Result<String> {
        let arguments =
            ["-n", OPERATOR, "get", "lease", "kubeon-operator", "-o", "jsonpath={.spec.holderIdentity}"];
        let holder = self.kubectl(&arguments)?;
        ensure!(!holder.is_empty(), "no operator leads");
        Ok(holder)
    }

    fn wait_for_another_leader(&self, before: &str) -> Result<()> {
        self.eventually("another operator leads", MINUTE, || {
            let holder = self.leader()?;
            ensure!(holder != before, "{holder}");
            Ok(())
        })
    }

    /// Deletes the pod of a Job at once, as after the loss of its machine.
    pub(crate) fn kill_pod(&self, namespace: &str, job: &str) -> Result<()> {
        let label = format!("job-name={job}");
        let arguments = ["-n", namespace, "delete", "pod", "-l", &label, "--grace-period=0", "--force"];
        self.kubectl(&arguments).map(drop)
    }

    /// Waits until kubeon-node runs on a host and suspends it. Its Job does not end until [`Self::resume_node_agent`].
    pub(crate) fn suspend_node_agent(&self, host: &str) -> Result<()> {
        self.eventually(&format!("kubeon-node on {host} is suspended"), MINUTE * 3, || {
            self.lab.on(host, "pkill -STOP '^kubeon-node'").map(drop)
        })
    }

    /// Resumes kubeon-node on a host.
    pub(crate) fn resume_node_agent(&self, host: &str) -> Result<()> {
        self.lab.on(host, "pkill -CONT '^kubeon-node'; true").map(drop)
    }

    /// The description of an object, the Jobs, and the logs of both operators and of those before their restarts, for the error of
    /// a failed test.
    pub(crate) fn diagnosis(&self, kind: &str, name: &str) -> String {
        let output = |arguments: &[&str]| self.kubectl(arguments).unwrap_or_else(|error| error.to_string());
        let jobs = output(&["get", "jobs,pods", "-A", "-o", "wide"]);
        let logs =
            ["-n", OPERATOR, "logs", "-l", "app.kubernetes.io/component=operator", "--prefix", "--tail=60"];
        let (log, before) = (output(&logs), output(&[&logs[..], &["--previous"]].concat()));
        format!("{}\n{jobs}\n{before}\n{log}", output(&["describe", kind, name]))
    }

    pub(crate) fn eventually<T>(
        &self,
        what: &str,
        limit: Duration,
        attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        again_after(PAUSE, what, limit, attempt)
    }
}

/// Retries a write while the admission webhook does not answer, because tests kill operators.
fn retry_admission(mut write: impl FnMut() -> Result<()>) -> Result<()> {
    again_after(PAUSE, "the admission webhook answers", MINUTE, || match write() {
        Err(error)
            if [WEBHOOK_UNAVAILABLE, WEBHOOK_STARTS].iter().any(|text| error.to_string().contains(text)) =>
        {
            Err(error)
        }
        result => Ok(result),
    })?
}

/// Parses a time of an object.
pub(crate) fn time(value: &Value) -> Result<Timestamp> {
    let text = value.as_str().with_context(|| format!("{value} is not a time"))?;
    text.parse().with_context(|| format!("{text} is not a time"))
}

/// Returns the time between two moments, and fails if it is over the limit.
pub(crate) fn within(what: &str, from: Timestamp, to: Timestamp, seconds: i64) -> Result<SignedDuration> {
    let took = to.duration_since(from);
    if took.as_secs() > seconds {
        bail!("{what}: {took:#}, not within {seconds} s");
    }
    Ok(took)
}

/// A condition by its type.
pub(crate) fn condition<'v>(status: &'v Value, type_: &str) -> Option<&'v Value> {
    status["conditions"].as_array()?.iter().find(|one| one["type"] == type_)
}
