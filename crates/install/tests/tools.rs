//! Helm and kustomize themselves read what is committed in `deploy/`, and make of it what `deploy/kubeon.yaml` says; a real
//! API server takes it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use kubeon_envtest::{ApiServer, Options};
use serde_json::{Value, json};

/// The version that is built when there is no helm.
const HELM_PACKAGE: &str = "helm.sh/helm/v4/cmd/helm@v4.3.1";

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

/// Objects by kind, namespace and name, whatever their order.
fn objects(yaml: &str) -> BTreeMap<String, Value> {
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple(yaml).unwrap();
    let key = |object: &Value| {
        let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    };
    documents.into_iter().flatten().map(|object| (key(&object), object)).collect()
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

/// Numbers as one kind: kustomize writes `1` for `1.0`.
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
        assert!(plain(found) == plain(wanted.clone()), "{key} is otherwise");
    }
    assert!(found.is_empty(), "more than the manifest: {:?}", found.keys());
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// The kubectl on the PATH, else the bundle's.
fn kubectl() -> PathBuf {
    if runs("kubectl", &["version", "--client"]) {
        return "kubectl".into();
    }
    kubeon_envtest::program("kubectl").expect("the bundle's kubectl")
}

#[test]
fn kustomize_makes_the_manifest() {
    let kubectl = kubectl();
    let built = output(Command::new(&kubectl).arg("kustomize").arg(deploy().join("kustomize/default")));
    same(objects(&built), &manifest());
    for part in ["crd", "rbac", "deployment", "admission"] {
        let built =
            output(Command::new(&kubectl).arg("kustomize").arg(deploy().join("kustomize").join(part)));
        assert!(!objects(&built).is_empty(), "{part}");
    }
}

/// A helm: `$KUBEON_HELM`, one on the PATH, one that was built before, or one that is built now, both tests of which may
/// want it at once.
fn helm() -> PathBuf {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(find_helm).clone()
}

fn find_helm() -> PathBuf {
    if let Some(given) = std::env::var_os("KUBEON_HELM") {
        return given.into();
    }
    if runs("helm", &["version"]) {
        return "helm".into();
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let folder = cache.or_else(home).expect("a place for helm").join("kubeon/tools");
    let built = folder.join("helm");
    if !built.exists() {
        // Without what only debuggers and other machines read it is there in half the time.
        let mut go = Command::new("go");
        go.args(["install", "-trimpath", "-ldflags=-s -w", "-gcflags=all=-dwarf=false"]).arg(HELM_PACKAGE);
        output(go.env("GOBIN", &folder).env("GOFLAGS", "-mod=mod").env("CGO_ENABLED", "0"));
    }
    built
}

fn template(helm: &Path, arguments: &[&str]) -> BTreeMap<String, Value> {
    let chart = deploy().join("chart");
    let mut command = Command::new(helm);
    command.args(["template", "kubeon"]).arg(chart).args(["--namespace", "kubeon-system"]).args(arguments);
    objects(&output(&mut command))
}

#[test]
fn helm_makes_the_manifest() {
    let helm = helm();
    output(Command::new(&helm).args(["lint", "--strict"]).arg(deploy().join("chart")));
    let mut wanted = manifest();
    wanted.remove("Namespace /kubeon-system").expect("helm makes the namespace itself");
    for (key, object) in &mut wanted {
        if key.starts_with("CustomResourceDefinition") {
            object["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
        }
    }
    same(template(&helm, &[]), &wanted);
}

#[test]
fn helm_takes_what_a_person_sets() {
    let helm = helm();
    let made = template(
        &helm,
        &[
            "--set=replicas=3,leaderElection=false,image.repository=r.example.com/op,image.tag=v9,historyLimit=5",
            "--set=watchNamespaces={a,b,kubeon-system},operators={alice},crds.install=false",
            "--set=callback.url=https://gateway.example,callback.caConfigMap=gateway-ca",
            "--set=traces.endpoint=http://collector:4318",
            "--set=nodeSelector.disk=ssd,resources.requests.cpu=1",
            "--set-json=tolerations=[{\"key\":\"x\",\"operator\":\"Exists\"}]",
        ],
    );
    let deployment = &made["Deployment kubeon-system/kubeon-operator"];
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(container["image"], "r.example.com/op:v9");
    let arguments = container["args"].to_string();
    let callback = ["--callback-url=https://gateway.example", "--callback-ca=/etc/kubeon/gateway-ca/ca.crt"];
    for argument in [
        "--leader-elect=false",
        "--watch-namespace=a",
        "--watch-namespace=b",
        "--otlp-endpoint=http://collector:4318",
    ]
    .iter()
    .chain(&callback)
    {
        assert!(arguments.contains(argument), "{arguments}");
    }
    assert_eq!(pod["volumes"], json!([{"name": "callback-ca", "configMap": {"name": "gateway-ca"}}]));
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/kubeon/gateway-ca");
    assert_eq!(pod["nodeSelector"]["disk"], "ssd");
    assert_eq!(pod["tolerations"][0]["key"], "x");
    assert_eq!(container["resources"]["requests"]["cpu"], 1);
    assert_eq!(
        made["ConfigMap kubeon-system/kubeonkube-config"]["data"]["CLUSTER_OPERATIONS_BACKEND_LIMIT"],
        "5"
    );
    for namespace in ["a", "b", "kubeon-system"] {
        assert!(made.contains_key(&format!("Role {namespace}/kubeon-runner")), "{namespace}");
        assert!(made.contains_key(&format!("ServiceAccount {namespace}/kubeon-runner")), "{namespace}");
    }
    assert!(!made.keys().any(|key| key.contains("default/") || key.starts_with("CustomResourceDefinition")));
    let policy = made["ValidatingAdmissionPolicy /kubeon-commands"].to_string();
    assert!(policy.contains("['system:serviceaccount:kubeon-system:kubeon-operator', 'alice']"), "{policy}");
}

/// kubectl, going to an API server of its own.
struct Meta {
    kubectl: PathBuf,
    server: ApiServer,
    home: tempfile::TempDir,
}

impl Meta {
    async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        Self { kubectl: kubectl(), server, home: tempfile::tempdir().unwrap() }
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.kubectl);
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(self.server.kubeconfig_file());
        output(command.args(arguments))
    }

    /// Writes objects where kubectl reads them.
    fn file(&self, objects: impl Iterator<Item = Value>) -> String {
        let file = self.home.path().join("objects.yaml");
        let documents: String = objects.map(|object| format!("---\n{object}\n")).collect();
        std::fs::write(&file, documents).unwrap();
        file.display().to_string()
    }

    /// Whether all of these are there.
    fn holds(&self, wanted: &BTreeMap<String, Value>) {
        let file = self.file(wanted.values().cloned());
        let names = self.kubectl(&["get", "-f", &file, "-o", "name"]);
        assert_eq!(names.lines().count(), wanted.len(), "{names}");
    }
}

#[tokio::test]
async fn an_api_server_takes_what_kustomize_makes() {
    let meta = Meta::start().await;
    let (folder, file) = (deploy().join("kustomize/default"), deploy().join("kubeon.yaml"));
    let (folder, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let applied = meta.kubectl(&["apply", "--server-side", "-k", folder]);
    assert_eq!(applied.lines().count(), manifest().len(), "{applied}");
    meta.holds(&manifest());
    // The manifest would change nothing of it: kubectl fails where it would.
    assert_eq!(meta.kubectl(&["diff", "--server-side", "-f", file]), "");
}

#[tokio::test]
async fn an_api_server_takes_what_helm_makes() {
    let meta = Meta::start().await;
    meta.kubectl(&["create", "namespace", "kubeon-system"]);
    let made = template(&helm(), &[]);
    let file = meta.file(made.values().cloned());
    let applied = meta.kubectl(&["apply", "--server-side", "-f", &file]);
    assert_eq!(applied.lines().count(), made.len(), "{applied}");
    meta.holds(&made);
    // And what a person sets. Namespaces that are watched must exist.
    meta.kubectl(&["create", "namespace", "team-a"]);
    let set = template(
        &helm(),
        &[
            "--set=watchNamespaces={team-a},replicas=3,historyLimit=5,callback.url=https://gateway.example",
            "--set=callback.caConfigMap=gateway-ca,nodeSelector.disk=ssd,operators={alice}",
        ],
    );
    let file = meta.file(set.values().cloned());
    meta.kubectl(&["apply", "--server-side", "-f", &file]);
    meta.holds(&set);
}
