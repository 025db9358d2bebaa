//! A declared cluster: made, grown, shrunk; let go and taken up again; taken down; made again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::environment::MetaCluster;
use super::{MINUTE, gone, seed, story, told};

/// Its name, as the example has it.
pub(crate) const NAME: &str = "shop";
/// The namespace of declared clusters.
pub(crate) const PLACE: &str = "default";
/// Its hosts: the master, the worker that it begins with, the one that comes later.
pub(crate) const MASTER: &str = "h4";
pub(crate) const FIRST: &str = "h5";
pub(crate) const SECOND: &str = "h6";

/// Its whole life, twice.
pub(crate) fn all(meta: &MetaCluster) -> Result<()> {
    let kubeconfig = made(meta)?;
    grown_though_runner_and_operator_are_killed(meta, &kubeconfig)?;
    shrunk_though_runner_and_operator_are_killed(meta, &kubeconfig)?;
    story::of_a_life(meta)?;
    gone::let_go_and_taken_up_again(meta, &kubeconfig)?;
    gone::taken_down_though_runner_and_operator_are_killed(meta)?;
    made_again_though_runner_and_operator_are_killed(meta)?;
    gone::with_a_dead_host(meta)
}

/// A cluster as a person declares it.
pub(crate) fn declared(name: &str, version: &str, master: &str, workers: &[&str]) -> Value {
    let nodes: Vec<Value> = workers.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name, "namespace": PLACE},
        "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}], "nodeList": nodes,
            "authConfig": {"credentialsRef": {"name": "lab-login"}}}}})
}

/// Declares it with these workers.
pub(crate) fn declare(meta: &MetaCluster, workers: &[&str]) -> Result<()> {
    let workers = workers.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>()?;
    meta.apply(&declared(NAME, VERSION, meta.address(MASTER)?, &workers))
}

/// By the file that a newcomer applies, changed in its addresses.
fn made(meta: &MetaCluster) -> Result<PathBuf> {
    let words = [("172.30.0.12", meta.address(MASTER)?), ("172.30.0.13", meta.address(FIRST)?)];
    meta.apply_text(&seed::filled("meta/kubernetes-cluster.yaml", &words)?)?;
    settled(meta, "create-finished")?;
    meta.kubectl(&["wait", "--for=condition=Ready", "ecs/shop", "--timeout=10s"])?;
    let kubeconfig = kubeconfig(meta)?;
    nodes(meta, &kubeconfig, 2)?;
    pinned(meta, &[MASTER, FIRST], &[MASTER, FIRST])?;
    Ok(kubeconfig)
}

/// The runner's pod is killed at work: that is a failure with a reason, and asking again goes on; while that works, the
/// operator that leads is killed.
fn grown_though_runner_and_operator_are_killed(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[FIRST, SECOND])?;
    runner_killed(meta, "scale-up-", SECOND)?;
    struck(meta, "scale-up-", "scale-up-finished", || meta.ask(NAME, "scaling-up"))?;
    nodes(meta, kubeconfig, 3)?;
    pinned(meta, &[MASTER, FIRST, SECOND], &[SECOND])
}

fn shrunk_though_runner_and_operator_are_killed(meta: &MetaCluster, kubeconfig: &Path) -> Result<()> {
    declare(meta, &[SECOND])?;
    runner_killed(meta, "scale-down-", FIRST)?;
    struck(meta, "scale-down-", "scale-down-finished", || meta.ask(NAME, "scaling-down"))?;
    nodes(meta, kubeconfig, 2)?;
    meta.lab.is_bare(FIRST)
}

fn made_again_though_runner_and_operator_are_killed(meta: &MetaCluster) -> Result<()> {
    declare(meta, &[FIRST])?;
    runner_killed(meta, "create-", MASTER)?;
    struck(meta, "create-", "create-finished", || meta.ask(NAME, "creating"))?;
    nodes(meta, &kubeconfig(meta)?, 2)
}

/// Kills the pod that works, in the midst of what it does to the host.
pub(crate) fn runner_killed(meta: &MetaCluster, begins: &str, host: &str) -> Result<()> {
    let job = at_work(meta, NAME, begins)?;
    meta.hang(host)?;
    meta.eventually("its steps are told", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["step"].as_str().is_some_and(|step| step.contains('/')), "{status:#}");
        Ok(())
    })?;
    meta.kill_pod(PLACE, &job)?;
    meta.eventually("the failure is told", MINUTE, || {
        let status = meta.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed" && !status["reason"].is_null(), "{status:#}");
        Ok(())
    })?;
    meta.wake(host)
}

/// Something is changed, and the operator that leads is killed while the Job for it works.
fn struck(meta: &MetaCluster, begins: &str, word: &str, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let alone = meta.alone();
    change()?;
    let job = at_work(meta, NAME, begins)?;
    meta.kill_leader(&alone, PLACE, &job)?;
    drop(alone);
    settled(meta, word)
}

/// The Job that works for a cluster, once its container runs.
pub(crate) fn at_work(meta: &MetaCluster, name: &str, begins: &str) -> Result<String> {
    let job = meta.eventually(&format!("a Job {begins}… works"), MINUTE * 2, || {
        let status = meta.get(&["ecs", name])?["status"].clone();
        let job = status["jobName"].as_str().unwrap_or_default().to_owned();
        ensure!(job.starts_with(begins), "{status:#}");
        meta.is_at_work(PLACE, &job)?;
        Ok(job)
    });
    job.map_err(|error| error.context(meta.story("ecs", name)))
}

/// The operation went well, and the cluster runs as declared.
pub(crate) fn settled(meta: &MetaCluster, word: &str) -> Result<()> {
    let start = Instant::now();
    let seen = meta.eventually(word, MINUTE * 5, || {
        let object = meta.get(&["ecs", NAME])?;
        let told = object["metadata"]["annotations"]["app.kubernetes.io/operation"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        let over = (phase == "Running" && told == word) || phase == "Failed";
        ensure!(over, "{phase} {told} {:#}", object["status"]);
        Ok((phase, told))
    });
    match seen {
        Ok((phase, _)) if phase == "Running" => {
            told(word, start);
            Ok(())
        }
        Ok(other) => bail!("{other:?}\n{}", meta.story("ecs", NAME)),
        Err(error) => Err(error.context(meta.story("ecs", NAME))),
    }
}

/// The kubeconfig that the operator keeps for people.
fn kubeconfig(meta: &MetaCluster) -> Result<PathBuf> {
    let template = r"go-template={{.data.kubeconfig | base64decode}}";
    let text = meta.kubectl(&["get", "secret", "default-shop-kubeconfig", "-o", template])?;
    let file = meta.lab.file("shop.kubeconfig");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// The cluster has so many nodes, all Ready.
pub(crate) fn nodes(meta: &MetaCluster, kubeconfig: &Path, count: usize) -> Result<()> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    meta.eventually("its nodes are Ready", MINUTE, || {
        let text = meta.kubectl_of(kubeconfig, &["get", "nodes", "-o", ready])?;
        let words: Vec<&str> = text.lines().collect();
        ensure!(words.len() == count && words.iter().all(|word| *word == "True"), "{words:?}");
        Ok(())
    })
}

/// The ConfigMap beside the object holds the keys of all hosts; one event of the object and one of the operation name the
/// new ones.
fn pinned(meta: &MetaCluster, all: &[&str], new: &[&str]) -> Result<()> {
    let addresses = |hosts: &[&str]| hosts.iter().map(|host| meta.address(host)).collect::<Result<Vec<_>>>();
    let (all, new) = (addresses(all)?, addresses(new)?);
    let text = meta.get(&["configmap", "default-shop-known-hosts"])?["data"]["known_hosts"].clone();
    let text = text.as_str().context("keys are kept")?;
    let known: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(known.len() == all.len() && all.iter().all(|host| known.contains(host)), "{text}");
    let begins = format!("{} new: ", new.len());
    meta.eventually("events tell of the keys", MINUTE, || {
        let events = meta.get(&["events", "-A", "--field-selector", "reason=HostKeysPinned"])?;
        let events = events["items"].as_array().cloned().unwrap_or_default();
        let about = |kind: &str| {
            let said = events.iter().filter(|event| event["involvedObject"]["kind"] == kind);
            let said = said.filter_map(|event| event["message"].as_str());
            said.filter(|said| said.starts_with(&begins) && new.iter().all(|host| said.contains(host)))
                .count()
        };
        let count = (about("KubernetesCluster"), about("ClusterOperation"));
        ensure!(count == (1, 1), "{begins:?}: {count:?} in {events:#?}");
        Ok(())
    })
}
