//! `kubeon meta install` as a person runs it, against a real API server, by the bundle's kubectl.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "what fails here fails the test")]

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
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Person {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), kubectl: program("kubectl").unwrap() }
    }

    /// `kubeon meta install` by this kubeconfig.
    fn installs(&self, kubeconfig: &Path, more: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubeon"));
        command.args(["meta", "install", "--kubeconfig"]).arg(kubeconfig).args(more);
        let path = format!("{}:/usr/bin:/bin", self.kubectl.parent().unwrap().display());
        command.env_clear().env("HOME", self.home.path()).env("PATH", path);
        Said::from(command.output().unwrap())
    }

    fn kubectl(&self, kubeconfig: &Path, arguments: &[&str]) -> Said {
        let mut command = Command::new(&self.kubectl);
        command.env("HOME", self.home.path()).arg("--kubeconfig").arg(kubeconfig).args(arguments);
        Said::from(command.output().unwrap())
    }

    /// Everything that is installed, without what an API server writes into it by itself.
    fn sees(&self, kubeconfig: &Path, options: &InstallOptions) -> Vec<Value> {
        let file = self.home.path().join("wanted.yaml");
        std::fs::write(&file, manifest::manifest(options).unwrap()).unwrap();
        let shown = file.to_str().unwrap();
        let said = self.kubectl(kubeconfig, &["get", "-f", shown, "-o", "json", "--show-managed-fields"]);
        assert_eq!(said.code, 0, "{}", said.err);
        let list: Value = serde_json::from_str(&said.out).unwrap();
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

fn seen(item: &Value) -> String {
    format!("{} {}/{}", item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
}

#[track_caller]
fn same(found: &[Value], before: &[Value]) {
    assert_eq!(found.len(), before.len());
    for (found, before) in found.iter().zip(before) {
        assert_eq!(found, before, "{} is another one", seen(before));
    }
}

#[tokio::test]
async fn install_applies_everything_and_once_more_changes_nothing() {
    let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
    let (person, kubeconfig) = (Person::new(), server.kubeconfig_file());
    let options = InstallOptions { watch_namespaces: vec!["team-a".into()], ..InstallOptions::default() };
    let count = kubeon_install::objects(&options).unwrap().len();
    let install = || {
        let said = person.installs(&kubeconfig, &["--watch-namespace", "team-a", "--wait", "0"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.err.contains(&format!("{count} objects are applied")), "{}", said.err);
        said
    };
    assert!(install().err.contains("namespace team-a is made"));
    let established =
        ["wait", "--for=condition=Established", "--all", "customresourcedefinitions", "--timeout=60s"];
    assert_eq!(person.kubectl(&kubeconfig, &established).code, 0);
    let first = person.sees(&kubeconfig, &options);
    assert_eq!(first.len(), count);
    assert!(!install().err.contains("team-a is made"));
    same(&person.sees(&kubeconfig, &options), &first);

    // What somebody changed is as it should be again.
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
    assert_eq!(rules(&person.sees(&kubeconfig, &options)), rules(&first));

    // Nobody makes pods here: that is told, with where to look.
    let said = person.installs(&kubeconfig, &["--watch-namespace", "team-a", "--wait", "2"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("kubectl -n kubeon-system rollout did not succeed"), "{}", said.err);
    assert!(said.err.contains("kubectl -n kubeon-system describe pods"), "{}", said.err);
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_named_with_what_to_look_at() {
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
    let said = person.installs(&file, &[]);
    assert_eq!((said.code, said.out.as_str()), (1, ""), "{said:?}");
    assert!(
        said.err.starts_with(&format!("error: the cluster of {shown} cannot be reached")),
        "{}",
        said.err
    );
    assert!(said.err.contains("refused"), "{}", said.err);
    assert!(said.err.contains(&format!("kubectl --kubeconfig {shown} get --raw /version")), "{}", said.err);
    let nowhere = person.home.path().join("nowhere");
    let said = person.installs(&nowhere, &[]);
    assert!(said.code == 1 && said.err.contains("no such file"), "{said:?}");
}

#[tokio::test]
async fn who_may_not_install_is_told_what_is_forbidden_and_nothing_is_applied() {
    let server = TestApiServer::shared().await.unwrap();
    let (person, admin) = (Person::new(), server.kubeconfig_file());
    let namespace = server.namespace().await.unwrap();
    let token = server.service_account(&namespace, "weak").await.unwrap();
    let weak = server.write_file("weak", &server.kubeconfig_of_token(&token)).unwrap();
    let user = format!("system:serviceaccount:{namespace}:weak");
    let said = person.installs(&weak, &["--wait", "0"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err.contains("namespaces \"default\" is forbidden") && said.err.contains(&user),
        "{}",
        said.err
    );

    // One who may look, and no more.
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
    let said = person.installs(&weak, &["--wait", "0"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("is forbidden") && said.err.contains(&user), "{}", said.err);
    assert!(said.err.contains("auth can-i --list"), "{}", said.err);
    let there = person.kubectl(&admin, &["get", "namespace", "kubeon-system"]);
    assert!(there.err.contains("NotFound"), "{there:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_asks_nobody_and_writes_the_manifest_alone() {
    let server = TestApiServer::shared().await.unwrap();
    let (person, proxy) = (Person::new(), FaultProxy::before(server).await.unwrap());
    let said = person.installs(proxy.kubeconfig_file(), &["--dry-run"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    assert_eq!(said.out.trim_end(), manifest::manifest(&InstallOptions::default()).unwrap().trim_end());
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubeon.yaml");
    let documents = |text: &str| -> Vec<Option<Value>> { serde_saphyr::from_multiple(text).unwrap() };
    assert_eq!(documents(&said.out), documents(&std::fs::read_to_string(committed).unwrap()));
    assert!(proxy.requests().is_empty(), "{:?}", proxy.requests());
    assert_eq!(std::fs::read_dir(person.home.path()).unwrap().count(), 0, "nothing was written");
    // What is sent would have been seen.
    assert_eq!(person.kubectl(proxy.kubeconfig_file(), &["get", "--raw", "/version"]).code, 0);
    assert!(!proxy.requests().is_empty());
}
