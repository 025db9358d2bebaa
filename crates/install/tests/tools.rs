//! The chart, rendered by the packages of Helm, and the bases of kustomize, built by kubectl, contain the objects of
//! `deploy/kubeon.yaml`. A real API server accepts them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kubeon_envtest::{ApiServerOptions, TestApiServer};
use kubeon_install::{InstallOptions, kustomize};
use serde_json::{Value, json};

/// The timeout of all waits; test machines may be slow.
const TIMEOUT: Duration = Duration::from_secs(60);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Objects by kind, namespace and name.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(yaml).unwrap();
    let key = |object: &Value| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    documents.into_iter().flatten().map(|object| (key(&object), object)).collect()
}

/// The objects of the bases of kustomize with this namespace.
fn base(namespace: &str) -> BTreeMap<String, Value> {
    let options = InstallOptions { namespace: namespace.to_owned(), ..InstallOptions::default() };
    objects(&kubeon_install::manifest::manifest(&kustomize::options(&options)).unwrap())
}

/// What kustomize builds from a user's kustomization with the base and this namespace.
fn moved(namespace: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    // kustomize takes relative paths only.
    let up = "../".repeat(place.components().count() - 1);
    let base = deploy().join("kustomize/default").canonicalize().unwrap();
    let base = base.strip_prefix("/").unwrap().display();
    let text = format!("namespace: {namespace}\nresources:\n- {up}{base}\n");
    std::fs::write(place.join("kustomization.yaml"), text).unwrap();
    output(Command::new(kubectl()).arg("kustomize").arg(&place))
}

/// Without the namespace that kustomize adds to kinds that are younger than its list of kinds without one. The API server ignores
/// it.
fn without_namespace_of_young_kinds(objects: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let is_young = |kind: &str| kind == "FlowSchema" || kind.starts_with("ValidatingAdmissionPolicy");
    let plain = |(key, mut object): (String, Value)| {
        if !is_young(object["kind"].as_str().unwrap_or_default()) {
            return (key, object);
        }
        object["metadata"].as_object_mut().unwrap().remove("namespace");
        let key =
            format!("{} /{}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        (key, object)
    };
    objects.into_iter().map(plain).collect()
}

fn manifest() -> BTreeMap<String, Value> {
    objects(&std::fs::read_to_string(deploy().join("kubeon.yaml")).unwrap())
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{}{error}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).unwrap()
}

/// Numbers as floating point: kustomize writes `1` for `1.0`.
fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        other => other,
    }
}

#[track_caller]
fn same(mut found: BTreeMap<String, Value>, wanted: &BTreeMap<String, Value>) {
    for (key, wanted) in wanted {
        let found = found.remove(key).unwrap_or_else(|| panic!("{key} is missing"));
        assert!(plain(found) == plain(wanted.clone()), "{key} differs");
    }
    assert!(found.is_empty(), "not in the manifest: {:?}", found.keys());
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// The kubectl on the PATH, or else the kubectl of the bundle.
fn kubectl() -> PathBuf {
    if runs("kubectl", &["version", "--client"]) {
        return "kubectl".into();
    }
    kubeon_envtest::program("kubectl").expect("the bundle's kubectl")
}

#[test]
fn kustomize_builds_the_objects_and_moves_them_to_another_namespace() {
    let kubectl = kubectl();
    let built = output(Command::new(&kubectl).arg("kustomize").arg(deploy().join("kustomize/default")));
    same(objects(&built), &base("kubeon-system"));
    same(without_namespace_of_young_kinds(objects(&moved("team-ops"))), &base("team-ops"));
    for part in ["crd", "rbac", "deployment", "admission", "watched-namespace"] {
        let built =
            output(Command::new(&kubectl).arg("kustomize").arg(deploy().join("kustomize").join(part)));
        assert!(!objects(&built).is_empty(), "{part}");
    }
}

fn gitops() -> PathBuf {
    kubeon_envtest::gitops_program().expect("the program that renders charts")
}

fn render(values: &Value) -> Command {
    let mut command = Command::new(gitops());
    command.arg("render").arg(deploy().join("chart")).args(["kubeon-system", &values.to_string()]);
    command
}

fn rendered(values: &Value) -> BTreeMap<String, Value> {
    objects(&output(&mut render(values)))
}

/// Without the hooks, which helm creates later.
fn installed(values: &Value) -> BTreeMap<String, Value> {
    let mut objects = rendered(values);
    objects.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    objects
}

#[test]
fn the_chart_with_default_values_is_the_manifest() {
    let mut wanted = manifest();
    wanted.remove("Namespace /kubeon-system").expect("helm creates the namespace itself");
    let mut found = rendered(&json!({}));
    let hook = found.remove("Job kubeon-system/kubeon-uninstall-check").expect("helm asks before it removes");
    let deployment = &found["Deployment kubeon-system/kubeon-operator"]["spec"]["template"]["spec"];
    let asks = &hook["spec"]["template"]["spec"];
    for field in ["image", "securityContext"] {
        assert_eq!(asks["containers"][0][field], deployment["containers"][0][field]);
    }
    assert_eq!(asks["securityContext"], deployment["securityContext"]);
    assert_eq!(asks["containers"][0]["args"], json!(["--check-uninstall"]));
    for (key, object) in &mut wanted {
        if key.starts_with("CustomResourceDefinition") {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
        }
    }
    same(found, &wanted);
}

#[test]
fn the_chart_with_a_gateway_is_both_manifests() {
    let gateway = std::fs::read_to_string(deploy().join("gateway.yaml")).unwrap();
    let (with, without) = (rendered(&json!({"gateway": {"enabled": true}})), rendered(&json!({})));
    let added = with.into_iter().filter(|(key, _)| !without.contains_key(key)).collect();
    same(added, &objects(&gateway));
    let values = json!({"gateway": {
        "enabled": true,
        "clientCASecret": "clients",
        "impersonate": {"users": ["alice"], "groups": ["team-a"]},
        "callerNamespaces": ["group:team-a=team-a"],
        "oidc": {"issuerURL": "https://login.example.org", "clientID": "kubeon", "groupsClaim": "groups",
            "usernamePrefix": "-", "groupsPrefix": "oidc:", "caSecret": "login-ca"},
    }});
    let set = rendered(&values);
    let role = set["ClusterRole /kubeon-gateway"].to_string();
    assert!(
        role.contains(r#""resourceNames":["alice"]"#) && role.contains(r#""resourceNames":["team-a"]"#),
        "{role}"
    );
    let pod = set["Deployment kubeon-system/kubeon-gateway"].to_string();
    for argument in [
        "--client-ca=/etc/kubeon/client-ca/ca.crt",
        "--impersonate-user=alice",
        "--impersonate-group=team-a",
        "--caller-namespace=group:team-a=team-a",
        "--oidc-issuer-url=https://login.example.org",
        "--oidc-client-id=kubeon",
        "--oidc-username-claim=sub",
        "--oidc-username-prefix=-",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        "--oidc-ca-file=/etc/kubeon/oidc-ca/ca.crt",
        r#""secretName":"login-ca""#,
    ] {
        assert!(pod.contains(argument), "{argument}: {pod}");
    }
}

#[test]
fn the_chart_places_pods_and_makes_the_same_monitor_as_the_manifests() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "role", "operator": "In", "values": ["meta"]}]}]}}});
    let set = rendered(&json!({
        "affinity": affinity, "defaultVersion": "v1.35.4",
        "gateway": {"enabled": true, "affinity": affinity},
        "podMonitor": {"enabled": true, "labels": {"release": "prometheus"}},
    }));
    for name in ["operator", "gateway"] {
        let pod = &set[&format!("Deployment kubeon-system/kubeon-{name}")]["spec"]["template"]["spec"];
        assert_eq!(pod["affinity"], affinity, "{name}");
    }
    let operator = set["Deployment kubeon-system/kubeon-operator"].to_string();
    assert!(operator.contains(r#""--default-version=v1.35.4""#), "{operator}");
    let monitor = &set["PodMonitor kubeon-system/kubeon-operator"];
    let manifest = std::fs::read_to_string(deploy().join("monitoring/pod-monitor.yaml")).unwrap();
    assert_eq!(monitor["spec"], objects(&manifest)["PodMonitor kubeon-system/kubeon-operator"]["spec"]);
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
}

#[test]
fn the_chart_passes_helm_lint_strict() {
    output(Command::new(gitops()).arg("lint").arg(deploy().join("chart")).arg("kubeon-system"));
    // The linter reports mistakes, such as a chart without a version.
    let broken = tempfile::tempdir().unwrap();
    std::fs::write(broken.path().join("Chart.yaml"), "apiVersion: v2\nname: broken\n").unwrap();
    let refused =
        Command::new(gitops()).arg("lint").arg(broken.path()).arg("kubeon-system").output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && error.contains("version"), "{error}");
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let text = std::fs::read_to_string(deploy().join("chart/Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
}

#[test]
fn the_schema_refuses_wrong_values() {
    for (values, field) in [
        (json!({"replicas": "two"}), "replicas"),
        (json!({"replicas": -1}), "replicas"),
        (json!({"historyLimit": 0}), "historyLimit"),
        (json!({"historyLimit": 201}), "historyLimit"),
        (json!({"leaderElection": "yes"}), "leaderElection"),
        // Two operators without an election would both reconcile.
        (json!({"leaderElection": false, "replicas": 2}), "replicas"),
        (json!({"runnerImages": []}), "runnerImages"),
        (json!({"watchNamespaces": ["Not_A_Name"]}), "watchNamespaces"),
        (json!({"callback": {"url": "http://plain.example"}}), "url"),
        (json!({"traces": {"endpoint": "collector:4318"}}), "endpoint"),
        (json!({"nodeSelector": {"disk": 1}}), "nodeSelector"),
        (json!({"image": {"name": "misspelled"}}), "name"),
        (json!({"image": {"digest": "v1"}}), "digest"),
        (json!({"jobs": {"nodeSelectors": {}}}), "nodeSelectors"),
        (json!({"gateway": {"callerNamespaces": ["team-a"]}}), "callerNamespaces"),
        (json!({"snapshotEndpoints": ["https://s3.example.org/"]}), "snapshotEndpoints"),
        (json!({"snapshotEndpoints": ["s3.example.org"]}), "snapshotEndpoints"),
        (json!({"replica": 3}), "replica"),
    ] {
        let refused = render(&values).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{values} is accepted");
        assert!(error.contains(field) && error.contains("schema"), "{values}: {error}");
    }
}

#[test]
fn the_chart_with_other_values_has_them() {
    let objects = rendered(&json!({
        "replicas": 1,
        "leaderElection": false,
        "handOver": true,
        "image": {"repository": "r.example.com/op", "tag": "v9", "digest": format!("sha256:{}", "a".repeat(64))},
        "historyLimit": 5,
        "watchNamespaces": ["a", "b", "kubeon-system"],
        "operators": ["alice"],
        "crds": {"install": false},
        "callback": {"url": "https://gateway.example", "caConfigMap": "gateway-ca"},
        "traces": {"endpoint": "http://collector:4318"},
        "trustedKeys": ["release ssh-ed25519 AAAA"],
        "allowedImages": ["quay.io/kubespray/*"],
        "jobs": {"imagePullSecrets": [{"name": "registry"}]},
        "maxOperations": 20,
        "maxOperationsPerRegion": 5,
        "requireHostPools": true,
        "snapshotEndpoints": ["https://s3.example.org", "https://[2001:db8::1]:9000"],
        "admissionOnlyApiServers": true,
        "mountBundleImage": true,
        "extraArgs": ["--workers=64"],
        "nodeSelector": {"disk": "ssd"},
        "resources": {"requests": {"cpu": 1}},
        "tolerations": [{"key": "x", "operator": "Exists"}],
    }));
    let deployment = &objects["Deployment kubeon-system/kubeon-operator"];
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(container["args"].as_array().unwrap().last().unwrap(), "--workers=64");
    assert_eq!(container["image"], format!("r.example.com/op:v9@sha256:{}", "a".repeat(64)));
    let arguments = container["args"].to_string();
    let callback = ["--callback-url=https://gateway.example", "--callback-ca=/etc/kubeon/gateway-ca/ca.crt"];
    for argument in [
        "--leader-elect=false",
        "--watch-namespace=a",
        "--watch-namespace=b",
        "--otlp-endpoint=http://collector:4318",
        "--trusted-key=release ssh-ed25519 AAAA",
        "--allowed-image=quay.io/kubespray/*",
        "--max-operations=20",
        "--max-operations-per-region=5",
        "--admission-only-api-servers",
        "--mount-bundle-image",
    ]
    .iter()
    .chain(&callback)
    {
        assert!(arguments.contains(argument), "{arguments}");
    }
    let placement = r#"--job-placement={"imagePullSecrets":[{"name":"registry"}]}"#;
    assert!(container["args"].as_array().unwrap().contains(&json!(placement)), "{arguments}");
    assert_eq!(pod["volumes"], json!([{"name": "callback-ca", "configMap": {"name": "gateway-ca"}}]));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/kubeon/gateway-ca");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "x");
    assert_eq!(container["resources"]["requests"]["cpu"], 1);
    assert_eq!(
        objects["ConfigMap kubeon-system/kubeonkube-config"]["data"]["CLUSTER_OPERATIONS_BACKEND_LIMIT"],
        "5"
    );
    for namespace in ["a", "b", "kubeon-system"] {
        assert!(objects.contains_key(&format!("Role {namespace}/kubeon-runner")), "{namespace}");
        assert!(objects.contains_key(&format!("ServiceAccount {namespace}/kubeon-runner")), "{namespace}");
    }
    assert!(
        !objects.keys().any(|key| key.contains("default/") || key.starts_with("CustomResourceDefinition"))
    );
    assert!(!objects.contains_key("Job kubeon-system/kubeon-uninstall-check"));
    let policy = objects["ValidatingAdmissionPolicy /kubeon-commands"].to_string();
    assert!(policy.contains("['system:serviceaccount:kubeon-system:kubeon-operator', 'alice']"), "{policy}");
    let policy = objects["ValidatingAdmissionPolicy /kubeon-snapshot-endpoint"].to_string();
    assert!(policy.contains("['https://s3.example.org', 'https://[2001:db8::1]:9000']"), "{policy}");
}

/// An API server of its own, and kubectl.
struct MetaCluster {
    kubectl: PathBuf,
    server: TestApiServer,
    home: tempfile::TempDir,
}

impl MetaCluster {
    async fn start() -> Self {
        let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
        Self { kubectl: kubectl(), server, home: tempfile::tempdir().unwrap() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(self.server.kubeconfig_file());
        command.args(arguments);
        command
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        output(&mut self.command(arguments))
    }

    /// As [`Self::kubectl`]; a failure returns the standard error.
    fn run(&self, arguments: &[&str]) -> Result<(), String> {
        let output = self.command(arguments).output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Waits until the condition holds: roles and policies come into force some time after they were written.
    async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < TIMEOUT, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Writes objects into a file for kubectl.
    fn file(&self, objects: impl Iterator<Item = Value>) -> String {
        let file = self.home.path().join("objects.yaml");
        let documents: String = objects.map(|object| format!("---\n{object}\n")).collect();
        std::fs::write(&file, documents).unwrap();
        file.display().to_string()
    }

    /// Checks that all of these objects exist.
    fn has(&self, wanted: &BTreeMap<String, Value>) {
        let file = self.file(wanted.values().cloned());
        let names = self.kubectl(&["get", "-f", &file, "-o", "name"]);
        assert_eq!(names.lines().count(), wanted.len(), "{names}");
    }
}

#[tokio::test]
async fn an_api_server_accepts_the_bases_of_kustomize() {
    let meta = MetaCluster::start().await;
    let folder = deploy().join("kustomize/default");
    let folder = folder.to_str().unwrap();
    let applied = meta.kubectl(&["apply", "--server-side", "-k", folder]);
    assert_eq!(applied.lines().count(), base("kubeon-system").len(), "{applied}");
    meta.has(&base("kubeon-system"));
    // A second time changes nothing; otherwise kubectl diff would fail.
    assert_eq!(meta.kubectl(&["diff", "--server-side", "-k", folder]), "");
}

/// The operator's Deployment does not run here, so requests that need its webhook fail.
#[tokio::test]
async fn admission_knows_an_operator_that_kustomize_moved() {
    let meta = MetaCluster::start().await;
    let file = meta.home.path().join("moved.yaml");
    std::fs::write(&file, moved("team-ops")).unwrap();
    meta.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    meta.kubectl(&["wait", "--for=condition=Established", "--all", "crd", "--timeout=60s"]);
    let role = ["create", "clusterrolebinding", "other", "--clusterrole=kubeon-operation-editor"];
    meta.kubectl(&[&role[..], &["--serviceaccount=elsewhere:kubeon-operator"]].concat());
    let operation = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": "derived", "labels": {"kubeon.io/cluster-uid": "u"}},
        "spec": {"cluster": "shop", "image": "busybox", "actionType": "shell", "action": "true"}});
    let file = meta.file(std::iter::once(operation));
    let create = |namespace: &str| {
        let user = format!("--as=system:serviceaccount:{namespace}:kubeon-operator");
        meta.run(&["create", "--dry-run=server", "-f", &file, &user])
    };
    meta.until("the operator is known", || create("team-ops").is_ok()).await;
    let asks_the_webhook =
        |namespace: &str| create(namespace).is_err_and(|error| error.contains("calling webhook"));
    meta.until("another account is not", || asks_the_webhook("elsewhere")).await;
    assert!(create("team-ops").is_ok());
}

#[tokio::test]
async fn an_api_server_accepts_the_chart() {
    let meta = MetaCluster::start().await;
    meta.kubectl(&["create", "namespace", "kubeon-system"]);
    let objects = installed(&json!({}));
    let file = meta.file(objects.values().cloned());
    let applied = meta.kubectl(&["apply", "--server-side", "-f", &file]);
    assert_eq!(applied.lines().count(), objects.len(), "{applied}");
    meta.has(&objects);
    // Other values. Watched namespaces must exist.
    meta.kubectl(&["create", "namespace", "team-a"]);
    let set = installed(&json!({
        "watchNamespaces": ["team-a"],
        "replicas": 3,
        "historyLimit": 5,
        "callback": {"url": "https://gateway.example", "caConfigMap": "gateway-ca"},
        "nodeSelector": {"disk": "ssd"},
        "operators": ["alice"],
    }));
    let file = meta.file(set.values().cloned());
    meta.kubectl(&["apply", "--server-side", "-f", &file]);
    meta.has(&set);
}
