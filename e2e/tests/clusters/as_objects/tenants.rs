//! Two tenants of one meta cluster, one with kubectl, one with curl and `kubeon --server`. While the operator of the previous commit
//! makes their clusters, it is upgraded to this one; a master dies and returns, and the operator is removed at the end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::VERSION;
use kubeon_e2e::program::{folder, must};
use serde_json::{Value, json};

use super::declared_cluster::declared;
use super::environment::{MetaCluster, OPERATOR};
use super::gateway::{self, InstalledGateway, V1};
use super::{MINUTE, print_time};
use crate::previous;

/// A tenant: its namespace, and the host of its cluster.
const WITH_KUBECTL: (&str, &str) = ("team-a", "h2");
const WITH_REST: (&str, &str) = ("team-b", "h3");
/// How a host of somebody else is refused, whether a cluster has it or not.
const OUTSIDE: &str = "is outside of the addresses of namespace team-b";
/// The name of the cluster of each tenant.
const SHOP: &str = "shop";

#[test]
#[ignore = "minutes, and compiles the previous commit: ./test long"]
fn soak_two_tenants_share_a_meta_cluster_while_its_operator_is_upgraded() -> Result<()> {
    let previous = previous::programs()?;
    let meta = MetaCluster::create_in("e2e-meta-show", 3)?;
    for (namespace, host) in [WITH_KUBECTL, WITH_REST] {
        meta.kubectl(&["create", "namespace", namespace])?;
        let pool = format!("kubeon.io/host-pool={}", meta.address(host)?);
        meta.kubectl(&["annotate", "namespace", namespace, &pool])?;
    }
    let images = meta.lab.file("previous-images");
    previous_image(&meta, previous, &images)?;
    install(&meta, &previous.join("kubeon"), &images, &["--max-operations", "20"])?;
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
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/images");
    // From now on each tenant has only the hosts of its namespace.
    install(&meta, &folder().join("kubeon"), &images, &["--max-operations", "10", "--require-host-pools"])?;
    for (namespace, _) in [WITH_KUBECTL, WITH_REST] {
        is_ready(&meta, namespace, "True")?;
    }
    ensure!(jobs()? == 2, "another Job creates a cluster");
    print_time("two clusters of two tenants, and an upgrade of the operator", start);

    neither_sees_the_others(&meta, &kubectl, &gateway, &token)?;
    ready_follows_a_master(&meta)?;
    end(&meta, &kubectl, &gateway, &token)
}

/// Builds the image of the operator among these programs.
fn previous_image(meta: &MetaCluster, programs: &Path, images: &Path) -> Result<()> {
    let (programs, out) = (programs.to_string_lossy(), images.to_string_lossy());
    let build = ["images", "--only", "operator", "--programs", &programs, "--out", &out];
    let own = meta.lab.environment();
    let environment: Vec<(&str, &str)> = own.iter().map(|(name, text)| (*name, text.as_str())).collect();
    must(folder().join("xtask"), &build, &environment).map(drop)
}

/// Installs the operator with this program and the image in this folder. Another limit of operations replaces its pods one after the
/// other.
fn install(meta: &MetaCluster, program: &Path, images: &Path, options: &[&str]) -> Result<()> {
    let start = Instant::now();
    meta.lab.must(&["image", "load", &images.join("kubeon-operator.tar").to_string_lossy(), "meta"])?;
    let kubeconfig = meta.lab.file("conf/cluster/meta.yaml").to_string_lossy().into_owned();
    let watched = format!("default,{},{}", WITH_KUBECTL.0, WITH_REST.0);
    let install = ["meta", "install", "--kubeconfig", &kubeconfig, "--watch-namespace", &watched];
    let own = meta.lab.environment();
    let environment: Vec<(&str, &str)> = own.iter().map(|(name, text)| (*name, text.as_str())).collect();
    must(program, &[&install[..], options].concat(), &environment)?;
    meta.kubectl(&["-n", OPERATOR, "rollout", "status", "deployment/kubeon-operator", "--timeout=120s"])?;
    let path = "jsonpath={.items[*].status.containerStatuses[*].imageID}";
    let of_operators =
        ["-n", OPERATOR, "get", "pods", "-l", "app.kubernetes.io/component=operator", "-o", path];
    print_time(&format!("the operator {} is installed", meta.kubectl(&of_operators)?), start);
    Ok(())
}

/// An account with the rights of a cluster editor in its namespace, and the login of the hosts there. Returns its token.
fn tenant(meta: &MetaCluster, gateway: &InstalledGateway, namespace: &str) -> Result<String> {
    let token = gateway.token(meta, namespace, "deployer")?;
    let account = format!("--serviceaccount={namespace}:deployer");
    // Who declares a cluster must be allowed to read the login that it names.
    let login = ["create", "role", "login", "--verb=get", "--resource=secrets", "--resource-name=lab-login"];
    meta.kubectl(&[&["-n", namespace][..], &login].concat())?;
    for (name, role) in [
        ("deployer", "--clusterrole=kubeon-cluster-editor"),
        ("login", "--role=login"),
        // Pods, their logs and ConfigMaps, but no Secret.
        ("reader", "--clusterrole=view"),
    ] {
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
    let used = refuses_host(meta, gateway, token, WITH_KUBECTL.1)?;
    ensure!(!used.contains(WITH_KUBECTL.0), "it names the other tenant: {used}");
    let free = refuses_host(meta, gateway, token, "h1")?;
    ensure!(used == free, "they say which host has a cluster: {used:?}, {free:?}");
    version_1(gateway, token, &greedy(meta, WITH_KUBECTL.1)?)?;
    version_2(gateway, token)
}

/// A cluster of the tenant with REST on a host of somebody else.
fn greedy(meta: &MetaCluster, host: &str) -> Result<Value> {
    let mut greedy = declaration(meta, (WITH_REST.0, host))?;
    greedy["metadata"]["name"] = json!("greedy");
    Ok(greedy)
}

/// The words with which a cluster of the tenant with REST on this host is refused, without the address.
fn refuses_host(meta: &MetaCluster, gateway: &InstalledGateway, token: &str, host: &str) -> Result<String> {
    let file = gateway.file("greedy.yaml", &greedy(meta, host)?.to_string())?;
    let refused = gateway.kubeon(meta, token, WITH_REST.0, &["create", "-f", &file])?;
    let host = format!("host {} ", meta.address(host)?);
    ensure!(refused.code == 2 && refused.err.contains(&format!("{host}{OUTSIDE}")), "{refused:?}");
    Ok(refused.err.replace(&host, ""))
}

/// Version 1 with curl: only the tenant's own namespace exists, and another tenant's host is refused.
fn version_1(gateway: &InstalledGateway, token: &str, greedy: &Value) -> Result<()> {
    let (foreign, greedy) =
        (json!({"namespace": WITH_KUBECTL.0}).to_string(), greedy["spec"]["cluster"].to_string());
    let reported = json!({"namespace": WITH_KUBECTL.0, "success": true}).to_string();
    for (method, route, body, statuses) in [
        ("GET", "shop/logs", "", &[200][..]),
        // The list of workers is the same.
        ("POST", "shop/scaleup", "{}", &[200][..]),
        ("POST", "shop", greedy.as_str(), &[400, 403][..]),
        ("POST", "greedy", greedy.as_str(), &[400, 403][..]),
        ("POST", "shop/scaledown", foreign.as_str(), &[400][..]),
        ("DELETE", "shop", foreign.as_str(), &[400][..]),
        ("POST", "shop/create/callback", reported.as_str(), &[401][..]),
    ] {
        let answer = gateway.curl(token, method, &format!("{V1}/{route}"), body)?;
        ensure!(statuses.contains(&answer.0), "{method} {route}: {answer:?}");
        let message = answer.1["message"].as_str().unwrap_or_default();
        ensure!(!message.is_empty(), "{method} {route}: {answer:?}");
        let is_pool = message.contains(OUTSIDE) && !message.contains(WITH_KUBECTL.0);
        ensure!(!body.contains("masterList") || is_pool, "{method} {route}: {answer:?}");
    }
    let unknown = gateway.curl("", "GET", &format!("{V1}/shop/logs"), "")?;
    ensure!(unknown.0 == 401, "{unknown:?}");
    Ok(())
}

/// Version 2 with curl: the tenant's own cluster with its hosts, operations and steps; everything of the other one is refused.
fn version_2(gateway: &InstalledGateway, token: &str) -> Result<()> {
    let clusters = |namespace: &str, rest: &str| format!("/api/v2/namespaces/{namespace}/clusters{rest}");
    let get = |path: &str| {
        let answer = gateway.curl(token, "GET", path, "")?;
        ensure!(answer.0 == 200, "GET {path}: {answer:?}");
        anyhow::Ok(answer.1)
    };
    let own = get(&clusters(WITH_REST.0, "/shop"))?;
    ensure!(own["phase"] == "Running", "{own}");
    let hosts = get(&clusters(WITH_REST.0, "/shop/hosts"))?;
    ensure!(hosts["items"].as_array().is_some_and(|hosts| hosts.len() == 1), "{hosts}");
    let operations = get(&format!("/api/v2/operations?namespace={}&status=Succeeded", WITH_REST.0))?;
    let name = operations["items"][0]["name"].as_str().with_context(|| operations.to_string())?;
    let steps = get(&format!("/api/v2/operations/{name}/steps"))?;
    ensure!(steps["complete"] == true && steps["items"][0]["host"].is_string(), "{steps}");
    let patch = r#"{"spec":{"paused":true}}"#;
    for (method, path, body) in [
        ("GET", clusters(WITH_KUBECTL.0, ""), ""),
        ("GET", clusters(WITH_KUBECTL.0, "/shop"), ""),
        ("GET", clusters(WITH_KUBECTL.0, "/shop/hosts"), ""),
        ("PATCH", clusters(WITH_KUBECTL.0, "/shop"), patch),
        ("POST", clusters(WITH_KUBECTL.0, "/shop/plan"), patch),
        ("DELETE", clusters(WITH_KUBECTL.0, "/shop"), ""),
        ("GET", format!("/api/v2/operations?namespace={}", WITH_KUBECTL.0), ""),
        ("GET", format!("/api/v2/watch/clusters?namespace={}", WITH_KUBECTL.0), ""),
        ("GET", "/api/v2/clusters".to_owned(), ""),
    ] {
        let refused = gateway.curl(token, method, &path, body)?;
        ensure!(refused.0 == 403, "{method} {path}: {refused:?}");
    }
    let absent = gateway.curl(token, "GET", &clusters(WITH_REST.0, "/absent"), "")?;
    ensure!(absent.0 == 404, "{absent:?}");
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
    let path = format!("/api/v2/namespaces/{}/clusters/{SHOP}", WITH_REST.0);
    let deleted = gateway.curl(token, "DELETE", &path, "")?;
    ensure!(deleted.0 == 202, "{deleted:?}");
    meta.kubectl(&["-n", WITH_REST.0, "wait", "--for=delete", "ecs/shop", "--timeout=180s"])?;
    for (_, host) in [WITH_KUBECTL, WITH_REST] {
        meta.lab.on(host, "test ! -e /etc/kubernetes && test ! -e /var/lib/kubeon")?;
    }
    meta.lab.must(&uninstall)?;
    let left = meta.kubectl(&["get", "customresourcedefinitions", "-o", "name"])?;
    ensure!(!left.contains("clay.io") && !left.contains("yun.com"), "{left}");
    Ok(())
}
