//! A cluster of three masters and two workers changes to the next minor version while pods serve and write.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{NEXT, TestLab, VERSION};
use kubeon_e2e::program::eventually;
use kubeon_e2e::running::Running;
use kubeon_e2e::{probe, writer};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
/// The argument that lets API servers serve a version of an API that the next minor version does not have.
const RUNTIME_CONFIG: &str = "extraArgs.kubeApiserver.runtime-config=";
/// A certificate on h2 that ends within a day.
const ENDS_SOON: &str = "/etc/kubernetes/pki/ends-soon.crt";

#[test]
#[ignore = "builds a second version of Kubernetes: ./test long"]
fn soak_an_upgrade_to_the_next_minor_version_serves_all_the_time() -> Result<()> {
    let lab = TestLab::up("e2e-upgrade", 5)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["download", NEXT])?;
    let masters = ["-m", &hosts[0], "-m", &hosts[1], "-m", &hosts[2], "-w", &hosts[3], "-w", &hosts[4]];
    lab.must(&[&["create", cluster, VERSION], &masters[..]].concat())?;
    lab.must(&["use", cluster])?;
    serve(&lab)?;
    refused(&lab)?;
    probe_all(&lab)?;

    aborted(&lab)?;
    let approved = approved_plan(&lab)?;
    let begin = Instant::now();
    let mut upgrade = Running::start(&lab, &["upgrade", cluster, NEXT, "--approved-plan", &approved])?;
    upgrade.until("the second master", 6 * MINUTE, |run| run.output().contains("drain node h2"))?;
    let paused = lab.must(&["pause", cluster])?;
    ensure!(paused.contains("is paused") && paused.contains("kubeon resume"), "{paused}");
    let stopped = upgrade.wait(MINUTE)?;
    ensure!(stopped.code != 0, "{stopped:?}");
    ensure!(lab.must(&["ls"])?.contains("Upgrading"), "{}", lab.must(&["ls"])?);
    ensure!(lab.kubeon(&["pause", cluster])?.err.contains("no command changes"), "nothing runs");
    let late = lab.kubeon(&["abort", cluster])?;
    ensure!(late.code == 2 && late.err.contains("cannot go back to v1.36.3 any more"), "{late:?}");
    lab.must(&["resume", cluster])?;
    println!("  the upgrade of 3 + 2 with a pause took {:.0} s", begin.elapsed().as_secs_f64());

    upgraded(&lab)?;
    nodes_alone(&lab)?;
    no_request_failed(&lab)?;
    rolled_back(&lab)?;
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// An upgrade that is killed while masters try the version goes back.
fn aborted(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let mut upgrade = Running::start(lab, &["upgrade", cluster, NEXT])?;
    let tries = |host: &str| api_server(lab, host).is_ok_and(|text| text.contains("--emulated-version=1.36"));
    upgrade.until("the trial on the second master", 6 * MINUTE, |_| tries("h2"))?;
    upgrade.kill()?;
    let newer = api_server(lab, "h1")?;
    ensure!(newer.contains(NEXT), "{newer}");
    lab.must(&["abort", cluster])?;
    println!(
        "  a killed trial on two of three masters and the way back took {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    for host in ["h1", "h2", "h3"] {
        let text = api_server(lab, host)?;
        ensure!(text.contains(VERSION) && !text.contains("--emulated-version"), "{host}: {text}");
    }
    let again = lab.kubeon(&["abort", cluster])?;
    ensure!(again.code == 2 && again.err.contains("no upgrade to abort"), "{again:?}");
    lab.wait_up_to_date(cluster, MINUTE)
}

/// The arguments and the version of the API server that runs on a master.
pub(crate) fn api_server(lab: &TestLab, host: &str) -> Result<String> {
    let script = "pid=$(systemctl show -p MainPID --value kube-apiserver); tr '\\0' ' ' </proc/$pid/cmdline; /proc/$pid/exe --version";
    lab.on(host, script)
}

/// The nodes alone go back to the version before, with the control plane of the new one, and come forward again.
fn nodes_alone(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let started = api_starts(lab)?;
    let shown = lab.kubeon(&["rollback", cluster, "--nodes", "--dry-run"])?;
    let versions = format!("{NEXT}, nodes {VERSION}");
    ensure!(shown.code == 0 && shown.out.contains(&versions), "{shown:?}");
    ensure!(shown.out.contains("Nothing was written"), "{shown:?}");
    let mut back = Running::start(lab, &["rollback", cluster, "--nodes"])?;
    back.until("the second master", 6 * MINUTE, |run| run.output().contains("drain node h2"))?;
    back.kill()?;
    let listed = lab.must(&["ls"])?;
    ensure!(listed.contains("Upgrading"), "{listed}");
    lab.must(&["resume", cluster])?;
    println!("  the nodes of 3 + 2 went back alone, with a kill, in {:.0} s", begin.elapsed().as_secs_f64());
    lab.wait_up_to_date(cluster, MINUTE)?;
    kubelets_have(lab, VERSION)?;
    for host in ["h1", "h2", "h3"] {
        let text = api_server(lab, host)?;
        ensure!(text.contains(NEXT) && !text.contains("--emulated-version"), "{host}: {text}");
    }
    let listed = lab.must(&["ls"])?;
    ensure!(listed.contains(&versions), "{listed}");
    let displayed = lab.must(&["display", cluster])?;
    ensure!(displayed.contains(&format!("the control plane has {NEXT}, the nodes {VERSION}")), "{displayed}");

    let begin = Instant::now();
    lab.must(&["upgrade", cluster, NEXT])?;
    println!("  they came forward in {:.0} s", begin.elapsed().as_secs_f64());
    lab.wait_up_to_date(cluster, MINUTE)?;
    kubelets_have(lab, NEXT)?;
    ensure!(api_starts(lab)? == started, "no API server and no member of etcd started again");
    let same = lab.must(&["upgrade", cluster, NEXT])?;
    ensure!(same.contains("nothing to do"), "{same}");
    Ok(())
}

/// When the API server and the member of etcd of each master were started.
fn api_starts(lab: &TestLab) -> Result<Vec<String>> {
    let script = "systemctl show -p ExecMainStartTimestampMonotonic --value kube-apiserver etcd";
    ["h1", "h2", "h3"].iter().map(|host| lab.on(host, script)).collect()
}

/// Every node has the version, and none stays cordoned.
pub(crate) fn kubelets_have(lab: &TestLab, version: &str) -> Result<()> {
    let of_nodes = |path: &str| {
        let path = format!("jsonpath={{.items[*].{path}}}");
        lab.kubectl(lab.name(), &["get", "nodes", "-o", &path])
    };
    let versions = of_nodes("status.nodeInfo.kubeletVersion")?;
    ensure!(versions.split(' ').all(|node| node == version), "{versions}");
    let cordoned = of_nodes("spec.unschedulable")?;
    ensure!(cordoned.is_empty(), "no node stays cordoned: {cordoned}");
    Ok(())
}

/// What no upgrade can do is refused before the first effect.
fn refused(lab: &TestLab) -> Result<()> {
    for (version, reason) in [("v1.35.0", "a downgrade is not possible"), ("v1.99.0", "not in the catalogue")]
    {
        let answer = lab.kubeon(&["upgrade", lab.name(), version])?;
        ensure!(answer.code == 2 && answer.err.contains(reason), "{answer:?}");
    }
    obstacles_are_named(lab)
}

/// Whatever stands against an upgrade is named at once. A check that is ignored names nothing.
fn obstacles_are_named(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    let upgrade = ["upgrade", cluster, NEXT];
    hinder(lab)?;
    lab.on("h3", "systemctl stop kube-apiserver")?;
    let answer = lab.kubeon(&upgrade)?;
    let ignoring = lab.kubeon(&[&upgrade[..], &["--ignore", "removed-apis,skew,certificates"]].concat())?;
    lab.on("h3", "systemctl start kube-apiserver")?;
    lab.on("h5", "systemctl start kubelet")?;
    for text in [
        "networking.k8s.io/v1beta1 servicecidrs",
        "was requested by a client, and v1.37.2 does not serve it",
        "servicecidrs more",
        "is written with networking.k8s.io/v1beta1, which v1.37.2 does not serve",
        "PodDisruptionBudget default/web allows no disruption now",
        "CustomResourceDefinition shops.example.com does not serve v1alpha1",
        "node h5",
        "has kubelet v1.33.0; v1.37 works with v1.34 or newer",
        &format!("{ENDS_SOON} on h2"),
        "master h3",
        "has an API server that is not ready",
    ] {
        ensure!(answer.code == 2 && answer.err.contains(text), "{text:?} is missing in {answer:?}");
    }
    ensure!(answer.err.contains("--ignore certificates,health,removed-apis,skew"), "{answer:?}");
    ensure!(ignoring.code == 2 && ignoring.err.contains("--ignore health"), "{ignoring:?}");
    for text in ["servicecidrs", "has kubelet", ENDS_SOON] {
        ensure!(!ignoring.err.contains(text), "{text:?} is in {ignoring:?}");
    }
    lab.wait_up_to_date(cluster, MINUTE)?;
    unhinder(lab)?;
    println!("  what stands against an upgrade was named in {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Prepares what the checks before an upgrade look for.
fn hinder(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    let serve = format!("{RUNTIME_CONFIG}networking.k8s.io/v1beta1=true");
    lab.must(&["config", "set", cluster, &serve])?;
    let more = json!({ "apiVersion": "networking.k8s.io/v1beta1", "kind": "ServiceCIDR",
        "metadata": { "name": "more" }, "spec": { "cidrs": ["10.250.0.0/24"] } });
    lab.apply(cluster, &more)?;
    // Each API server counts its own requests, and that of h3 stops.
    let kubectl = "/var/lib/kubeon/current/kubectl/bin/kubectl --kubeconfig /etc/kubernetes/admin.conf";
    lab.on("h1", &format!("{kubectl} get servicecidrs.v1beta1.networking.k8s.io more"))?;
    // Objects may be stored in a version that was served before.
    lab.apply(cluster, &shops(&[("v1alpha1", true, true)]))?;
    lab.apply(cluster, &shops(&[("v1alpha1", false, false), ("v1", true, true)]))?;
    allow_disruptions(lab, 0)?;
    let certificate = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=soon -days 1 -keyout /dev/null";
    lab.on("h2", &format!("{certificate} -out {ENDS_SOON}"))?;
    lab.on("h5", "systemctl stop kubelet")?;
    let old = r#"{"status":{"nodeInfo":{"kubeletVersion":"v1.33.0"}}}"#;
    let patch = ["patch", "node", "h5", "--subresource=status", "--type=merge", "-p", old];
    lab.kubectl(cluster, &patch).map(drop)
}

/// Removes it again, while all programs run. The API servers forget the requests with their restart.
fn unhinder(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    lab.on("h2", &format!("rm {ENDS_SOON}"))?;
    allow_disruptions(lab, 1)?;
    lab.kubectl(cluster, &["delete", "crd", "shops.example.com", "--timeout=60s"])?;
    lab.kubectl(cluster, &["delete", "servicecidr", "more", "--timeout=60s"])?;
    lab.must(&["config", "set", cluster, RUNTIME_CONFIG])?;
    eventually("h5 has its own kubelet", MINUTE, || kubelets_have(lab, VERSION))?;
    lab.wait_up_to_date(cluster, MINUTE)
}

/// How many of the two pods of [`serve`] may leave.
fn allow_disruptions(lab: &TestLab, allowed: u32) -> Result<()> {
    let fields = json!({ "spec": { "minAvailable": 2 - allowed } }).to_string();
    lab.kubectl(lab.name(), &["patch", "poddisruptionbudget", "web", "--type=merge", "-p", &fields])?;
    let status = ["get", "poddisruptionbudget", "web", "-o", "jsonpath={.status.disruptionsAllowed}"];
    eventually("the budget is counted", MINUTE, || {
        let found = lab.kubectl(lab.name(), &status)?;
        ensure!(found == allowed.to_string(), "{found}");
        Ok(())
    })
}

/// A definition with these versions: whether each is served, and whether objects are stored in it.
fn shops(versions: &[(&str, bool, bool)]) -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object" } });
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, served, storage)| {
            json!({ "name": name, "served": served, "storage": storage, "schema": schema })
        })
        .collect();
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "shops.example.com" }, "spec": { "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Shop", "plural": "shops", "singular": "shop", "listKind": "ShopList" },
            "versions": versions } })
}

/// Writes the plan of the upgrade to a file, for its approval. A plan without the steps of the upgrade does not permit it.
fn approved_plan(lab: &TestLab) -> Result<String> {
    let (cluster, file) = (lab.name(), lab.file("approved.zst").display().to_string());
    lab.must(&["plan", cluster, "--out", &file])?;
    let refused = lab.kubeon(&["upgrade", cluster, NEXT, "--approved-plan", &file])?;
    ensure!(refused.code == 2 && refused.err.contains("is out of date"), "{refused:?}");
    ensure!(lab.plan(cluster)?.is_empty(), "the refused upgrade changed nothing");
    let shown = lab.must(&["upgrade", cluster, NEXT, "--dry-run", "--out", &file])?;
    for words in
        ["snapshot: of etcd", "disk: ", "first, every master tries the control plane", "Nothing was written"]
    {
        ensure!(shown.contains(words), "{words} is missing in {shown}");
    }
    Ok(file)
}

/// Two pods that a disruption budget keeps alive one after the other, behind a Service. A pod that ends serves until all nodes know it.
pub(crate) fn serve(lab: &TestLab) -> Result<()> {
    lab.load_client(lab.name())?;
    let labels = json!({ "app": "web" });
    lab.apply(lab.name(), &json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "replicas": 2,
          "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": { "containers": [
            { "name": "web", "image": kubeon_e2e::image::NAME, "imagePullPolicy": "IfNotPresent", "args": ["serve", "8080"],
              "lifecycle": { "preStop": { "sleep": { "seconds": 8 } } },
              "readinessProbe": { "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1 } }] } } } },
        { "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
          "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] } },
        { "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "web" },
          "spec": { "minAvailable": 1, "selector": { "matchLabels": labels } } },
    ] }))?;
    let available = ["wait", "--for=condition=Available", "deployment/web", "--timeout=240s"];
    lab.kubectl(lab.name(), &available).map(drop)
}

/// Starts requests from `h4` to the API through its haproxy, and to the pods of [`serve`] through their Service.
pub(crate) fn probe_all(lab: &TestLab) -> Result<()> {
    probe::start(lab, "h4")?;
    probe::start_service(lab, "h4", "web")
}

/// No request of [`probe_all`] failed.
pub(crate) fn no_request_failed(lab: &TestLab) -> Result<()> {
    println!("  {}", probe::none_failed(lab, "h4")?);
    println!("  {}", probe::none_to_service_failed(lab, "h4")?);
    Ok(())
}

/// The cluster returns to the snapshot of the upgrade: what was created since is lost, and everything else is there.
fn rolled_back(lab: &TestLab) -> Result<()> {
    let (cluster, begin) = (lab.name(), Instant::now());
    lab.kubectl(cluster, &["create", "namespace", "late"])?;
    let shown = lab.kubeon(&["rollback", cluster, "--dry-run"])?;
    ensure!(shown.code == 0 && shown.out.contains("returns to v1.36.3"), "{shown:?}");
    ensure!(shown.out.contains("1 Namespace") && shown.out.contains("Nothing was written"), "{shown:?}");
    lab.must(&["rollback", cluster, "--yes"])?;
    println!("  the way back to the snapshot took {:.0} s", begin.elapsed().as_secs_f64());
    lab.wait_up_to_date(cluster, MINUTE)?;
    kubelets_have(lab, VERSION)?;
    ensure!(lab.kubectl(cluster, &["get", "namespace", "late"]).is_err(), "the snapshot is older");
    let available = ["wait", "--for=condition=Available", "deployment/web", "--timeout=120s"];
    lab.load_client(cluster)?;
    lab.kubectl(cluster, &available).map(drop)
}

/// Every node has the new version, the pods serve, and nothing is left to do.
pub(crate) fn upgraded(lab: &TestLab) -> Result<()> {
    let cluster = lab.name();
    lab.wait_up_to_date(cluster, MINUTE)?;
    kubelets_have(lab, NEXT)?;
    let ready =
        lab.kubectl(cluster, &["get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}"])?;
    ensure!(ready == "2", "{ready} pods of web are ready");
    let files = std::fs::read_dir(lab.file(&format!("snapshots/{cluster}")))?;
    let mut files = files.filter_map(Result::ok).map(|file| file.path());
    let snapshot =
        files.find(|file| file.extension().is_some_and(|end| end == "db")).context("no snapshot")?;
    lab.must(&["etcd", "check", cluster, &snapshot.display().to_string()])?;
    writer::start(lab, "after", 5)?;
    println!("  {}", writer::report(lab)?);
    Ok(())
}
