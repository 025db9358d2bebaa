//! Two tenants of one meta cluster, one with kubectl and one with the REST server. The operator is installed again while their
//! clusters are made, a master dies and returns, and the operator is removed at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use serde_json::{Value, json};

use super::declared_cluster::declared;
use super::environment::{MetaCluster, OPERATOR};
use super::gateway::{self, InstalledGateway};
use super::{MINUTE, print_time};

/// A tenant: its namespace, and the host of its cluster.
const WITH_KUBECTL: (&str, &str) = ("team-a", "h2");
const WITH_REST: (&str, &str) = ("team-b", "h3");
/// The name of the cluster of each tenant.
const SHOP: &str = "shop";

#[test]
#[ignore = "about five minutes: ./test long"]
fn soak_two_tenants_share_a_meta_cluster_while_its_operator_is_installed_again() -> Result<()> {
    let meta = MetaCluster::create_in("e2e-meta-show", 3)?;
    for (namespace, _) in [WITH_KUBECTL, WITH_REST] {
        meta.kubectl(&["create", "namespace", namespace])?;
    }
    install_again(&meta, "20")?;
    let gateway = gateway::install(&meta)?;
    let kubectl = kubeconfig(&meta, &tenant(&meta, &gateway, WITH_KUBECTL.0)?)?;
    let token = tenant(&meta, &gateway, WITH_REST.0)?;

    let start = Instant::now();
    let file = meta.lab.file("team-a.json");
    std::fs::write(&file, declaration(&meta, WITH_KUBECTL)?.to_string())?;
    meta.kubectl_with(&kubectl, &["apply", "-f", &file.to_string_lossy()])?;
    let file = gateway.file("team-b.yaml", &declaration(&meta, WITH_REST)?.to_string())?;
    gateway.must(&meta, &token, WITH_REST.0, &["create", "-f", &file])?;
    let jobs = || -> Result<usize> {
        Ok(meta.kubectl(&["get", "jobs", "-A", "-o", "name"])?.matches("/create-").count())
    };
    meta.eventually("both creations have begun", MINUTE, || {
        let begun = jobs()?;
        ensure!(begun == 2, "{begun} Jobs");
        Ok(())
    })?;
    install_again(&meta, "10")?;
    for (namespace, _) in [WITH_KUBECTL, WITH_REST] {
        is_ready(&meta, namespace, "True")?;
    }
    ensure!(jobs()? == 2, "another Job creates a cluster");
    print_time("two clusters of two tenants, and another operator", start);

    neither_sees_the_others(&meta, &kubectl, &gateway, &token)?;
    ready_follows_a_master(&meta)?;
    end(&meta, &kubectl, &gateway, &token)
}

/// Installs the operator with another limit, which replaces its pods one after the other.
fn install_again(meta: &MetaCluster, most_operations: &str) -> Result<()> {
    let start = Instant::now();
    let kubeconfig = meta.lab.file("conf/cluster/meta.yaml").to_string_lossy().into_owned();
    let watched = format!("default,{},{}", WITH_KUBECTL.0, WITH_REST.0);
    let install = ["meta", "install", "--kubeconfig", &kubeconfig, "--watch-namespace", &watched];
    meta.lab.must(&[&install[..], &["--max-operations", most_operations]].concat())?;
    meta.kubectl(&["-n", OPERATOR, "rollout", "status", "deployment/kubeon-operator", "--timeout=120s"])?;
    print_time("the operator is installed again", start);
    Ok(())
}

/// An account with the rights of a cluster editor in its namespace, and the login of the hosts there. Returns its token.
fn tenant(meta: &MetaCluster, gateway: &InstalledGateway, namespace: &str) -> Result<String> {
    let token = gateway.token(meta, namespace, "deployer")?;
    let account = format!("--serviceaccount={namespace}:deployer");
    // Who declares a cluster must be allowed to read the login that it names.
    let login = ["create", "role", "login", "--verb=get", "--resource=secrets", "--resource-name=lab-login"];
    meta.kubectl(&[&["-n", namespace][..], &login].concat())?;
    for (name, role) in [("deployer", "--clusterrole=kubeon-cluster-editor"), ("login", "--role=login")] {
        let bind = ["-n", namespace, "create", "rolebinding", name, role, &account];
        meta.kubectl(&bind)?;
    }
    let mut login = meta.get(&["secret", "lab-login"])?;
    login["metadata"] = json!({"name": "lab-login", "namespace": namespace});
    meta.apply(&login)?;
    Ok(token)
}

fn declaration(meta: &MetaCluster, (namespace, host): (&str, &str)) -> Result<Value> {
    let mut object = declared(SHOP, VERSION, meta.address(host)?, &[]);
    object["metadata"]["namespace"] = json!(namespace);
    Ok(object)
}

/// A kubeconfig of the meta cluster with a token and without the certificate of its administrator.
fn kubeconfig(meta: &MetaCluster, token: &str) -> Result<PathBuf> {
    let view = meta.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"])?;
    let mut config: Value = serde_json::from_str(&view)?;
    config["users"][0]["user"] = json!({"token": token});
    let file = meta.lab.file("tenant.kubeconfig");
    std::fs::write(&file, config.to_string())?;
    Ok(file)
}

fn is_ready(meta: &MetaCluster, namespace: &str, status: &str) -> Result<()> {
    let condition = format!("--for=condition=Ready={status}");
    let wait = ["-n", namespace, "wait", &condition, "ecs/shop", "--timeout=180s"];
    meta.kubectl(&wait).with_context(|| meta.diagnosis("ecs", SHOP)).map(drop)
}

/// Lists, reads and hosts of the other tenant are refused, and the answers say nothing about it.
fn neither_sees_the_others(
    meta: &MetaCluster,
    kubectl: &Path,
    gateway: &InstalledGateway,
    token: &str,
) -> Result<()> {
    let own = meta.kubectl_with(kubectl, &["-n", WITH_KUBECTL.0, "get", "ecs", "-o", "name"])?;
    ensure!(own.contains(SHOP), "{own}");
    for arguments in [
        &["-n", WITH_REST.0, "get", "ecs"][..],
        &["-n", WITH_REST.0, "delete", "ecs", SHOP],
        &["-n", WITH_KUBECTL.0, "get", "secrets"],
        &["get", "clusteroperations.kubeonkube.clay.io"],
    ] {
        let refused = meta.kubectl_with(kubectl, arguments).err().map(|error| error.to_string());
        ensure!(
            refused.as_ref().is_some_and(|text| text.contains("forbidden")),
            "{arguments:?}: {refused:?}"
        );
    }
    let own = gateway.must(meta, token, WITH_REST.0, &["ls", "-o", "name"])?;
    ensure!(own == format!("{}/{SHOP}\n", WITH_REST.0), "{own}");
    for arguments in [&["ls"][..], &["display", SHOP], &["operations"], &["logs", SHOP]] {
        let refused = gateway.kubeon(meta, token, WITH_KUBECTL.0, arguments)?;
        ensure!(refused.code == 2 && refused.out.is_empty(), "{arguments:?}: {refused:?}");
    }
    let mut greedy = declaration(meta, (WITH_REST.0, WITH_KUBECTL.1))?;
    greedy["metadata"]["name"] = json!("greedy");
    let file = gateway.file("greedy.yaml", &greedy.to_string())?;
    let refused = gateway.kubeon(meta, token, WITH_REST.0, &["create", "-f", &file])?;
    ensure!(refused.code == 2 && refused.err.contains(meta.address(WITH_KUBECTL.1)?), "{refused:?}");
    ensure!(!refused.err.contains(WITH_KUBECTL.0), "it names the other tenant: {refused:?}");
    Ok(())
}

/// The only master of one tenant dies and returns. The cluster of the other tenant stays ready.
fn ready_follows_a_master(meta: &MetaCluster) -> Result<()> {
    let start = Instant::now();
    meta.lab.host("kill", WITH_KUBECTL.1)?;
    is_ready(meta, WITH_KUBECTL.0, "False")?;
    ensure!(start.elapsed() <= MINUTE, "Ready became False after {} s", start.elapsed().as_secs());
    print_time("Ready=False after the death of a master", start);
    is_ready(meta, WITH_REST.0, "True")?;
    meta.lab.host("start", WITH_KUBECTL.1)?;
    is_ready(meta, WITH_KUBECTL.0, "True")
}

/// The operator stays while there are clusters. Each tenant deletes its own, then nothing of the operator is left.
fn end(meta: &MetaCluster, kubectl: &Path, gateway: &InstalledGateway, token: &str) -> Result<()> {
    let kubeconfig = meta.lab.file("conf/cluster/meta.yaml").to_string_lossy().into_owned();
    let uninstall = ["meta", "uninstall", "--yes", "--kubeconfig", &kubeconfig];
    let refused = meta.lab.kubeon(&uninstall)?;
    ensure!(refused.code != 0 && refused.err.contains("it has clusters"), "{refused:?}");
    meta.kubectl_with(kubectl, &["-n", WITH_KUBECTL.0, "delete", "ecs", SHOP, "--timeout=180s"])?;
    let url = format!("{}/api/v2/namespaces/{}/clusters/{SHOP}", gateway.url, WITH_REST.0);
    let header = format!("authorization: Bearer {token}");
    let authority = gateway.authority.to_string_lossy().into_owned();
    let delete = ["-sS", "--cacert", &authority, "-H", &header, "-X", "DELETE", "-w", "%{http_code}", &url];
    let deleted = kubeon_e2e::program::must("curl", &delete, &[])?;
    ensure!(deleted.ends_with("202"), "{deleted}");
    meta.kubectl(&["-n", WITH_REST.0, "wait", "--for=delete", "ecs/shop", "--timeout=180s"])?;
    for (_, host) in [WITH_KUBECTL, WITH_REST] {
        meta.lab.on(host, "test ! -e /etc/kubernetes && test ! -e /var/lib/kubeon")?;
    }
    meta.lab.must(&uninstall)?;
    let left = meta.kubectl(&["get", "customresourcedefinitions", "-o", "name"])?;
    ensure!(!left.contains("clay.io") && !left.contains("yun.com"), "{left}");
    Ok(())
}
