//! `kubeon meta export` and `restore` between two real API servers, with the kubectl of the bundle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure fails the test")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kubeon_envtest::{ApiServerOptions, TestApiServer, program};
use serde_json::{Value, json};

/// The kinds of exported objects for kubectl.
const KINDS: [&str; 6] = [
    "namespaces",
    "clusters.kubeonkube.clay.io",
    "clusteroperations.kubeonkube.clay.io",
    "kubernetesclusters.ecs.yun.com",
    "configmaps",
    "secrets",
];
/// Fields of the metadata that differ in each cluster.
const OWN_FIELDS: [&str; 4] = ["uid", "resourceVersion", "creationTimestamp", "generation"];

struct Person {
    home: tempfile::TempDir,
    kubectl: PathBuf,
}

impl Person {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), kubectl: program("kubectl").unwrap() }
    }

    fn kubeon(&self, kubeconfig: &Path, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubeon"));
        command.arg("meta").args(words).arg("--kubeconfig").arg(kubeconfig);
        let path = format!("{}:/usr/bin:/bin", self.kubectl.parent().unwrap().display());
        command.env_clear().env("HOME", self.home.path()).env("PATH", path).output().unwrap()
    }

    /// Runs a command that succeeds, and returns its standard output as JSON.
    #[track_caller]
    fn must(&self, kubeconfig: &Path, words: &[&str]) -> Value {
        let output = self.kubeon(kubeconfig, words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Runs a command that is refused, and returns its standard error.
    #[track_caller]
    fn refused(&self, kubeconfig: &Path, words: &[&str]) -> String {
        let output = self.kubeon(kubeconfig, words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        error
    }

    #[track_caller]
    fn kubectl(&self, kubeconfig: &Path, words: &[&str]) -> String {
        let mut command = Command::new(&self.kubectl);
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(kubeconfig).args(words);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Creates an object and writes its status. Returns its UID.
    #[track_caller]
    fn create(&self, kubeconfig: &Path, object: &Value) -> String {
        let file = self.home.path().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let shown = file.to_str().unwrap();
        self.kubectl(kubeconfig, &["create", "-f", shown]);
        if !object["status"].is_null() {
            self.kubectl(kubeconfig, &["replace", "--subresource=status", "-f", shown]);
        }
        self.kubectl(kubeconfig, &["get", "-f", shown, "-o", "jsonpath={.metadata.uid}"])
    }

    /// All objects of the exported kinds, by kind, namespace and name.
    fn objects(&self, kubeconfig: &Path) -> BTreeMap<String, Value> {
        let list = self.kubectl(kubeconfig, &["get", &KINDS.join(","), "-A", "-o", "json"]);
        let list: Value = serde_json::from_str(&list).unwrap();
        let key = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            format!("{} {}/{}", object["kind"].as_str().unwrap(), text("namespace"), text("name"))
        };
        list["items"].as_array().unwrap().iter().map(|object| (key(object), object.clone())).collect()
    }
}

fn uid(objects: &BTreeMap<String, Value>, key: &str) -> String {
    objects[key]["metadata"]["uid"].as_str().unwrap_or_else(|| panic!("{key} has no UID")).to_owned()
}

fn operation(name: &str, status: Value) -> Value {
    let mut object = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "metadata": {"name": name},
        "spec": {"cluster": "shop", "image": "busybox", "actionType": "shell", "action": "sleep 10"}});
    if !status.is_null() {
        object["status"] = status;
        object["metadata"]["labels"] = json!({"hasCompleted": "done"});
    }
    object
}

fn kubernetes_cluster() -> Value {
    json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": "demo", "namespace": "team-a", "finalizers": ["kubernetescluster.ecs.yun.com/demo"],
            "annotations": {"app.kubernetes.io/operation": "create-finished", "app.kubernetes.io/spec": "{}"}},
        "spec": {"cluster": {"kubeVersion": "v1.36.3", "masterList": [{"ip": "10.0.0.1"}],
            "authConfig": {"credentialsRef": {"name": "login"}}}},
        "status": {"phase": "Running", "version": "v1.36.3", "observedGeneration": 1, "conditions": [
            {"type": "Ready", "status": "True", "reason": "Up", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-31T12:00:00Z"}]}})
}

fn data(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "data": {"key": "dmFsdWU="}})
}

/// A meta cluster with clusters of both kinds, their operations, keys and logs.
async fn first_meta_cluster(person: &Person) -> TestApiServer {
    let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
    server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
    let kubeconfig = server.kubeconfig_file();
    let create = |object: Value| person.create(&kubeconfig, &object);
    for (name, annotations) in
        [("team-a", json!({"kubeon.io/host-pool": "10.0.0.0/24"})), ("kubeon-system", json!({}))]
    {
        create(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "annotations": annotations}}),
        );
    }
    let at = |name: &str| json!({"namespace": "kubeon-system", "name": name});
    create(data("ConfigMap", "kubeon-system", "shop-hosts"));
    create(data("ConfigMap", "kubeon-system", "unrelated"));
    create(data("Secret", "kubeon-system", "shop-key"));
    create(
        json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "shop"},
        "spec": {"hostsConfRef": at("shop-hosts"), "varsConfRef": at("missing"), "sshAuthRef": at("shop-key")},
        "status": {"removed": [{"name": "older", "digest": "d1", "result": "Succeeded"}]}}),
    );
    // Their order by name is not that by time.
    create(operation("z-first", json!({"status": "Succeeded", "digest": "x", "observedGeneration": 1})));
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    create(operation("a-second", Value::Null));

    create(data("Secret", "team-a", "login"));
    create(data("ConfigMap", "team-a", "team-a-demo-known-hosts"));
    let mut state = data("Secret", "team-a", "team-a-demo-state");
    state["metadata"]["labels"] = json!({"kubeon.io/cluster": "team-a.demo"});
    create(state);
    let demo = create(kubernetes_cluster());
    let mut derived = operation("team-a-demo-creating", json!({"status": "Failed"}));
    derived["metadata"]["labels"]["kubeon.io/cluster-uid"] = json!(demo);
    derived["metadata"]["labels"]["kubeon.io/cluster-namespace"] = json!("team-a");
    let derived = create(derived);
    let mut log = data("ConfigMap", "team-a", "create-team-a-demo-job-1-log");
    log["immutable"] = json!(true);
    log["metadata"]["labels"] = json!({"kubeon.io/operation": derived});
    log["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
        "name": "team-a-demo-creating", "uid": derived, "controller": true}]);
    create(log);
    server
}

/// Checks that the object is as before, apart from what differs in each cluster and these translated UIDs.
#[track_caller]
fn same(key: &str, before: &Value, now: &Value, uids: &[(String, String)]) {
    let plain = |object: &Value| {
        let mut object = object.clone();
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| !OWN_FIELDS.contains(&key.as_str()));
        object
    };
    let mut wanted = plain(before).to_string();
    for (old, new) in uids {
        wanted = wanted.replace(old, new);
    }
    assert_eq!(plain(now).to_string(), wanted, "{key}");
}

#[tokio::test]
async fn a_meta_cluster_moves_to_another_one() {
    let person = Person::new();
    let first = first_meta_cluster(&person).await;
    let second = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
    let (old, new) = (first.kubeconfig_file(), second.kubeconfig_file());
    let file = person.home.path().join("meta.json");
    let shown = file.to_str().unwrap();
    let refused = person.refused(&new, &["export", shown]);
    assert!(refused.contains("kubeon is not installed"), "{refused}");
    let exported = person.must(&old, &["export", shown, "-o", "json"]);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(exported["openOperations"], json!(["a-second"]));
    let notes = exported["notes"].to_string();
    assert!(
        notes.contains("Cluster shop") && notes.contains("ConfigMap kubeon-system/missing does not exist"),
        "{notes}"
    );

    // With all policies and the webhook, whose operator does not run.
    let install = ["install", "--watch-namespace", "team-a", "--replicas", "0", "--wait", "0"];
    person.must(&new, &install);
    let established =
        ["wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=60s"];
    person.kubectl(&new, &established);
    let restore = ["restore", shown, "-o", "json"];
    let planned = person.must(&new, &[&restore[..], &["--dry-run"]].concat());
    assert!(!person.objects(&new).contains_key("Cluster /shop"), "a dry run writes nothing");
    let restored = person.must(&new, &restore);
    assert_eq!(restored, planned);
    assert!(
        restored["created"].as_array().unwrap().contains(&json!("KubernetesCluster team-a/demo")),
        "{restored:#}"
    );

    let (before, now) = (person.objects(&old), person.objects(&new));
    let translated = ["KubernetesCluster team-a/demo", "ClusterOperation /team-a-demo-creating"];
    let uids = translated.map(|key| (uid(&before, key), uid(&now, key)));
    for key in [
        "Cluster /shop",
        "ClusterOperation /z-first",
        "ClusterOperation /a-second",
        "ClusterOperation /team-a-demo-creating",
        "KubernetesCluster team-a/demo",
        "ConfigMap kubeon-system/shop-hosts",
        "ConfigMap team-a/team-a-demo-known-hosts",
        "ConfigMap team-a/create-team-a-demo-job-1-log",
        "Secret kubeon-system/shop-key",
        "Secret team-a/login",
        "Secret team-a/team-a-demo-state",
    ] {
        same(key, &before[key], now.get(key).unwrap_or_else(|| panic!("{key} is missing")), &uids);
    }
    assert!(!now.contains_key("ConfigMap kubeon-system/unrelated"));
    let pool = &now["Namespace /team-a"]["metadata"]["annotations"]["kubeon.io/host-pool"];
    assert_eq!(pool, "10.0.0.0/24");
    let created =
        |name: &str| now[&format!("ClusterOperation /{name}")]["metadata"]["creationTimestamp"].to_string();
    assert!(created("z-first") < created("a-second"), "operations keep their order");

    let again = person.must(&new, &restore);
    assert_eq!((again["created"].clone(), again["replaced"].clone()), (json!([]), json!([])), "{again:#}");
    assert_eq!(person.objects(&new), now, "a second restore writes nothing");
    second_restores(&person, &new, &restore);
}

/// Restores into a cluster that has the objects.
fn second_restores(person: &Person, new: &Path, restore: &[&str]) {
    let set = |image: &str| format!(r#"{{"spec": {{"image": "{image}"}}}}"#);
    let patch = [
        "patch",
        "clusteroperation",
        "a-second",
        "--type=merge",
        "--as=system:serviceaccount:kubeon-system:kubeon-operator",
        "--as-group=system:masters",
        "-p",
    ];
    person.kubectl(new, &[&patch[..], &[set("other").as_str()]].concat());
    let refused = person.refused(new, restore);
    assert!(
        refused.contains("ClusterOperation a-second") && refused.contains("differs in spec.image"),
        "{refused}"
    );
    assert!(refused.contains("--replace"), "{refused}");
    let replaced = person.must(new, &[restore, &["--replace"]].concat());
    assert_eq!(replaced["replaced"], json!(["ClusterOperation a-second"]));
    let image = ["get", "clusteroperation", "a-second", "-o", "jsonpath={.spec.image}"];
    assert_eq!(person.kubectl(new, &image), "busybox");

    let scale = ["-n", "kubeon-system", "scale", "deployment", "kubeon-operator", "--replicas=1"];
    person.kubectl(new, &scale);
    let refused = person.refused(new, restore);
    assert!(refused.contains("the operator runs") && refused.contains("--replicas=0"), "{refused}");
    let refused = person.refused(new, &[restore, &["--namespace", "elsewhere"]].concat());
    assert!(refused.contains("was in namespace kubeon-system"), "{refused}");
}

#[tokio::test]
async fn an_export_is_encrypted_with_a_key_and_never_written_to_standard_output() {
    let person = Person::new();
    let first = first_meta_cluster(&person).await;
    let kubeconfig = first.kubeconfig_file();
    for place in ["-", "/dev/stdout"] {
        let refused = person.refused(&kubeconfig, &["export", place]);
        assert!(refused.contains("keys of all clusters"), "{refused}");
    }
    let (file, key) = (person.home.path().join("meta.json"), person.home.path().join("key"));
    let (file, key) = (file.to_str().unwrap(), key.to_str().unwrap());
    let mut new_key = Command::new(env!("CARGO_BIN_EXE_kubeon"));
    new_key
        .args(["etcd", "new-key", key])
        .env_clear()
        .env("HOME", person.home.path())
        .env("PATH", "/usr/bin:/bin");
    assert!(new_key.status().unwrap().success());
    person.must(&kubeconfig, &["export", file, "--key", key]);
    assert!(!String::from_utf8_lossy(&std::fs::read(file).unwrap()).contains("team-a"));
    let refused = person.refused(&kubeconfig, &["restore", file]);
    assert!(refused.contains("is encrypted"), "{refused}");
    // The cluster of the export has everything.
    let report = person.must(&kubeconfig, &["restore", file, "--key", key, "-o", "json"]);
    assert_eq!(report["created"], json!([]), "{report:#}");
}
