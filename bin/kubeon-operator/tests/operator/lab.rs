//! One operator with its own API server, in a new namespace, with exactly the installed roles. Clusters have
//! no namespace, so parallel tests use different API servers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use kubeon_api::kubeonkube::{Action, ClusterOperationSpec, ClusterSpec, OperationResult};
use kubeon_api::{Cluster, ClusterOperation, DataRef, KubernetesCluster};
use kubeon_envtest::{ApiServerOptions, FaultProxy, TestApiServer};
use kubeon_install::{InstallOptions, names, rbac};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::http::{free_port, get};

/// The timeout of all waits; test machines may be slow.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct Lab {
    pub client: Client,
    pub proxy: FaultProxy,
    pub namespace: String,
    /// The operator's own account, through the proxy.
    kubeconfig: PathBuf,
    operator: Mutex<Option<Child>>,
    /// The metrics port of the last started operator.
    port: AtomicU16,
    server: ReusedServer,
}

/// Free API servers, at most as many as parallel tests.
static IDLE_SERVERS: Mutex<Vec<Arc<TestApiServer>>> = Mutex::new(Vec::new());

/// An API server that one test uses. It enforces the permissions on owner references, which most clusters do
/// not. The installed roles must suffice there too.
struct ReusedServer(Arc<TestApiServer>);

impl ReusedServer {
    async fn take() -> Self {
        let idle = IDLE_SERVERS.lock().pop();
        if let Some(server) = idle {
            return Self(server);
        }
        let plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned();
        let options = ApiServerOptions { arguments: vec![plugin], ..ApiServerOptions::default() };
        Self(Arc::new(TestApiServer::start(options).await.unwrap()))
    }
}

impl Drop for ReusedServer {
    fn drop(&mut self) {
        IDLE_SERVERS.lock().push(Arc::clone(&self.0));
    }
}

impl Lab {
    pub(crate) async fn open() -> Self {
        let reused = ReusedServer::take().await;
        let server = &*reused.0;
        server.apply_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")).await.unwrap();
        let client = server.client().await.unwrap();
        let (namespace, proxy) =
            (server.namespace().await.unwrap(), FaultProxy::before(server).await.unwrap());
        let token = server.service_account(&namespace, names::OPERATOR).await.unwrap();
        let file = format!("operator-{namespace}");
        let kubeconfig = server.write_file(&file, &proxy.kubeconfig_of_token(&token)).unwrap();
        let (operator, port) = (Mutex::default(), AtomicU16::default());
        let lab = Self { client, proxy, namespace, kubeconfig, operator, port, server: reused };
        lab.install_roles(&lab.server.0).await;
        lab.delete_objects().await;
        lab
    }

    /// Installs the roles of the operator in this namespace.
    async fn install_roles(&self, server: &TestApiServer) {
        let options = InstallOptions {
            namespace: self.namespace.clone(),
            watch_namespaces: Vec::new(),
            ..InstallOptions::default()
        };
        let documents: String =
            rbac::objects(&options).unwrap().iter().map(|object| format!("---\n{object}\n")).collect();
        let file = server.write_file(&format!("roles-{}.yaml", self.namespace), &documents).unwrap();
        server.apply(&file).await.unwrap();
        let user = names::service_account(&self.namespace, names::OPERATOR);
        for (group, resource, namespace) in
            [("ecs.yun.com", "kubernetesclusters", ""), ("batch", "jobs", self.namespace.as_str())]
        {
            let review = json!({"metadata": {}, "spec": {"user": user, "resourceAttributes": {
                "verb": "watch", "group": group, "resource": resource, "namespace": namespace}}});
            let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
            let reviews = Api::all(self.client.clone());
            let allowed = async {
                while !reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::time::timeout(TIMEOUT, allowed).await.expect("the API server enforces the roles in time");
        }
    }

    /// Deletes the objects of earlier tests, including those that cannot be parsed, and the events about those that
    /// have no namespace.
    async fn delete_objects(&self) {
        let all = (&DeleteParams::default(), &ListParams::default());
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        events.delete_collection(all.0, all.1).await.unwrap();
        for kind in [ApiResource::erase::<ClusterOperation>(&()), ApiResource::erase::<Cluster>(&())] {
            let api = Api::<DynamicObject>::all_with(self.client.clone(), &kind);
            api.delete_collection(all.0, all.1).await.unwrap();
        }
        let kind = ApiResource::erase::<KubernetesCluster>(&());
        let found = Api::<DynamicObject>::all_with(self.client.clone(), &kind).list(all.1).await.unwrap();
        for object in found {
            let (namespace, name) = (object.metadata.namespace.unwrap(), object.metadata.name.unwrap());
            let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &namespace, &kind);
            let without_finalizers = json!({"metadata": {"finalizers": null}});
            api.patch(&name, &PatchParams::default(), &Patch::Merge(without_finalizers)).await.unwrap();
            // An object that waited for its finalizer is already deleted.
            let _ = api.delete(&name, all.0).await;
        }
    }

    pub(crate) fn start(&self) {
        self.start_with(&["--leader-elect=false"]);
    }

    pub(crate) fn start_with(&self, more: &[&str]) {
        self.start_in(&[], more);
    }

    pub(crate) fn start_in(&self, environment: &[(&str, &str)], more: &[&str]) {
        self.start_as(Path::new(env!("CARGO_BIN_EXE_kubeon-operator")), environment, more);
    }

    /// Starts another operator's program.
    pub(crate) fn start_program(&self, program: &Path) {
        self.start_program_with(program, &["--leader-elect=false"]);
    }

    pub(crate) fn start_program_with(&self, program: &Path, more: &[&str]) {
        self.start_as(program, &[], more);
    }

    fn start_as(&self, program: &Path, environment: &[(&str, &str)], more: &[&str]) {
        let port = free_port();
        self.port.store(port, Ordering::SeqCst);
        let operator = Command::new(program)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(["--namespace", &self.namespace, "--metrics-address", &format!("127.0.0.1:{port}")])
            .args([
                "--health-address",
                "127.0.0.1:0",
                "--log",
                "error,kube_client=off",
                "--allowed-image=busybox",
            ])
            .args(more)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        *self.operator.lock() = Some(operator);
    }

    /// Applies definitions.
    pub(crate) async fn apply_definitions(&self, folder: &Path) {
        self.server.0.apply_crds(folder).await.unwrap();
    }

    /// Whether the operator still runs, for the message of a failed test.
    fn operator_state(&self) -> String {
        match self.operator.lock().as_mut().map(Child::try_wait) {
            None => "no operator was started".to_owned(),
            Some(Ok(None)) => "the operator runs".to_owned(),
            Some(ended) => format!("the operator ended: {ended:?}"),
        }
    }

    fn operator(&self) -> Child {
        self.operator.lock().take().expect("no operator runs")
    }

    /// Kills the operator, as `kill -9` does.
    pub(crate) async fn kill(&self) {
        self.operator().kill().await.unwrap();
    }

    /// Sends SIGTERM; returns the time until the end, and whether the exit code was zero.
    pub(crate) async fn terminate(&self) -> (Duration, bool) {
        let mut operator = self.operator();
        let start = std::time::Instant::now();
        let pid = operator.id().unwrap().to_string();
        assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
        let status = tokio::time::timeout(TIMEOUT, operator.wait()).await.unwrap().unwrap();
        (start.elapsed(), status.success())
    }

    pub(crate) fn operations(&self) -> Api<ClusterOperation> {
        Api::all(self.client.clone())
    }

    pub(crate) fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn kubernetes_clusters(&self) -> Api<KubernetesCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a Cluster with inventory, variables and key.
    pub(crate) async fn cluster(&self, name: &str) {
        self.named_cluster(name, name).await;
    }

    /// Creates a Cluster and the objects that it references; their names begin with `prefix`.
    pub(crate) async fn named_cluster(&self, name: &str, prefix: &str) {
        self.named_references(prefix).await;
        let at = |what: &str| DataRef::new(&self.namespace, format!("{prefix}-{what}"));
        let spec = ClusterSpec {
            hosts_conf_ref: at("hosts"),
            vars_conf_ref: at("vars"),
            ssh_auth_ref: Some(at("key")),
            ..ClusterSpec::default()
        };
        let clusters = Api::<Cluster>::all(self.client.clone());
        clusters.create(&PostParams::default(), &Cluster::new(name, spec)).await.unwrap();
    }

    /// Creates inventory, variables and key.
    pub(crate) async fn named_references(&self, prefix: &str) {
        self.config_map(&format!("{prefix}-hosts"), json!({"hosts.yml": "all: {}\n"})).await;
        self.config_map(&format!("{prefix}-vars"), json!({"group_vars.yml": "a: 1\n"})).await;
        let pem = "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n";
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": format!("{prefix}-key")}, "type": "kubernetes.io/ssh-auth",
            "stringData": {"ssh-privatekey": pem}}))
        .unwrap();
        self.put(secret).await;
    }

    pub(crate) async fn config_map(&self, name: &str, data: Value) {
        self.put::<ConfigMap>(
            serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap(),
        )
        .await;
    }

    pub(crate) async fn put<K>(&self, object: K)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn create_shell_operation(&self, cluster: &str, name: &str) {
        self.create_operation(name, shell(cluster)).await;
    }

    pub(crate) async fn create_operation(&self, name: &str, spec: ClusterOperationSpec) {
        self.operations().create(&PostParams::default(), &ClusterOperation::new(name, spec)).await.unwrap();
    }

    /// Waits until the operation's reason contains this text; returns the reason.
    pub(crate) async fn wait_reason(&self, name: &str, text: &str) -> String {
        let reason = |operation: &ClusterOperation| {
            operation.status.as_ref().and_then(|status| status.reason.clone()).unwrap_or_default()
        };
        reason(&self.wait_operation(name, |operation| reason(operation).contains(text)).await)
    }

    /// Waits until the condition is true for the operation; returns the operation.
    pub(crate) async fn wait_operation(
        &self,
        name: &str,
        wanted: impl Fn(&ClusterOperation) -> bool,
    ) -> ClusterOperation {
        let matches = |object: Option<&ClusterOperation>| object.is_some_and(&wanted);
        let waits = await_condition(self.operations(), name, matches);
        match tokio::time::timeout(TIMEOUT, waits).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => {
                let status = self.operations().get(name).await.unwrap().status;
                panic!("{name} is still {status:?}; {}", self.operator_state())
            }
        }
    }

    pub(crate) async fn wait_result(&self, name: &str, result: OperationResult) -> ClusterOperation {
        self.wait_operation(name, |operation| {
            operation.status.as_ref().and_then(|status| status.status) == Some(result)
        })
        .await
    }

    pub(crate) async fn wait_kubernetes_cluster(
        &self,
        name: &str,
        wanted: impl Fn(&KubernetesCluster) -> bool,
    ) -> KubernetesCluster {
        let matches = |object: Option<&KubernetesCluster>| object.is_some_and(&wanted);
        let waits = await_condition(self.kubernetes_clusters(), name, matches);
        match tokio::time::timeout(TIMEOUT, waits).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => {
                let status = self.kubernetes_clusters().get(name).await.unwrap().status;
                panic!("{name} is still {status:?}; {}", self.operator_state())
            }
        }
    }

    /// The bytes of every value in etcd, by its key.
    pub(crate) async fn stored_bytes(&self) -> BTreeMap<String, usize> {
        self.server.0.stored_bytes().await.unwrap()
    }

    /// The resident memory of the operator's process, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let pid = self.operator.lock().as_ref().and_then(Child::id).expect("an operator runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// The address of the operator's metrics.
    pub(crate) fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.port.load(Ordering::SeqCst))
    }

    /// The metrics, as Prometheus reads them.
    pub(crate) async fn metrics(&self) -> String {
        self.wait_metrics(|_| true).await
    }

    /// Polls the metrics until the condition is true.
    pub(crate) async fn wait_metrics(&self, wanted: impl Fn(&str) -> bool) -> String {
        let reads = async {
            loop {
                let answer = get(self.port.load(Ordering::SeqCst), "/metrics").await;
                let page = answer.split_once("\r\n\r\n").map(|(_, page)| page.to_owned());
                if let Some(page) = page.filter(|page| answer.starts_with("HTTP/1.1 200") && wanted(page)) {
                    return page;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, reads).await.expect("the metrics reach the wanted values in time")
    }

    /// The Job of an operation.
    pub(crate) async fn job_of(&self, operation: &ClusterOperation) -> Job {
        let at = operation.status.as_ref().and_then(|status| status.job_ref.as_ref()).unwrap();
        self.jobs().get(&at.name).await.unwrap()
    }

    /// The names of all Jobs of an operation.
    pub(crate) async fn job_names(&self, operation: &ClusterOperation) -> Vec<String> {
        let label = format!("kubeon.io/operation={}", operation.metadata.uid.as_deref().unwrap());
        let found = self.jobs().list(&ListParams::default().labels(&label)).await.unwrap();
        found.items.into_iter().filter_map(|job| job.metadata.name).collect()
    }

    /// The number of ConfigMaps with the inputs of an operation's Job.
    pub(crate) async fn config_map_count(&self, operation: &ClusterOperation) -> usize {
        let label = format!("kubeon.io/operation={}", operation.metadata.uid.as_deref().unwrap());
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        maps.list(&ListParams::default().labels(&label)).await.unwrap().items.len()
    }

    /// Declares a cluster with this master.
    pub(crate) async fn declare(&self, name: &str, master: &str) {
        let declared = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name},
            "spec": {"cluster": {"masterList": [{"ip": master}], "authConfig": {"password": "hunter2"}}}});
        let declared = serde_json::from_value(declared).unwrap();
        self.kubernetes_clusters().create(&PostParams::default(), &declared).await.unwrap();
    }

    /// Writes the status that the Job controller writes when the pod has ended. Does nothing if the Job has ended.
    pub(crate) async fn end_job(&self, name: &str, succeeded: bool) {
        end_job(&self.jobs(), name, succeeded).await;
    }

    /// The messages of the events about an object with this reason, in all namespaces.
    pub(crate) async fn event_messages(&self, name: &str, reason: &str) -> Vec<String> {
        let about = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let events = Api::<Event>::all(self.client.clone()).list(&about).await.unwrap();
        events.into_iter().filter_map(|event| event.message).collect()
    }

    /// Waits until an event about an object with this reason contains this text.
    pub(crate) async fn wait_event(&self, name: &str, reason: &str, text: &str) {
        let recorded = async {
            while !self.event_messages(name, reason).await.iter().any(|message| message.contains(text)) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let in_time = tokio::time::timeout(TIMEOUT, recorded).await;
        in_time.unwrap_or_else(|_| panic!("no event {reason} about {name} contains {text:?}"));
    }

    /// Runs an operation to its end.
    pub(crate) async fn finish(&self, name: &str) -> ClusterOperation {
        let running = self.wait_result(name, OperationResult::Running).await;
        let job = running.status.unwrap().job_ref.unwrap().name;
        self.end_job(&job, true).await;
        self.wait_operation(name, |operation| {
            let labels = operation.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get("hasCompleted")).is_some_and(|done| done == "done")
        })
        .await
    }

    /// Waits until the operator has written the status of the Cluster.
    pub(crate) async fn wait_reported(&self, name: &str) {
        self.wait_cluster(name, |cluster| {
            cluster.status.as_ref().is_some_and(|status| status.observed_generation > Some(0))
        })
        .await;
    }

    /// Waits until the condition is true for the Cluster.
    pub(crate) async fn wait_cluster(&self, name: &str, wanted: impl Fn(&Cluster) -> bool) -> Cluster {
        let api = Api::<Cluster>::all(self.client.clone());
        let waits = await_condition(api, name, |object: Option<&Cluster>| object.is_some_and(&wanted));
        tokio::time::timeout(TIMEOUT, waits)
            .await
            .expect("the Cluster reaches the wanted state in time")
            .unwrap()
            .unwrap()
    }
}

/// A command in an image that is not a runner image.
pub(crate) fn shell(cluster: &str) -> ClusterOperationSpec {
    ClusterOperationSpec {
        cluster: cluster.into(),
        main: Action { action_type: "shell".into(), action: "sleep 10".into(), ..Action::default() },
        image: "busybox".into(),
        ..ClusterOperationSpec::default()
    }
}

/// A playbook in a runner image.
pub(crate) fn playbook(cluster: &str, name: &str) -> ClusterOperationSpec {
    ClusterOperationSpec {
        main: Action { action_type: "playbook".into(), action: name.into(), ..Action::default() },
        image: "wangzhichidocker/kubeonkube:v0.1".into(),
        ..shell(cluster)
    }
}

/// Writes the status that the Job controller writes when the pod has ended. Does nothing if the Job has ended.
pub(crate) async fn end_job(jobs: &Api<Job>, name: &str, succeeded: bool) {
    let before = jobs.get(name).await.unwrap();
    if before.status.is_some_and(|status| status.conditions.is_some_and(|all| !all.is_empty())) {
        return;
    }
    let now = k8s_openapi::jiff::Timestamp::from_second(k8s_openapi::jiff::Timestamp::now().as_second())
        .unwrap()
        .to_string();
    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "by the test", "lastTransitionTime": now, "lastProbeTime": now});
    let status = if succeeded {
        json!({"startTime": now, "completionTime": now, "succeeded": 1, "ready": 0, "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet", "CompletionsReached"), condition("Complete", "CompletionsReached")]})
    } else {
        json!({"startTime": now, "failed": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
            "conditions": [condition("FailureTarget", "BackoffLimitExceeded"), condition("Failed", "BackoffLimitExceeded")]})
    };
    let patch = Patch::Merge(json!({"status": status}));
    jobs.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}
