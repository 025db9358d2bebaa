//! A cluster whose etcd has hosts of its own: one of them dies and is replaced while a pod writes, and no acknowledged write is
//! lost.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::writer;
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn etcd_on_hosts_of_its_own_survives_the_death_of_a_member() -> Result<()> {
    let lab = TestLab::up("e2e-external-etcd", 6)?;
    let cluster = lab.name();
    let start = Instant::now();
    let file = declaration(&lab, &["h3", "h4", "h5"])?;
    lab.must(&["create", "-f", &file])?;
    println!("  1 + 1 with three hosts of etcd: {:.1} s", start.elapsed().as_secs_f64());
    lab.must(&["use", cluster])?;
    let nodes = lab.kubectl(cluster, &["get", "nodes", "-o", "name"])?;
    ensure!(nodes == "node/h1\nnode/h2\n", "{nodes}");
    ensure!(members(&lab)? == names(["h3", "h4", "h5"]), "{:?}", members(&lab)?);
    lab.on("h3", "systemctl is-active etcd && ! systemctl cat kubelet containerd 2>/dev/null")?;
    lab.on("h1", "systemctl is-active kube-apiserver && ! systemctl cat etcd 2>/dev/null")?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let active = lab.must(&["exec", &format!("{cluster}@etcd*"), "systemctl is-active etcd"])?;
    ensure!(["h3", "h4", "h5"].iter().all(|host| active.contains(host)), "{active}");
    ensure!(!active.contains("h1"), "{active}");

    writer::start(&lab, "external", 60)?;
    lab.host("kill", "h5")?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let listed = lab.must(&["ls"])?;
    ensure!(listed.contains("Degraded"), "{listed}");
    let file = declaration(&lab, &["h3", "h4", "h6"])?;
    let refused = lab.kubeon(&["create", "-f", &file, "--yes"])?;
    ensure!(refused.code == 2 && refused.err.contains("--without"), "{refused:?}");
    let start = Instant::now();
    lab.must(&["create", "-f", &file, "--yes", "--without", &lab.addresses[4]])?;
    println!("  a dead host of etcd was replaced in {:.1} s", start.elapsed().as_secs_f64());
    ensure!(members(&lab)? == names(["h3", "h4", "h6"]), "{:?}", members(&lab)?);
    let unit = lab.on("h1", "systemctl cat kube-apiserver")?;
    ensure!(unit.contains(&lab.addresses[5]) && !unit.contains(&lab.addresses[4]), "{unit}");
    println!("  {}", writer::report(&lab)?);

    lab.must(&["delon", cluster, "h6", "--yes"])?;
    ensure!(members(&lab)? == names(["h3", "h4"]), "{:?}", members(&lab)?);
    lab.is_bare("h6")?;
    lab.must(&["addon", cluster, "--etcd", &lab.addresses[5]])?;
    ensure!(members(&lab)? == names(["h3", "h4", "h6"]), "{:?}", members(&lab)?);

    let snapshot = lab.file("external.db").display().to_string();
    lab.must(&["etcd", "save", cluster, &snapshot])?;
    lab.must(&["etcd", "check", cluster, &snapshot])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["destroy", cluster, "--yes"])?;
    for host in ["h1", "h2", "h3", "h4", "h6"] {
        lab.is_bare(host)?;
    }
    Ok(())
}

/// Writes the declaration of the cluster with these hosts of etcd. Returns the path of the file.
fn declaration(lab: &TestLab, etcd: &[&str]) -> Result<String> {
    let host = |name: &str| -> Result<Value> {
        let index: usize = name.trim_start_matches('h').parse()?;
        Ok(json!({ "ip": lab.addresses[index - 1] }))
    };
    let etcd: Vec<Value> = etcd.iter().map(|name| host(name)).collect::<Result<_>>()?;
    let object = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": { "name": lab.name() },
        "spec": { "cluster": {
            "kubeVersion": VERSION, "masterList": [host("h1")?], "nodeList": [host("h2")?], "etcdList": etcd,
        } },
    });
    let file = lab.file("cluster.json");
    std::fs::write(&file, object.to_string())?;
    Ok(file.display().to_string())
}

/// The names of the members of etcd.
fn members(lab: &TestLab) -> Result<BTreeSet<String>> {
    let list = lab.must(&["etcd", lab.name(), "member", "list", "--write-out=json"])?;
    let list: Value = serde_json::from_str(&list)?;
    let members = list["members"].as_array().context("no members")?;
    Ok(members.iter().filter_map(|member| member["name"].as_str().map(str::to_owned)).collect())
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}
