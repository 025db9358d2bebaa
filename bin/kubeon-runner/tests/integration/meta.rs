//! Status, Secrets and ConfigMap, written to a real API server by an account without other permissions.

mod deaths;
mod plans;
mod stored_logs;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::{Done, Place, Running, TIMEOUT};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use kubeon_api::ClusterOperation;
use kubeon_envtest::{FaultProxy, FaultRule, ProxyFault, RequestMatcher, TestApiServer};
use serde_json::{Value, json};

const PROGRAM: &str = r#"#!/bin/bash
say() { echo "$1" >&2; }
pin() { mkdir -p "$KUBEON_HOME/known_hosts"; echo "$1" >>"$KUBEON_HOME/known_hosts/demo"; }
case "$1 $2" in
"state export") echo "state $(cat state-now)" ;;
"certs observer") echo "observer of $3" ;;
"state import") cat >imported; pin "10.0.0.1 from the state" ;;
*)
    mkdir -p "$KUBEON_HOME/known_hosts"; touch "$KUBEON_HOME/known_hosts/demo"
    cp "$KUBEON_HOME/known_hosts/demo" seen; echo "$KUBEON_PINNED_IN" >pinned-in
    [ ! -e pins ] || pin "$(cat pins)"
    say '{"event":"precheck","report":{"cluster":"demo","ok":true,"errors":0,"warnings":0,"hosts":[]}}'
    mkdir -p "$KUBEON_HOME/conf/cluster"; echo '{}' >"$KUBEON_HOME/demo.json"
    echo "kubeconfig of demo" >"$KUBEON_HOME/conf/cluster/demo.yaml"
    echo before >state-now
    say '{"event":"plan","steps":1,"standing":26}'
    say '{"event":"saved"}'
    read -r line || { echo "the runner did not answer" >&2; exit 2; }
    echo "released"; until read -r _ <go; do :; done
    say '{"event":"started","host":"10.0.0.4","name":"h4","stage":"etcd","step":"start etcd","why":"it is missing"}'
    echo "at etcd"; until read -r _ <go; do :; done
    say '{"event":"finished","host":"10.0.0.4","step":"start etcd","changed":true,"milliseconds":7}'
    echo after >state-now; [ ! -e fails ] || exit 3 ;;
esac
"#;

struct TestCluster {
    server: &'static TestApiServer,
    client: Client,
    namespace: String,
    place: Place,
    proxy: FaultProxy,
}

impl TestCluster {
    async fn new() -> Self {
        let server = TestApiServer::shared().await.unwrap();
        server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
        let (client, namespace) = (server.client().await.unwrap(), server.namespace().await.unwrap());
        let (place, proxy) = (Place::new(), FaultProxy::before(server).await.unwrap());
        let cluster = Self { server, client, namespace, place, proxy };
        cluster.create_objects().await;
        cluster.place.write("conf/cluster.json", r#"{"metadata":{"name":"demo"}}"#);
        cluster.place.program("kubeon", PROGRAM);
        Command::new("mkfifo").arg(cluster.place.file("go")).status().unwrap();
        cluster
    }

    /// Creates the operation as the operator leaves it, empty Secrets and an empty ConfigMap, and an account
    /// that may change only these objects.
    async fn create_objects(&self) {
        let name = &self.namespace;
        let operation = json!({
            "metadata": {"name": name},
            "spec": {"cluster": "demo", "actionType": "kubeon", "action": "creating", "image": "runner"},
        });
        self.create("kubeonkube.clay.io/v1alpha1", "ClusterOperation", operation).await;
        let status = json!({
            "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "metadata": {"name": name},
            "status": {"status": "Running", "reason": "its Job is running", "conditions": [{
                "type": "Ready", "status": "False", "reason": "Running", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]},
        });
        let params = PatchParams::apply("kubeon-operator").force();
        self.operations().patch_status(name, &params, &Patch::Apply(&status)).await.unwrap();
        for kind in ["state", "kubeconfig", "observer"] {
            let secret = json!({"metadata": {"name": format!("{name}-demo-{kind}"), "namespace": name}});
            self.create("v1", "Secret", secret).await;
        }
        let map = json!({"metadata": {"name": format!("{name}-demo-known-hosts"), "namespace": name}});
        self.create("v1", "ConfigMap", map).await;
        let role = json!({"metadata": {"name": name}, "rules": [
            {"apiGroups": ["kubeonkube.clay.io"], "resources": ["clusteroperations/status"], "verbs": ["get", "patch"]},
        ]});
        self.create("rbac.authorization.k8s.io/v1", "ClusterRole", role).await;
        let subject = json!([{"kind": "ServiceAccount", "name": "kubeon-runner", "namespace": name}]);
        let refers =
            |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
        let binding =
            json!({"metadata": {"name": name}, "subjects": subject, "roleRef": refers("ClusterRole")});
        self.create("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", binding).await;
        let secrets = ["state", "kubeconfig", "observer"].map(|kind| format!("{name}-demo-{kind}"));
        let role = json!({"metadata": {"name": name, "namespace": name}, "rules": [{
            "apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"],
            "resourceNames": secrets,
        }, {
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"],
            "resourceNames": [format!("{name}-demo-known-hosts")],
        }, {
            "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"],
        }]});
        self.create("rbac.authorization.k8s.io/v1", "Role", role).await;
        let binding = json!({"metadata": {"name": name, "namespace": name}, "subjects": subject,
            "roleRef": refers("Role")});
        self.create("rbac.authorization.k8s.io/v1", "RoleBinding", binding).await;
    }

    async fn create(&self, version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    fn operations(&self) -> Api<ClusterOperation> {
        Api::all(self.client.clone())
    }

    async fn status(&self) -> Value {
        let operation = self.operations().get(&self.namespace).await.unwrap();
        serde_json::to_value(operation.status).unwrap()
    }

    async fn secret(&self, kind: &str, key: &str) -> String {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = api.get(&format!("{}-demo-{kind}", self.namespace)).await.unwrap();
        secret
            .data
            .and_then(|mut data| data.remove(key))
            .map_or_else(String::new, |bytes| String::from_utf8(bytes.0).unwrap())
    }

    /// The ConfigMap of the host keys; none before the first write.
    async fn known_hosts(&self) -> Option<String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let map = api.get(&format!("{}-demo-known-hosts", self.namespace)).await.unwrap();
        map.data?.remove("known_hosts")
    }

    /// Runs the program to its end.
    async fn run_to_the_end(&self, mut command: Command) -> Done {
        let running = Running::start(command.args(["--action", "kubeon"]));
        for line in ["released", "at etcd"] {
            assert_eq!(running.line(), line);
            self.go();
        }
        end(running).await
    }

    /// The runner, as the restricted account, through the proxy.
    async fn command_for(&self, operation: &str) -> Command {
        let token = self.server.service_account(&self.namespace, "kubeon-runner").await.unwrap();
        let mut kubeconfig = Kubeconfig::from_yaml(&self.proxy.kubeconfig_of_token(&token)).unwrap();
        for context in kubeconfig.contexts.iter_mut().filter_map(|context| context.context.as_mut()) {
            context.namespace = Some(self.namespace.clone());
        }
        self.place.write("kubeconfig", &serde_json::to_string(&kubeconfig).unwrap());
        let mut command = self.place.command(&["--operation", operation, "--kubeconfig", "kubeconfig"]);
        command
            .env("OPERATION", "creating")
            .env("CLUSTER_NAME", "demo")
            .env("CLUSTER_NAMESPACE", &self.namespace);
        command
    }

    async fn begin(&self, arguments: &[&str]) -> Running {
        Running::start(self.command_for(&self.namespace).await.args(arguments))
    }

    /// Lets the program continue. A reader may open the pipe while the previous writer is still open and read
    /// nothing; it must then read again.
    fn go(&self) {
        let (file, (sender, written)) = (self.place.file("go"), channel());
        std::thread::spawn(move || sender.send(std::fs::write(file, "\n")));
        written.recv_timeout(TIMEOUT).expect("the program waits for the pipe").unwrap();
    }

    fn status_writes(&self) -> usize {
        self.proxy.writes().iter().filter(|request| request.subresource == "status").count()
    }

    fn fail(&self, when: RequestMatcher, how: ProxyFault) {
        self.proxy.fail(FaultRule { when, how });
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

async fn end(running: Running) -> Done {
    tokio::task::spawn_blocking(|| running.end()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_conditions_state_and_kubeconfigs_are_written_and_nothing_else() {
    let cluster = TestCluster::new().await;
    let observer = format!("--observer-secret={}-demo-observer", cluster.namespace);
    let running = cluster.begin(&["--action", "kubeon", &observer]).await;
    assert_eq!(running.line(), "released");
    // The state is saved before the first host is changed.
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state before\n");
    cluster.go();
    assert_eq!(running.line(), "at etcd");
    let deadline = Instant::now() + TIMEOUT;
    while cluster.status().await["steps"]["current"] != "etcd on h4" {
        assert!(Instant::now() < deadline, "{}", cluster.status().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = cluster.status().await;
    assert_eq!(status["steps"], json!({"done": 26, "total": 27, "current": "etcd on h4", "text": "26/27"}));
    assert_eq!(condition(&status, "Progressing")["reason"], "Creating");
    assert_eq!(condition(&status, "Prechecked")["status"], "True");
    cluster.go();
    let done = end(running).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let status = cluster.status().await;
    assert_eq!(status["steps"], json!({"done": 27, "total": 27, "text": "27/27"}));
    assert_eq!(condition(&status, "Progressing")["status"], "False");
    assert_eq!(condition(&status, "Progressing")["reason"], "Succeeded");
    for kind in ["Progressing", "Prechecked"] {
        assert_eq!(condition(&status, kind)["observedGeneration"], 1, "{kind}");
    }
    assert_eq!((&status["status"], &status["reason"]), (&json!("Running"), &json!("its Job is running")));
    assert_eq!(condition(&status, "Ready")["reason"], "Running", "the operator's condition stays");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state after\n");
    assert_eq!(cluster.secret("kubeconfig", "kubeconfig").await, "kubeconfig of demo\n");
    assert_eq!(cluster.secret("observer", "kubeconfig").await, "observer of demo\n");
    let refused: Vec<_> =
        cluster.proxy.requests().into_iter().filter(|request| request.status == Some(403)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_operation_saves_the_kubeconfig_that_its_state_has() {
    let cluster = TestCluster::new().await;
    cluster.place.write("fails", "");
    let mut command = cluster.command_for(&cluster.namespace).await;
    command.arg(format!("--observer-secret={}-demo-observer", cluster.namespace));
    let done = cluster.run_to_the_end(command).await;
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state after\n");
    assert_eq!(cluster.secret("kubeconfig", "kubeconfig").await, "kubeconfig of demo\n");
    assert_eq!(cluster.secret("observer", "kubeconfig").await, "", "the cluster was not created");

    cluster.place.write("state", "an old state");
    let mut command = cluster.command_for(&cluster.namespace).await;
    command
        .arg(format!("--observer-secret={}-demo-observer", cluster.namespace))
        .env("OPERATION", "repairing");
    let done = cluster.run_to_the_end(command).await;
    assert_eq!(done.code, Some(3), "{done:?}");
    assert_eq!(
        cluster.secret("observer", "kubeconfig").await,
        "observer of demo\n",
        "the authority may be new"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_when_the_state_cannot_be_saved() {
    let cluster = TestCluster::new().await;
    let running = cluster.begin(&["--action", "kubeon", "--state-secret", "another"]).await;
    let done = end(running).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(!done.contains("released"));
    assert!(done.contains("no host was changed"), "{done:?}");
    let status = cluster.status().await;
    assert_eq!(condition(&status, "Progressing")["reason"], "Failed");
    assert!(condition(&status, "Progressing")["message"].as_str().unwrap().contains("forbidden"), "{status}");
}

const LINE: &str =
    "10.0.0.4 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
const FINGERPRINT: &str = "10.0.0.4 SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE";

/// The first Job pins the keys; the next Job uses them as edited by a user.
#[tokio::test(flavor = "multi_thread")]
async fn host_keys_are_saved_to_the_config_map_that_users_edit() {
    let cluster = TestCluster::new().await;
    let folder = cluster.place.file("known-hosts");
    std::fs::create_dir(&folder).unwrap();
    cluster.place.write("pins", LINE);
    let running = cluster.begin(&["--action", "kubeon"]).await;
    assert_eq!(running.line(), "released");
    assert_eq!(cluster.known_hosts().await, Some(format!("{LINE}\n")), "before the first change of a host");
    cluster.go();
    assert_eq!(running.line(), "at etcd");
    cluster.go();
    let done = end(running).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let status = cluster.status().await;
    let pinned = condition(&status, "HostKeysPinned");
    assert_eq!(
        (&pinned["status"], &pinned["message"]),
        (&json!("True"), &json!(format!("1 new: {FINGERPRINT}")))
    );

    let edited = "# the host was installed again\n10.0.0.9 ssh-ed25519 AAAA\n";
    std::fs::write(folder.join("known_hosts"), edited).unwrap();
    std::fs::remove_file(cluster.place.file("pins")).unwrap();
    cluster.place.write("state", "an old state");
    let writes = || cluster.proxy.writes().iter().filter(|request| request.resource == "configmaps").count();
    let before = writes();
    let done = cluster.run_to_the_end(cluster.command_for(&cluster.namespace).await).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cluster.place.read("seen"), edited, "not the keys of the state");
    let map = format!("ConfigMap {0}/{0}-demo-known-hosts\n", cluster.namespace);
    assert_eq!(cluster.place.read("pinned-in"), map);
    assert_eq!(writes(), before, "no key is new: the user's edit is not overwritten");
    assert_eq!(condition(&cluster.status().await, "HostKeysPinned"), &Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_only_the_state_has_are_copied_to_the_config_map() {
    let cluster = TestCluster::new().await;
    std::fs::create_dir(cluster.place.file("known-hosts")).unwrap();
    cluster.place.write("state", "an old state");
    let done = cluster.run_to_the_end(cluster.command_for(&cluster.namespace).await).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cluster.known_hosts().await.as_deref(), Some("10.0.0.1 from the state\n"));
    assert_eq!(condition(&cluster.status().await, "HostKeysPinned"), &Value::Null, "no key is new");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_keys_are_removed_with_the_cluster() {
    let cluster = TestCluster::new().await;
    std::fs::create_dir(cluster.place.file("known-hosts")).unwrap();
    cluster.place.write("known-hosts/known_hosts", LINE);
    let mut command = cluster.command_for(&cluster.namespace).await;
    command.env("OPERATION", "terminating");
    let done = cluster.run_to_the_end(command).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cluster.known_hosts().await.as_deref(), Some(""));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_when_the_host_keys_cannot_be_saved() {
    let cluster = TestCluster::new().await;
    std::fs::create_dir(cluster.place.file("known-hosts")).unwrap();
    cluster.place.write("pins", LINE);
    let done = end(cluster.begin(&["--action", "kubeon", "--known-hosts-config-map", "another"]).await).await;
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(!done.contains("released") && done.contains("no host was changed"), "{done:?}");
    assert!(done.contains(&format!("cannot write ConfigMap {}/another", cluster.namespace)), "{done:?}");
    assert_eq!(
        cluster.secret("state", "state.tar.zst").await,
        "",
        "the saved state is not newer than the saved keys"
    );
}

/// Two Jobs of playbooks: the second Job uses the state of the first, and no host is changed before the state
/// is saved.
#[tokio::test(flavor = "multi_thread")]
async fn a_script_persists_the_state_of_the_program_that_it_runs() {
    let cluster = TestCluster::new().await;
    let name = cluster.namespace.clone();
    let flags = [
        format!("--secret-namespace={name}"),
        format!("--state-secret={name}-demo-state"),
        format!("--kubeconfig-secret={name}-demo-kubeconfig"),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let script = |text: &str| format!("#!/bin/bash\nset -e\n{text}\n");
    let create = r#"
        echo '{}' >"$KUBEON_HOME/demo.json"; echo before >state-now
        echo '  {"event":"plan","steps":1,"standing":26}'
        "$KUBEON_HOLD_FOR" demo; echo "released"; until read -r _ <go; do :; done
        mkdir -p "$KUBEON_HOME/conf/cluster"; echo "kubeconfig of demo" >"$KUBEON_HOME/conf/cluster/demo.yaml"
        echo after >state-now"#;
    cluster.place.program("script", &script(create));
    let running = cluster.begin(&flags).await;
    assert_eq!(running.line(), "plan: 1 steps to do, 26 up to date");
    assert_eq!(running.line(), "released");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state before\n");
    cluster.go();
    let done = end(running).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "state after\n");
    assert_eq!(cluster.secret("state", "name").await, "demo");
    assert_eq!(cluster.secret("kubeconfig", "kubeconfig").await, "kubeconfig of demo\n");
    // As the kubelet mounts it for the next Job, which removes the cluster.
    cluster.place.write("state", "an old state");
    cluster.place.write("name", "demo");
    cluster.place.program("script", &script("cat imported; test ! -e \"$KUBEON_HOME/demo.json\""));
    let done = end(cluster.begin(&flags).await).await;
    assert_eq!((done.code, done.stdout.as_slice()), (Some(0), &["an old state".to_owned()][..]), "{done:?}");
    assert_eq!(cluster.secret("state", "state.tar.zst").await, "", "the state is removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_whose_state_cannot_be_saved_changes_no_host() {
    let cluster = TestCluster::new().await;
    let place = format!("--secret-namespace={}", cluster.namespace);
    cluster.place.program(
        "script",
        "#!/bin/bash\necho '{}' >\"$KUBEON_HOME/demo.json\"; echo 1 >state-now; \"$KUBEON_HOLD_FOR\" demo || exit 7\n",
    );
    let done = end(cluster.begin(&[&place, "--state-secret=another", "--kubeconfig-secret=x"]).await).await;
    assert_eq!(done.code, Some(7), "{done:?}");
    assert!(done.contains("no host was changed"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn much_progress_needs_few_writes_and_the_last_status_arrives() {
    let cluster = TestCluster::new().await;
    let script =
        "for i in $(seq 2000); do echo \"TASK [number $i]\"; done; sleep 1.5; echo 'TASK [the last]'; exit 9";
    cluster.place.program("script", &format!("#!/bin/bash\n{script}\n"));
    let began = Instant::now();
    let done = end(cluster.begin(&[]).await).await;
    assert_eq!(done.code, Some(9));
    // One write in five seconds, one more at the beginning, one more at the end.
    let most = usize::try_from(began.elapsed().as_secs() / 5).unwrap() + 2;
    assert!(cluster.status_writes() <= most, "{} writes, at most {most}", cluster.status_writes());
    let status = cluster.status().await;
    assert_eq!(status["steps"]["current"], "TASK [the last]");
    assert_eq!(condition(&status, "Progressing")["reason"], "Failed");
}

/// The runner is not the only writer of the status, and does not know why somebody else wrote its fields.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_somebody_else_wrote_stays_theirs() {
    let cluster = TestCluster::new().await;
    let condition_of_another = json!({
        "apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation", "metadata": {"name": cluster.namespace},
        "status": {"conditions": [{
            "type": "Progressing", "status": "Unknown", "reason": "Mine", "message": "mine",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    let params = PatchParams::apply("somebody").force();
    let patch = Patch::Apply(&condition_of_another);
    cluster.operations().patch_status(&cluster.namespace, &params, &patch).await.unwrap();
    cluster.place.program("script", "#!/bin/bash\nexit 0\n");
    let done = end(cluster.begin(&[]).await).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.contains("cannot write the operation's status") && done.contains("somebody"), "{done:?}");
    assert_eq!(condition(&cluster.status().await, "Progressing")["reason"], "Mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_server_neither_delays_the_work_nor_loses_the_last_status() {
    let cluster = TestCluster::new().await;
    cluster.fail(RequestMatcher::nth("patch", "clusteroperations", 1).times(2), ProxyFault::Status(500));
    cluster.fail(RequestMatcher::nth("patch", "clusteroperations", 1).times(4), ProxyFault::Refuse);
    cluster.place.program("script", "#!/bin/bash\nexit 5\n");
    let done = end(cluster.begin(&[]).await).await;
    assert_eq!(done.code, Some(5));
    assert!(done.contains("will retry"), "{done:?}");
    let status = cluster.status().await;
    assert_eq!(condition(&status, "Progressing")["reason"], "Failed");
    assert_eq!(
        condition(&status, "Progressing")["observedGeneration"],
        1,
        "also if the first write is the last"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_does_not_delay_a_terminated_runner() {
    let cluster = TestCluster::new().await;
    cluster.fail(RequestMatcher::every_request(), ProxyFault::Hang);
    cluster.place.program("script", "#!/bin/bash\necho ready; sleep 1000\n");
    let running = cluster.begin(&["--grace", "1"]).await;
    assert_eq!(running.line(), "ready");
    running.signal(rustix::process::Signal::TERM);
    let signalled = Instant::now();
    let done = end(running).await;
    assert_eq!(done.code, Some(143));
    assert!(signalled.elapsed() < Duration::from_secs(20), "{:?}", signalled.elapsed());
    assert!(done.contains("cannot write the last status in time"), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_operation_is_not_written_and_does_not_fail_the_work() {
    let cluster = TestCluster::new().await;
    cluster.place.program("script", "#!/bin/bash\nexit 0\n");
    let mut command = cluster.command_for("missing").await;
    let done = end(Running::start(&mut command)).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    let logged = done.stderr.iter().filter(|line| line.contains("giving up")).count();
    assert_eq!(logged, 1, "{done:?}");
}

#[test]
fn without_a_token_the_runner_logs_it_once_and_runs_the_work() {
    let place = Place::new();
    place.program("script", "#!/bin/bash\nexit 0\n");
    let done = Running::start(&mut place.command(&["--operation", "some"])).end();
    assert_eq!(done.code, Some(0));
    assert_eq!(done.stderr.iter().filter(|line| line.contains("no service account is mounted")).count(), 1);
}
