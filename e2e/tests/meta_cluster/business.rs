//! Declared clusters: made, grown, shrunk, taken down.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::{Ground, MINUTE, told};

const NAME: &str = "shop";
const KNOWN_HOSTS: &str = "default-shop-known-hosts";

/// A cluster as a person declares it.
pub fn declared(name: &str, version: &str, master: &str, workers: &[&str]) -> Value {
    let nodes: Vec<Value> = workers.iter().map(|ip| json!({"ip": ip})).collect();
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name, "namespace": "default"},
        "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}], "nodeList": nodes,
            "authConfig": {"credentialsRef": {"name": "lab-login"}}}}})
}

/// One master and one worker, a second worker by spec, the first one taken out, bare hosts in the end. Each time the
/// operator that leads is killed while the Job works.
pub fn made_grown_shrunk_and_gone(ground: &Ground) -> Result<()> {
    let [_, master, first, second] = &ground.lab.addresses[..] else { bail!("four hosts") };
    ground.apply(&declared(NAME, VERSION, master, &[first]))?;
    busy_then_killed(ground, "create-")?;
    settled(ground, "create-finished")?;
    let words = ["wait", "--for=condition=Ready", "ecs/shop", "--timeout=10s"];
    ground.kubectl(&words)?;
    let kubeconfig = kubeconfig(ground)?;
    nodes(ground, &kubeconfig, 2)?;
    pinned(ground, &[master, first], "2 new: ")?;
    ground.apply(&declared(NAME, VERSION, master, &[first, second]))?;
    busy_then_killed(ground, "scale-up-")?;
    settled(ground, "scale-up-finished")?;
    pinned(ground, &[master, first, second], "1 new: ")?;
    nodes(ground, &kubeconfig, 3)?;
    ground.apply(&declared(NAME, VERSION, master, &[second]))?;
    busy_then_killed(ground, "scale-down-")?;
    settled(ground, "scale-down-finished")?;
    nodes(ground, &kubeconfig, 2)?;
    ground.is_bare("h3")?;
    described(ground)?;
    ground.kubectl(&["delete", "ecs", NAME, "--wait=false"])?;
    busy_then_killed(ground, "delete-")?;
    gone(ground)
}

/// The same hosts again. The runner's pod is killed at work: that is a failure with a reason, and asking again goes on.
pub fn made_again_though_its_runner_is_killed(ground: &Ground) -> Result<()> {
    let [_, master, first, _] = &ground.lab.addresses[..] else { bail!("four hosts") };
    ground.apply(&declared(NAME, VERSION, master, &[first]))?;
    let job = at_work(ground, "create-")?;
    ground.eventually("hosts are written to", MINUTE, || {
        ground.lab.on("h2", "test -e /var/lib/kubeon").map(drop)
    })?;
    ground.kubectl(&["delete", "pod", "-l", &format!("job-name={job}"), "--grace-period=0", "--force"])?;
    ground.eventually("the failure is told", MINUTE, || {
        let status = ground.get(&["ecs", NAME])?["status"].clone();
        ensure!(status["phase"] == "Failed" && !status["reason"].is_null(), "{status:#}");
        Ok(())
    })?;
    ground.kubectl(&["annotate", "ecs", NAME, "--overwrite", "app.kubernetes.io/operation=creating"])?;
    settled(ground, "create-finished")?;
    nodes(ground, &kubeconfig(ground)?, 2)?;
    ground.kubectl(&["delete", "ecs", NAME, "--wait=false"])?;
    gone(ground)
}

/// The Job that works for the cluster, once its container runs.
fn at_work(ground: &Ground, begins: &str) -> Result<String> {
    ground
        .eventually(&format!("a Job {begins}… works"), MINUTE * 2, || {
            let status = ground.get(&["ecs", NAME])?["status"].clone();
            let job = status["jobName"].as_str().unwrap_or_default().to_owned();
            ensure!(job.starts_with(begins), "{status:#}");
            let running =
                ["get", "pods", "-l", &format!("job-name={job}"), "-o", "jsonpath={.items[*].status.phase}"];
            let running = ground.kubectl(&running)?;
            ensure!(running == "Running", "{running}");
            Ok(job)
        })
        .map_err(|error| error.context(ground.story("ecs", NAME)))
}

fn busy_then_killed(ground: &Ground, begins: &str) -> Result<()> {
    at_work(ground, begins)?;
    ground.kill_leader()
}

/// The operation went well, and the cluster runs as declared.
fn settled(ground: &Ground, word: &str) -> Result<()> {
    let start = Instant::now();
    let seen = ground.eventually(word, MINUTE * 5, || {
        let object = ground.get(&["ecs", NAME])?;
        let told = object["metadata"]["annotations"]["app.kubernetes.io/operation"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let phase = object["status"]["phase"].as_str().unwrap_or_default().to_owned();
        ensure!(
            (phase == "Running" && told == word) || phase == "Failed",
            "{phase} {told} {:#}",
            object["status"]
        );
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

fn nodes(ground: &Ground, kubeconfig: &std::path::Path, count: usize) -> Result<()> {
    let ready = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"#;
    ground.eventually("its nodes are Ready", MINUTE, || {
        let text = ground.kubectl_of(kubeconfig, &["get", "nodes", "-o", ready])?;
        let words: Vec<&str> = text.lines().collect();
        ensure!(words.len() == count && words.iter().all(|word| *word == "True"), "{words:?}");
        Ok(())
    })
}

/// `kubectl describe` tells what happened, and the columns where it stands.
fn described(ground: &Ground) -> Result<()> {
    let text = ground.kubectl(&["describe", "ecs", NAME])?;
    for words in ["Ready", "creating", "scaling-up", "scaling-down", "Events:"] {
        ensure!(text.contains(words), "{words} is missing in\n{text}");
    }
    let columns = ground.kubectl(&["get", "ecs", NAME])?;
    ensure!(columns.split_whitespace().take(3).eq(["NAME", "STATUS", "AGE"]), "{columns}");
    let row = ground.kubectl(&["get", "ecs", NAME, "-o", "wide", "--no-headers"])?;
    ensure!(row.contains("Running") && row.contains(VERSION), "{row}");
    Ok(())
}

/// The keys of the hosts stand beside the object, and an event about it and one about the operation said so.
fn pinned(ground: &Ground, hosts: &[&String], begins: &str) -> Result<()> {
    let text = ground.get(&["configmap", KNOWN_HOSTS])?["data"]["known_hosts"].clone();
    let known: Vec<&str> =
        text.as_str().unwrap_or_default().lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(known.len() == hosts.len() && hosts.iter().all(|host| known.contains(&host.as_str())), "{text}");
    ground.eventually("events tell of the keys", MINUTE, || {
        let events = ground.get(&["events", "-A", "--field-selector", "reason=HostKeysPinned"])?;
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let about = |kind: &str| {
            let said = all.iter().filter(|event| event["involvedObject"]["kind"] == kind);
            said.filter(|event| event["message"].as_str().is_some_and(|said| said.starts_with(begins)))
                .count()
        };
        let count = (about("KubernetesCluster"), about("ClusterOperation"));
        ensure!(count == (1, 1), "{begins:?}: {count:?} in {events:#}");
        Ok(())
    })
}

fn gone(ground: &Ground) -> Result<()> {
    let start = Instant::now();
    ground
        .eventually("the object goes", MINUTE * 3, || {
            let left = ground.kubectl(&["get", "ecs", NAME, "--ignore-not-found", "-o", "name"])?;
            ensure!(left.trim().is_empty(), "{left} is there");
            Ok(())
        })
        .map_err(|error| error.context(ground.story("ecs", NAME)))?;
    told("deleted, hosts bare", start);
    let left = ground.kubectl(&["get", "configmap", KNOWN_HOSTS, "--ignore-not-found", "-o", "name"])?;
    ensure!(left.trim().is_empty(), "{left} is there");
    for host in ["h2", "h3", "h4"] {
        ground.is_bare(host)?;
    }
    Ok(())
}
