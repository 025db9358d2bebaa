//! A declared cluster: made, grown, shrunk; let go and taken up again; taken down; made again.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::ground::Ground;
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
pub(crate) fn all(ground: &Ground) -> Result<()> {
    let kubeconfig = made(ground)?;
    grown_though_runner_and_operator_are_killed(ground, &kubeconfig)?;
    shrunk_though_runner_and_operator_are_killed(ground, &kubeconfig)?;
    story::of_a_life(ground)?;
    gone::let_go_and_taken_up_again(ground, &kubeconfig)?;
    gone::taken_down_though_runner_and_operator_are_killed(ground)?;
    made_again_though_runner_and_operator_are_killed(ground)?;
    gone::with_a_dead_host(ground)
}

/// A cluster as a person declares it.
pub(crate) fn declared(name: &str, version: &str, master: &str, workers: &[&str]) -> Value {
    let nodes: Vec<Value> = workers.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name, "namespace": PLACE},
        "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}], "nodeList": nodes,
            "authConfig": {"credentialsRef": {"name": "lab-login"}}}}})
}

/// Declares it with these workers.
pub(crate) fn declare(ground: &Ground, workers: &[&str]) -> Result<()> {
    let workers = workers.iter().map(|host| ground.address(host)).collect::<Result<Vec<_>>>()?;
    ground.apply(&declared(NAME, VERSION, ground.address(MASTER)?, &workers))
}

/// By the file that a newcomer applies, changed in its addresses.
fn made(ground: &Ground) -> Result<PathBuf> {
    let words = [("172.30.0.12", ground.address(MASTER)?), ("172.30.0.13", ground.address(FIRST)?)];
    ground.apply_text(&seed::filled("meta/kubernetes-cluster.yaml", &words)?)?;
    settled(ground, "create-finished")?;
    ground.kubectl(&["wait", "--for=condition=Ready", "ecs/shop", "--timeout=10s"])?;
    let kubeconfig = kubeconfig(ground)?;
    nodes(ground, &kubeconfig, 2)?;
    pinned(ground, &[MASTER, FIRST], &[MASTER, FIRST])?;
    Ok(kubeconfig)
}

/// The runner's pod is killed at work: that is a failure with a reason, and asking again goes on; while that works, the
/// operator that leads is killed.
fn grown_though_runner_and_operator_are_killed(ground: &Ground, kubeconfig: &Path) -> Result<()> {
    declare(ground, &[FIRST, SECOND])?;
    runner_killed(ground, "scale-up-", SECOND)?;
    struck(ground, "scale-up-", "scale-up-finished", || ground.ask(NAME, "scaling-up"))?;
    nodes(ground, kubeconfig, 3)?;
    pinned(ground, &[MASTER, FIRST, SECOND], &[SECOND])
}

fn shrunk_though_runner_and_operator_are_killed(ground: &Ground, kubeconfig: &Path) -> Result<()> {
    declare(ground, &[SECOND])?;
    runner_killed(ground, "scale-down-", FIRST)?;
    struck(ground, "scale-down-", "scale-down-finished", || ground.ask(NAME, "scaling-down"))?;
    nodes(ground, kubeconfig, 2)?;
    ground.lab.is_bare(FIRST)
}

fn made_again_though_runner_and_operator_are_killed(ground: &Ground) -> Result<()> {
    declare(ground, &[FIRST])?;
    runner_killed(ground, "create-", MASTER)?;
    struck(ground, "create-", "create-finished", || ground.ask(NAME, "creating"))?;
    nodes(ground, &kubeconfig(ground)?, 2)
}

/// Kills the pod that works, in the midst of what it does to the host.
pub(crate) fn runner_killed(ground: &Ground, begins: &str, host: &str) -> Result<()> {
    let job = at_work(ground, NAME, begins)?;
    ground.hang(host)?;
    ground.eventually("its steps are told", MINUTE, || {
        let status = ground.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["step"].as_str().is_some_and(|step| step.contains('/')), "{status:#}");
        Ok(())
    })?;
    ground.kill_pod(PLACE, &job)?;
    ground.eventually("the failure is told", MINUTE, || {
        let status = ground.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed" && !status["reason"].is_null(), "{status:#}");
        Ok(())
    })?;
    ground.wake(host)
}

/// Something is changed, and the operator that leads is killed while the Job for it works.
fn struck(ground: &Ground, begins: &str, word: &str, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let alone = ground.alone();
    change()?;
    let job = at_work(ground, NAME, begins)?;
    ground.kill_leader(&alone, PLACE, &job)?;
    drop(alone);
    settled(ground, word)
}

/// The Job that works for a cluster, once its container runs.
pub(crate) fn at_work(ground: &Ground, name: &str, begins: &str) -> Result<String> {
    let job = ground.eventually(&format!("a Job {begins}… works"), MINUTE * 2, || {
        let status = ground.get(&["ecs", name])?["status"].clone();
        let job = status["jobName"].as_str().unwrap_or_default().to_owned();
        ensure!(job.starts_with(begins), "{status:#}");
        ground.is_at_work(PLACE, &job)?;
        Ok(job)
    });
    job.map_err(|error| error.context(ground.story("ecs", name)))
}

/// The operation went well, and the cluster runs as declared.
pub(crate) fn settled(ground: &Ground, word: &str) -> Result<()> {
    let start = Instant::now();
    let seen = ground.eventually(word, MINUTE * 5, || {
        let object = ground.get(&["ecs", NAME])?;
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
        Ok(other) => bail!("{other:?}\n{}", ground.story("ecs", NAME)),
        Err(error) => Err(error.context(ground.story("ecs", NAME))),
    }
}

/// The kubeconfig that the operator keeps for people.
fn kubeconfig(ground: &Ground) -> Result<PathBuf> {
    let template = r"go-template={{.data.kubeconfig | base64decode}}";
    let text = ground.kubectl(&["get", "secret", "default-shop-kubeconfig", "-o", template])?;
    let file = ground.lab.file("shop.kubeconfig");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// The cluster has so many nodes, all Ready.
pub(crate) fn nodes(ground: &Ground, kubeconfig: &Path, count: usize) -> Result<()> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    ground.eventually("its nodes are Ready", MINUTE, || {
        let text = ground.kubectl_of(kubeconfig, &["get", "nodes", "-o", ready])?;
        let words: Vec<&str> = text.lines().collect();
        ensure!(words.len() == count && words.iter().all(|word| *word == "True"), "{words:?}");
        Ok(())
    })
}

/// The ConfigMap beside the object holds the keys of all hosts; one event of the object and one of the operation name the
/// new ones.
fn pinned(ground: &Ground, all: &[&str], new: &[&str]) -> Result<()> {
    let addresses =
        |hosts: &[&str]| hosts.iter().map(|host| ground.address(host)).collect::<Result<Vec<_>>>();
    let (all, new) = (addresses(all)?, addresses(new)?);
    let text = ground.get(&["configmap", "default-shop-known-hosts"])?["data"]["known_hosts"].clone();
    let text = text.as_str().context("keys are kept")?;
    let known: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(known.len() == all.len() && all.iter().all(|host| known.contains(host)), "{text}");
    let begins = format!("{} new: ", new.len());
    ground.eventually("events tell of the keys", MINUTE, || {
        let events = ground.get(&["events", "-A", "--field-selector", "reason=HostKeysPinned"])?;
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
