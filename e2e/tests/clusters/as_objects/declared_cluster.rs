//! A declared cluster: created, scaled up and down; retained and declared again; deleted; created again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::environment::{MetaCluster, condition};
use super::operation_results::stored_log;
use super::{MINUTE, deletion, kubectl_output, print_time, samples};

/// Its name in the example.
pub(crate) const NAME: &str = "shop";
/// The namespace of declared clusters.
pub(crate) const NAMESPACE: &str = "default";
/// Its hosts: the master, the first worker, and a later worker.
pub(crate) const MASTER: &str = "h4";
pub(crate) const FIRST_WORKER: &str = "h5";
pub(crate) const SECOND_WORKER: &str = "h6";
/// Services of the master that are stopped.
const SERVICES: [&str; 2] = ["kube-scheduler", "kube-controller-manager"];

/// Runs the complete life cycle twice.
pub(crate) fn run(meta: &MetaCluster) -> Result<()> {
    let kubeconfig = create(meta)?;
    ready_follows_the_master(meta, &kubeconfig)?;
    repair_and_renew(meta)?;
    scale_up_with_killed_runner_and_operator(meta, &kubeconfig)?;
    scale_down_with_killed_runner_and_operator(meta, &kubeconfig)?;
    kubectl_output::check_description(meta)?;
    deletion::retain_and_declare_again(meta, &kubeconfig)?;
    deletion::delete_with_killed_runner_and_operator(meta)?;
    create_again_with_killed_runner_and_operator(meta)?;
    deletion::delete_with_dead_host(meta)
}

/// The object of a declared cluster.
pub(crate) fn declared(name: &str, version: &str, master: &str, workers: &[&str]) -> Value {
    let nodes: Vec<Value> = workers.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}], "nodeList": nodes,
            "authConfig": {"credentialsRef": {"name": "lab-login"}}}}})
}

/// Applies the object with these workers.
pub(crate) fn declare(meta: &MetaCluster, workers: &[&str]) -> Result<()> {
    let workers = workers.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>()?;
    meta.apply(&declared(NAME, VERSION, meta.address(MASTER)?, &workers))
}

/// Creates the cluster from the example with changed addresses.
fn create(meta: &MetaCluster) -> Result<PathBuf> {
    let replacements = [("172.30.0.12", meta.address(MASTER)?), ("172.30.0.13", meta.address(FIRST_WORKER)?)];
    meta.apply_text(&samples::with_replacements("meta/kubernetes-cluster.yaml", &replacements)?)?;
    wait_up_to_date(meta, "create-finished")?;
    has_step_records(meta)?;
    mounts_the_bundle(meta)?;
    meta.kubectl(&["wait", "--for=condition=Ready", "ecs/shop", "--timeout=10s"])?;
    let kubeconfig = kubeconfig(meta)?;
    wait_nodes_ready(meta, &kubeconfig, 2)?;
    check_pinned_keys(meta, &[MASTER, FIRST_WORKER], &[MASTER, FIRST_WORKER])?;
    Ok(kubeconfig)
}

/// The only master dies and returns: `Ready` becomes false within a minute, and true again. An observer may read nodes only.
fn ready_follows_the_master(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    let observer = secret_kubeconfig(meta, "observer")?;
    meta.kubectl_with(&observer, &["get", "nodes"])?;
    for forbidden in ["secrets", "pods"] {
        let refused = meta.kubectl_with(&observer, &["get", forbidden, "-A"]);
        let error = refused.err().with_context(|| format!("an observer reads {forbidden}"))?.to_string();
        ensure!(error.contains("cannot list resource"), "{error}");
    }
    // The timer starts it every ten minutes.
    meta.lab.on(MASTER, "systemctl start kubeon-renew")?;
    meta.kubectl(&["wait", "--for=condition=CertificatesRenewed", "ecs/shop", "--timeout=60s"])
        .context("the master's report is not observed")?;
    // A new leader observes from the beginning.
    let lock = meta.lock_operators();
    meta.lab.host("kill", MASTER)?;
    let start = Instant::now();
    meta.kubectl(&["wait", "--for=condition=Ready=false", "ecs/shop", "--timeout=60s"])
        .context("Ready does not follow the death of the only master")?;
    print_time("Ready=False after the death of the only master", start);
    drop(lock);
    meta.lab.host("start", MASTER)?;
    let start = Instant::now();
    meta.kubectl(&["wait", "--for=condition=Ready", "ecs/shop", "--timeout=180s"])
        .context("Ready does not follow the return of the only master")?;
    print_time("Ready=True after the start of the only master", start);
    wait_nodes_ready(meta, kubeconfig, 2)?;
    meta.kubectl(&["wait", "--for=condition=Degraded=false", "ecs/shop", "--timeout=60s"]).map(drop)
}

/// Reads the plan of a change, which starts these services. Returns its operation, which waits for an approval.
fn read_plan(meta: &MetaCluster, services: &[&str]) -> Result<String> {
    let operation = meta.eventually("a plan waits for its approval", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        let progressing = condition(&status, "Progressing").context("no condition Progressing")?;
        ensure!(progressing["reason"] == "WaitsForApproval", "{status:#}");
        let command = progressing["message"].as_str().unwrap_or_default();
        let (_, operation) = command.split_once("kubeon.io/approve=").context("no command")?;
        Ok(operation.to_owned())
    })?;
    let planned = meta.get(&[samples::OPERATIONS, &operation])?;
    let job = planned["status"]["jobRef"]["name"].as_str().context("no Job")?.to_owned();
    meta.eventually("the log has the plan", MINUTE, || {
        let log = stored_log(meta, NAMESPACE, &format!("{job}-log"))?;
        ensure!(services.iter().all(|service| log.contains(service)), "{log}");
        Ok(())
    })?;
    are_stopped(meta, services).context("a plan changes nothing")?;
    Ok(operation)
}

fn are_stopped(meta: &MetaCluster, services: &[&str]) -> Result<()> {
    services
        .iter()
        .try_for_each(|service| meta.lab.on(MASTER, &format!("! systemctl is-active -q {service}")).map(drop))
}

/// The master differs from what was planned when the plan is approved: nothing is applied, and the status says why.
fn is_out_of_date(meta: &MetaCluster, planned: &str) -> Result<()> {
    let [_, manager] = SERVICES;
    meta.lab.on(MASTER, &format!("systemctl disable --now {manager}"))?;
    meta.annotate(NAME, "kubeon.io/approve", planned)?;
    let reason = meta.eventually("the approved change fails", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed", "{status:#}");
        Ok(status["reason"].as_str().unwrap_or_default().to_owned())
    })?;
    ensure!(reason.contains("is out of date: ") && reason.contains(manager), "{reason}");
    are_stopped(meta, &SERVICES).context("a plan that is out of date is not applied")
}

/// Whether changes of the cluster need an approval.
fn plan_first(meta: &MetaCluster, plan: bool) -> Result<()> {
    meta.patch(&["ecs", NAME], &json!({"spec": {"plan": plan}}))
}

/// Stopped services run again after their plan was approved, and the kubeconfigs are new.
fn repair_and_renew(meta: &MetaCluster) -> Result<()> {
    let old = std::fs::read(secret_kubeconfig(meta, "observer")?)?;
    let [scheduler, _] = SERVICES;
    meta.lab.on(MASTER, &format!("systemctl disable --now {scheduler}"))?;
    plan_first(meta, true)?;
    meta.request_operation(NAME, "repairing")?;
    is_out_of_date(meta, &read_plan(meta, &[scheduler])?)?;
    meta.request_operation(NAME, "repairing")?;
    meta.annotate(NAME, "kubeon.io/approve", &read_plan(meta, &SERVICES)?)?;
    meta.eventually("the approved change begins", MINUTE * 2, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] != "Failed", "{status:#}");
        Ok(())
    })?;
    wait_up_to_date(meta, "repair-finished")?;
    plan_first(meta, false)?;
    for service in SERVICES {
        meta.lab.on(MASTER, &format!("systemctl is-active {service}"))?;
    }
    ensure!(std::fs::read(secret_kubeconfig(meta, "observer")?)? != old, "the observer's kubeconfig is old");
    meta.request_operation(NAME, "renewing")?;
    wait_up_to_date(meta, "renew-finished")?;
    let observer = secret_kubeconfig(meta, "observer")?;
    meta.kubectl_with(&observer, &["get", "nodes"]).map(drop)
}

/// Kills the runner's pod while it runs: the operation fails with a reason, and a new request continues. Then
/// kills the leading operator while that Job runs.
fn scale_up_with_killed_runner_and_operator(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[FIRST_WORKER, SECOND_WORKER])?;
    kill_runner(meta, "scale-up-", SECOND_WORKER)?;
    kill_leader_during_job(meta, "scale-up-", "scale-up-finished", || {
        meta.request_operation(NAME, "scaling-up")
    })?;
    wait_nodes_ready(meta, kubeconfig, 3)?;
    check_pinned_keys(meta, &[MASTER, FIRST_WORKER, SECOND_WORKER], &[SECOND_WORKER])
}

fn scale_down_with_killed_runner_and_operator(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[SECOND_WORKER])?;
    kill_runner(meta, "scale-down-", FIRST_WORKER)?;
    kill_leader_during_job(meta, "scale-down-", "scale-down-finished", || {
        meta.request_operation(NAME, "scaling-down")
    })?;
    wait_nodes_ready(meta, kubeconfig, 2)?;
    meta.lab.is_bare(FIRST_WORKER)
}

fn create_again_with_killed_runner_and_operator(meta: &MetaCluster) -> Result<()> {
    declare(meta, &[FIRST_WORKER])?;
    kill_runner(meta, "create-", MASTER)?;
    kill_leader_during_job(meta, "create-", "create-finished", || meta.request_operation(NAME, "creating"))?;
    wait_nodes_ready(meta, &kubeconfig(meta)?, 2)
}

/// The steps of the cluster's last operation are stored.
fn has_step_records(meta: &MetaCluster) -> Result<()> {
    let status = meta.get(&["ecs", NAME])?["status"].clone();
    let job = status["jobName"].as_str().context("no Job")?;
    meta.eventually("log and steps are stored", MINUTE, || {
        let map = meta.get(&["configmap", &format!("{job}-log"), "-n", NAMESPACE])?;
        let steps = map["binaryData"]["steps.json.zst"].as_str().unwrap_or_default();
        // The first bytes of Zstandard's format.
        ensure!(steps.starts_with("KLUv/"), "{:?} {steps:.20}", map["metadata"]);
        Ok(())
    })
}

/// The Job of the cluster's last operation has the bundle without a copy.
fn mounts_the_bundle(meta: &MetaCluster) -> Result<()> {
    let status = meta.get(&["ecs", NAME])?["status"].clone();
    let job = meta.get(&["job", status["jobName"].as_str().context("no Job")?, "-n", NAMESPACE])?;
    let pod = &job["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().context("no volumes")?;
    let image = volumes.iter().find_map(|volume| volume["image"]["reference"].as_str());
    let mounts =
        image.is_some_and(|image| image.contains("kubeon-bundle")) && pod["initContainers"].is_null();
    ensure!(mounts, "{pod}");
    Ok(())
}

/// Kills the running pod of the Job while it changes a host.
pub(crate) fn kill_runner(meta: &MetaCluster, prefix: &str, host: &str) -> Result<()> {
    // Before the status names the Job: without a leading operator that may be when it has nearly ended.
    meta.suspend_node_agent(host).map_err(|error| error.context(meta.diagnosis("ecs", NAME)))?;
    let job = wait_job_running(meta, NAME, prefix)?;
    meta.eventually("the status reports steps", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["step"].as_str().is_some_and(|step| step.contains('/')), "{status:#}");
        Ok(())
    })?;
    meta.kill_pod(NAMESPACE, &job)?;
    meta.eventually("the status reports the failure", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed" && !status["reason"].is_null(), "{status:#}");
        Ok(())
    })?;
    meta.resume_node_agent(host)
}

/// Makes a change, and kills the leading operator while the Job for it runs.
fn kill_leader_during_job(
    meta: &MetaCluster,
    prefix: &str,
    finished: &str,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let lock = meta.lock_operators();
    change()?;
    let job = wait_job_running(meta, NAME, prefix)?;
    meta.kill_leader(&lock, NAMESPACE, &job)?;
    drop(lock);
    wait_up_to_date(meta, finished)
}

/// Waits until the container of a cluster's Job runs, and returns the Job's name.
pub(crate) fn wait_job_running(meta: &MetaCluster, name: &str, prefix: &str) -> Result<String> {
    let job = meta.eventually(&format!("a Job {prefix}… runs"), MINUTE * 2, || {
        let status = meta.get(&["ecs", name])?["status"].clone();
        let job = status["jobName"].as_str().unwrap_or_default().to_owned();
        ensure!(job.starts_with(prefix), "{status:#}");
        meta.pod_is_running(NAMESPACE, &job)?;
        Ok(job)
    });
    job.map_err(|error| error.context(meta.diagnosis("ecs", name)))
}

/// Waits until the operation annotation has the value `finished` and the cluster is up to date.
pub(crate) fn wait_up_to_date(meta: &MetaCluster, finished: &str) -> Result<()> {
    let start = Instant::now();
    let result = meta.eventually(finished, MINUTE * 5, || {
        let object = meta.get(&["ecs", NAME])?;
        let operation = object["metadata"]["annotations"]["app.kubernetes.io/operation"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let ended = (phase == "Running" && operation == finished) || phase == "Failed";
        ensure!(ended, "{phase} {operation} {:#}", object["status"]);
        Ok((phase, operation))
    });
    match result {
        Ok((phase, _)) if phase == "Running" => {
            print_time(finished, start);
            Ok(())
        }
        Ok(other) => bail!("{other:?}\n{}", meta.diagnosis("ecs", NAME)),
        Err(error) => Err(error.context(meta.diagnosis("ecs", NAME))),
    }
}

/// The kubeconfig in the Secret for users.
pub(crate) fn kubeconfig(meta: &MetaCluster) -> Result<PathBuf> {
    secret_kubeconfig(meta, "kubeconfig")
}

/// The kubeconfig in a Secret of the cluster.
fn secret_kubeconfig(meta: &MetaCluster, suffix: &str) -> Result<PathBuf> {
    let template = r"go-template={{.data.kubeconfig | base64decode}}";
    let text = meta.kubectl(&["get", "secret", &format!("default-shop-{suffix}"), "-o", template])?;
    let file = meta.lab.file(&format!("shop.{suffix}"));
    std::fs::write(&file, text)?;
    Ok(file)
}

/// Waits until the cluster has this number of nodes and all are Ready.
pub(crate) fn wait_nodes_ready(meta: &MetaCluster, kubeconfig: &Path, count: usize) -> Result<()> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    meta.eventually("the nodes are Ready", MINUTE, || {
        let text = meta.kubectl_with(kubeconfig, &["get", "nodes", "-o", ready])?;
        let states: Vec<&str> = text.lines().collect();
        ensure!(states.len() == count && states.iter().all(|state| *state == "True"), "{states:?}");
        Ok(())
    })
}

/// The ConfigMap contains the keys of all hosts. One event of the object and one of the operation list the
/// new keys.
fn check_pinned_keys(meta: &MetaCluster, all: &[&str], new: &[&str]) -> Result<()> {
    let addresses = |hosts: &[&str]| hosts.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>();
    let (all, new) = (addresses(all)?, addresses(new)?);
    let text = meta.get(&["configmap", "default-shop-known-hosts"])?["data"]["known_hosts"].clone();
    let text = text.as_str().context("the ConfigMap has no keys")?;
    let known: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(known.len() == all.len() && all.iter().all(|host| known.contains(host)), "{text}");
    let prefix = format!("{} new: ", new.len());
    meta.eventually("events list the keys", MINUTE, || {
        let events = meta.get(&["events", "-A", "--field-selector", "reason=HostKeysPinned"])?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let count_of = |kind: &str| {
            let messages = events.iter().filter(|event| event["involvedObject"]["kind"] == kind);
            let messages = messages.filter_map(|event| event["message"].as_str());
            messages
                .filter(|message| {
                    message.starts_with(&prefix) && new.iter().all(|host| message.contains(host))
                })
                .count()
        };
        let count = (count_of("KubernetesCluster"), count_of("ClusterOperation"));
        ensure!(count == (1, 1), "{prefix:?}: {count:?} in {events:#?}");
        Ok(())
    })
}
