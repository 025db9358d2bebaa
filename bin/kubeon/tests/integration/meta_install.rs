//! `kubeon meta install` against a real API server, with the kubectl of the bundle.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failure fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use kubeon_envtest::{ApiServerOptions, FaultProxy, TestApiServer, program};
use kubeon_install::{InstallOptions, manifest};
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

struct Person {
    home: tempfile::TempDir,
    kubectl: PathBuf,
}

#[derive(Debug)]
struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Person {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), kubectl: program("kubectl").unwrap() }
    }

    /// Runs `kubeon meta install` with this kubeconfig.
    fn install(&self, kubeconfig: &Path, more: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubeon"));
        command.args(["meta", "install", "--kubeconfig"]).arg(kubeconfig).args(more);
        let path = format!("{}:/usr/bin:/bin", self.kubectl.parent().unwrap().display());
        command.env_clear().env("HOME", self.home.path()).env("PATH", path);
        CommandOutput::from(command.output().unwrap())
    }

    fn kubectl(&self, kubeconfig: &Path, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(&self.kubectl);
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(kubeconfig).args(arguments);
        CommandOutput::from(command.output().unwrap())
    }

    /// The installed objects without the fields that the API server writes.
    fn installed(&self, kubeconfig: &Path, options: &InstallOptions) -> Vec<Value> {
        let file = self.home.path().join("wanted.yaml");
        std::fs::write(&file, manifest::manifest(options).unwrap()).unwrap();
        let shown = file.to_str().unwrap();
        let output = self.kubectl(kubeconfig, &["get", "-f", shown, "-o", "json", "--show-managed-fields"]);
        assert_eq!(output.code, 0, "{}", output.err);
        let list: Value = serde_json::from_str(&output.out).unwrap();
        let mut items = list["items"].as_array().unwrap().clone();
        for item in &mut items {
            item.as_object_mut().unwrap().remove("status");
            let metadata = item["metadata"].as_object_mut().unwrap();
            metadata.remove("resourceVersion");
            let fields = metadata["managedFields"].as_array_mut().unwrap();
            fields.retain(|entry| entry["manager"] == "kubeon");
        }
        items
    }
}

fn object_name(item: &Value) -> String {
    format!("{} {}/{}", item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
}

#[track_caller]
fn same(found: &[Value], before: &[Value]) {
    assert_eq!(found.len(), before.len());
    for (found, before) in found.iter().zip(before) {
        assert_eq!(found, before, "{} differs", object_name(before));
    }
}

#[tokio::test]
async fn install_applies_all_objects_and_a_second_install_changes_nothing() {
    let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
    let (person, kubeconfig) = (Person::new(), server.kubeconfig_file());
    let options = InstallOptions { watch_namespaces: vec!["team-a".into()], ..InstallOptions::default() };
    let count = kubeon_install::objects(&options).unwrap().len();
    let install = || {
        let output = person.install(&kubeconfig, &["--watch-namespace", "team-a", "--wait", "0"]);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(output.err.contains(&format!("{count} objects are applied")), "{}", output.err);
        output
    };
    assert!(install().err.contains("namespace team-a is created"));
    let established =
        ["wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=60s"];
    assert_eq!(person.kubectl(&kubeconfig, &established).code, 0);
    let first = person.installed(&kubeconfig, &options);
    assert_eq!(first.len(), count);
    assert!(!install().err.contains("team-a is created"));
    same(&person.installed(&kubeconfig, &options), &first);

    // A second install reverts changes.
    let patch = r#"[{"op": "replace", "path": "/rules", "value": []}]"#;
    let role = ["patch", "clusterrole", "kubeon-operator", "--type=json", "-p", patch];
    assert_eq!(person.kubectl(&kubeconfig, &role).code, 0);
    install();
    let rules = |items: &[Value]| {
        let role = items
            .iter()
            .find(|item| item["kind"] == "ClusterRole" && item["metadata"]["name"] == "kubeon-operator");
        role.unwrap()["rules"].clone()
    };
    assert_eq!(rules(&person.installed(&kubeconfig, &options)), rules(&first));

    // No pods are created here: the error names the command that shows the cause.
    let output = person.install(&kubeconfig, &["--watch-namespace", "team-a", "--wait", "2"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("kubectl -n kubeon-system rollout did not succeed"), "{}", output.err);
    assert!(output.err.contains("kubectl -n kubeon-system describe pods"), "{}", output.err);
}

#[tokio::test]
async fn an_unreachable_cluster_is_reported_with_the_next_command() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let person = Person::new();
    let file = person.home.path().join("config");
    let shown = file.display();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://{address}'}}}}]\nusers: [{{name: a, user: {{token: x}}}}]\n"
    );
    std::fs::write(&file, text).unwrap();
    let output = person.install(&file, &[]);
    assert_eq!((output.code, output.out.as_str()), (1, ""), "{output:?}");
    assert!(
        output.err.starts_with(&format!("error: the cluster of {shown} cannot be reached")),
        "{}",
        output.err
    );
    assert!(output.err.contains("refused"), "{}", output.err);
    assert!(
        output.err.contains(&format!("kubectl --kubeconfig {shown} get --raw /version")),
        "{}",
        output.err
    );
    let nowhere = person.home.path().join("nowhere");
    let output = person.install(&nowhere, &[]);
    assert!(output.code == 1 && output.err.contains("no such file"), "{output:?}");
}

#[tokio::test]
async fn without_rights_the_forbidden_action_is_reported_and_nothing_is_applied() {
    let server = TestApiServer::shared().await.unwrap();
    let (person, admin) = (Person::new(), server.kubeconfig_file());
    let namespace = server.namespace().await.unwrap();
    let token = server.service_account(&namespace, "weak").await.unwrap();
    let weak = server.write_file("weak", &server.kubeconfig_of_token(&token)).unwrap();
    let user = format!("system:serviceaccount:{namespace}:weak");
    let output = person.install(&weak, &["--watch-namespace", "default", "--wait", "0"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output.err.contains("namespaces \"default\" is forbidden") && output.err.contains(&user),
        "{}",
        output.err
    );

    // A user with read access only.
    for made in [
        &["create", "clusterrole", "weak", "--verb=get", "--resource=namespaces"][..],
        &["create", "clusterrolebinding", "weak", "--clusterrole=weak", "--user", &user],
    ] {
        let made = person.kubectl(&admin, made);
        assert_eq!(made.code, 0, "{}", made.err);
    }
    let begun = Instant::now();
    while person.kubectl(&weak, &["get", "namespace", "default"]).code != 0 {
        assert!(begun.elapsed() < TIMEOUT, "the binding is not in force");
    }
    let output = person.install(&weak, &["--watch-namespace", "default", "--wait", "0"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.err.contains("is forbidden") && output.err.contains(&user), "{}", output.err);
    assert!(output.err.contains("auth can-i --list"), "{}", output.err);
    let namespace = person.kubectl(&admin, &["get", "namespace", "kubeon-system"]);
    assert!(namespace.err.contains("NotFound"), "{namespace:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_contacts_no_cluster_and_prints_only_the_manifest() {
    let server = TestApiServer::shared().await.unwrap();
    let (person, proxy) = (Person::new(), FaultProxy::before(server).await.unwrap());
    let output = person.install(proxy.kubeconfig_file(), &["--dry-run"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
    assert_eq!(output.out.trim_end(), manifest::manifest(&InstallOptions::default()).unwrap().trim_end());
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubeon.yaml");
    let documents = |text: &str| -> Vec<Option<Value>> { serde_saphyr::from_multiple(text).unwrap() };
    assert_eq!(documents(&output.out), documents(&std::fs::read_to_string(committed).unwrap()));
    assert!(proxy.requests().is_empty(), "{:?}", proxy.requests());
    assert_eq!(std::fs::read_dir(person.home.path()).unwrap().count(), 0, "nothing was written");
    // The proxy does record requests.
    assert_eq!(person.kubectl(proxy.kubeconfig_file(), &["get", "--raw", "/version"]).code, 0);
    assert!(!proxy.requests().is_empty());
}
