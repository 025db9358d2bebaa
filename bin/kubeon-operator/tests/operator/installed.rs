//! An installed operator: its own service account, roles, policies and webhook, and two replicas. Runners use
//! tokens that are bound to their pods.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource as _};
use kubeon_api::{ClusterOperation, KubernetesCluster, Phase};
use kubeon_envtest::{ApiServerOptions, TestApiServer};
use kubeon_install::InstallOptions;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::http::{free_port, get};
use crate::lab::{TIMEOUT, end_job};

const SYSTEM: &str = "kubeon-system";
const KNOWN_HOSTS: &str = "default-shop-known-hosts";

/// The name of the pod of a Job.
fn pod_of(job: &str) -> String {
    format!("{job}-abcde")
}

struct Installed {
    // The replicas are dropped before the API server.
    replicas: Vec<Child>,
    server: TestApiServer,
    client: Client,
    /// The health ports of the replicas.
    health: Vec<u16>,
}

impl Installed {
    async fn start() -> Self {
        let server = TestApiServer::start(ApiServerOptions::default()).await.unwrap();
        let client = server.client().await.unwrap();
        let options =
            InstallOptions { watch_namespaces: vec!["default".into()], ..InstallOptions::default() };
        let manifest = kubeon_install::manifest::manifest(&options).unwrap();
        server.apply(&server.write_file("kubeon.yaml", &manifest).unwrap()).await.unwrap();
        let token = server.service_account(SYSTEM, "kubeon-operator").await.unwrap();
        let file = server.write_file("operator", &server.kubeconfig_of_token(&token)).unwrap();
        let mut installed = Self { replicas: Vec::new(), server, client, health: Vec::new() };
        for _ in 0..2 {
            installed.start_replica(&file).await;
        }
        installed
    }

    /// Starts another replica. The API server calls the webhook of the last one, whether it leads or not.
    async fn start_replica(&mut self, kubeconfig: &Path) {
        let (admission, health) = (free_port(), free_port());
        let replica = Command::new(env!("CARGO_BIN_EXE_kubeon-operator"))
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--namespace", SYSTEM, "--watch-namespace=default", "--metrics-address=127.0.0.1:0"])
            .arg(format!("--health-address=127.0.0.1:{health}"))
            .arg(format!("--admission-address=127.0.0.1:{admission}"))
            .args(["--admission-name=127.0.0.1", "--log", "warn,kube_client=off"])
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.replicas.push(replica);
        self.health.push(health);
        let address = |path: &str| {
            let url = format!("https://127.0.0.1:{admission}{path}");
            let change =
                json!([{"op": "replace", "path": "/webhooks/0/clientConfig", "value": {"url": url}}]);
            Patch::<()>::Json(serde_json::from_value(change).unwrap())
        };
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        validating.patch("kubeon", &PatchParams::default(), &address("/validate")).await.unwrap();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        mutating.patch("kubeon", &PatchParams::default(), &address("/record-requester")).await.unwrap();
    }

    fn kubernetes_clusters(&self) -> Api<KubernetesCluster> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn operations(&self, client: &Client) -> Api<ClusterOperation> {
        Api::all(client.clone())
    }

    async fn declare(&self, name: &str, version: &str, master: &str) -> Result<(), String> {
        self.create(name, version, master, &PostParams::default()).await
    }

    /// A dry run of a creation.
    async fn declare_dry_run(&self, name: &str, version: &str, master: &str) -> Result<(), String> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        self.create(name, version, master, &dry_run).await
    }

    async fn create(&self, name: &str, version: &str, master: &str, how: &PostParams) -> Result<(), String> {
        let declared = json!({"apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": name},
            "spec": {"cluster": {"kubeVersion": version, "masterList": [{"ip": master}],
                "nodeList": [{"ip": "10.0.0.2"}], "authConfig": {"password": "hunter2"}}}});
        let declared = serde_json::from_value(declared).unwrap();
        let created = self.kubernetes_clusters().create(how, &declared).await;
        created.map(drop).map_err(|error| error.to_string())
    }

    async fn until(&self, name: &str, wanted: impl Fn(&KubernetesCluster) -> bool) -> KubernetesCluster {
        let matches = |object: Option<&KubernetesCluster>| object.is_some_and(&wanted);
        match timeout(TIMEOUT, await_condition(self.kubernetes_clusters(), name, matches)).await {
            Ok(found) => found.unwrap().unwrap(),
            Err(_) => {
                panic!("{name} is still {:?}", self.kubernetes_clusters().get(name).await.unwrap().status)
            }
        }
    }

    /// The running Job of the cluster and its operation, once the status of the operation names the Job.
    async fn running_job(&self, name: &str, prefix: &str) -> (String, String) {
        let job =
            |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.job_name.clone());
        let object = self.until(name, |object| job(object).is_some_and(|job| job.starts_with(prefix))).await;
        let operation = object.status.as_ref().unwrap().operation.clone().unwrap();
        let recorded = |operation: Option<&ClusterOperation>| {
            operation
                .and_then(|operation| operation.status.as_ref())
                .is_some_and(|status| status.job_ref.is_some())
        };
        let waits = await_condition(self.operations(&self.client), &operation, recorded);
        timeout(TIMEOUT, waits).await.expect("the status of the operation names its Job").unwrap();
        (job(&object).unwrap(), operation)
    }

    /// A client for the runner in the pod of this Job. If the Job exists, the operator sees the pod.
    async fn runner(&self, job: &str) -> Client {
        let mut metadata = json!({"name": pod_of(job)});
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), "default");
        if let Some(job) = jobs.get_opt(job).await.unwrap() {
            metadata["ownerReferences"] = json!([job.controller_owner_ref(&()).unwrap()]);
            let template = job.spec.unwrap().template.metadata.unwrap();
            metadata["labels"] = json!(template.labels);
            metadata["annotations"] = json!(template.annotations);
        }
        self.runner_in(metadata).await
    }

    /// A client for the runner in a pod with this metadata.
    async fn runner_in(&self, metadata: Value) -> Client {
        let as_user = |user: &'static str| self.server.client_as(user, &["system:masters"]);
        let job_controller = as_user("system:serviceaccount:kube-system:job-controller").await.unwrap();
        let pods: Api<Pod> = Api::namespaced(job_controller, "default");
        let pod = metadata["name"].clone();
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"serviceAccountName": "kubeon-runner", "containers": [{"name": "c", "image": "i"}]}});
        let pod_object =
            pods.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let request = json!({"spec": {"audiences": [], "boundObjectRef": {
            "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod_object.metadata.uid}}});
        let accounts: Api<ServiceAccount> =
            Api::namespaced(as_user("system:node:h1").await.unwrap(), "default");
        let request = serde_json::from_value(request).unwrap();
        let answer =
            accounts.create_token_request("kubeon-runner", &PostParams::default(), &request).await.unwrap();
        let kubeconfig = self.server.kubeconfig_of_token(&answer.status.unwrap().token.unwrap());
        let config = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        Client::try_from(config).unwrap()
    }

    /// Writes the status of an operation as the runner does.
    async fn write_status(&self, client: &Client, operation: &str) -> Result<(), String> {
        let steps = json!({"apiVersion": "kubeonkube.clay.io/v1alpha1", "kind": "ClusterOperation",
            "metadata": {"name": operation},
            "status": {"steps": {"done": 9, "total": 27, "current": "etcd on h1", "text": "9/27"},
                "conditions": [{"type": "Prechecked", "status": "True", "reason": "Passed", "message": "every host is fit",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}, {"type": "HostKeysPinned", "status": "True",
                    "reason": "FirstContact", "message": "1 new: 10.0.0.1 SHA256:abc",
                    "lastTransitionTime": "2026-01-01T00:00:00.123456Z"}]}});
        let apply_params = PatchParams::apply("kubeon-runner").force();
        let kind = kube::api::ApiResource::erase::<ClusterOperation>(&());
        let api = Api::<kube::api::DynamicObject>::all_with(client.clone(), &kind);
        api.patch_status(operation, &apply_params, &Patch::Apply(&steps))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Writes a Secret as the runner does.
    async fn write_secret(&self, client: &Client, secret: &str, key: &str) -> Result<(), String> {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": "default"},
            "data": {key: "a2V5cw=="}});
        let apply_params = PatchParams::apply("kubeon-runner").force();
        let api: Api<Secret> = Api::namespaced(client.clone(), "default");
        api.patch(secret, &apply_params, &Patch::Apply(&object))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Writes a ConfigMap as the runner does.
    async fn write_host_keys(&self, client: &Client, map: &str) -> Result<(), String> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map, "namespace": "default"},
            "data": {"known_hosts": "10.0.0.1 ssh-ed25519 AAAA\n"}});
        let apply_params = PatchParams::apply("kubeon-runner").force();
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        api.patch(map, &apply_params, &Patch::Apply(&object))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    async fn config_maps(&self, selector: &str) -> Vec<String> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let found = api.list(&ListParams::default().labels(selector)).await.unwrap();
        found.items.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// Ends the pod of a Job, and the Job.
    async fn end_job(&self, job: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "default");
        let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        pods.patch_status(&pod_of(job), &PatchParams::default(), &ended).await.unwrap();
        end_job(&Api::<Job>::namespaced(self.client.clone(), "default"), job, true).await;
    }

    async fn secrets(&self) -> Vec<String> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), "default");
        let found = api.list(&ListParams::default().labels("kubeon.io/cluster")).await.unwrap();
        found.items.iter().map(kube::ResourceExt::name_any).collect()
    }

    /// The reasons of the events about an object.
    async fn event_reasons(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let all = events.list(&ListParams::default()).await.unwrap();
        let about = all.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        about.filter_map(|event| event.reason).collect()
    }
}

/// Polls until the condition is true, for conditions that cannot be watched.
async fn eventually<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let polls = async {
        while !condition().await {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    };
    timeout(TIMEOUT, polls).await.unwrap_or_else(|_| panic!("timeout: {what}"));
}

/// An API server enforces each policy some time after its creation. Until then a request may be refused for
/// other reasons.
async fn wait_policies(installed: &Installed, other: &Client, operation: &str, state: &str) {
    let refuses =
        |result: Result<(), String>, reason: &str| result.is_err_and(|error| error.contains(reason));
    eventually("the API server enforces the policy of operations", || async {
        refuses(installed.write_status(other, operation).await, "is written by its own Job")
    })
    .await;
    eventually("the API server enforces the policy of Secrets", || async {
        refuses(installed.write_secret(other, state, "state.tar.zst").await, "was made for Job")
    })
    .await;
    eventually("the API server enforces the policy of ConfigMaps", || async {
        refuses(installed.write_host_keys(other, KNOWN_HOSTS).await, "this ConfigMap was made for Job")
    })
    .await;
}

/// A runner may write only the data of the ConfigMap that was created for its Job.
async fn check_host_keys_policy(installed: &Installed, runner: &Client, other: &Client) {
    let refused = installed.write_host_keys(other, KNOWN_HOSTS).await.unwrap_err();
    assert!(refused.contains("this ConfigMap was made for Job create-default-shop"), "{refused}");
    installed.write_host_keys(runner, KNOWN_HOSTS).await.unwrap();
    let foreign = json!({"metadata": {"name": "foreign"}});
    let admin: Api<ConfigMap> = Api::namespaced(installed.client.clone(), "default");
    admin.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let refused = installed.write_host_keys(runner, "foreign").await.unwrap_err();
    assert!(refused.contains("this ConfigMap was not made for a cluster"), "{refused}");
    assert!(
        installed.write_host_keys(runner, "another").await.is_err(),
        "a runner must not create a ConfigMap"
    );
    let maps: Api<ConfigMap> = Api::namespaced(runner.clone(), "default");
    assert!(maps.get(KNOWN_HOSTS).await.is_err(), "a runner must not read a ConfigMap");
    let other_job =
        json!({"metadata": {"annotations": {"kubeon.io/job": "create-default-shopping-job-12345"}}});
    let refused = maps.patch(KNOWN_HOSTS, &PatchParams::default(), &Patch::Merge(other_job)).await;
    assert!(refused.unwrap_err().to_string().contains("writes the data of a ConfigMap and nothing else"));
}

/// The operator records the UID of the pod that its Job controls. A pod that has a name of the Job's pods does not take its place.
async fn check_recorded_pod(installed: &Installed, job: &str, operation: &str) {
    let pods: Api<Pod> = Api::namespaced(installed.client.clone(), "default");
    let uid = pods.get(&pod_of(job)).await.unwrap().metadata.uid;
    eventually("the operator records the pod", || async {
        let found = installed.operations(&installed.client).get(operation).await.unwrap();
        found.status.and_then(|status| status.runner_pod) == uid
    })
    .await;
    let namesake = installed.runner_in(json!({"name": format!("{job}-fghij")})).await;
    let refused = installed.write_status(&namesake, operation).await.unwrap_err();
    assert!(refused.contains(&format!("with UID {}", uid.unwrap())), "{refused}");
}

/// Waits until both replicas are ready. Declares a cluster, and checks that the webhook refuses an unknown version and
/// an address of another cluster.
async fn declare_shop(installed: &Installed) {
    for port in installed.health.clone() {
        eventually("both replicas are ready", || async move {
            get(port, "/readyz").await.starts_with("HTTP/1.1 200")
        })
        .await;
    }
    eventually("the webhook answers", || async {
        installed
            .declare("bad", "v9.9.9", "10.0.0.9")
            .await
            .is_err_and(|error| error.contains("not in the catalogue"))
    })
    .await;
    installed.declare("shop", "v1.36.3", "10.0.0.1").await.unwrap();
    eventually("the webhook knows the addresses of shop", || async {
        let result = installed.declare_dry_run("rival", "v1.36.3", "10.0.0.1").await;
        result.is_err_and(|error| error.contains("default/shop"))
    })
    .await;
    let error = installed.declare("rival", "v1.36.3", "10.0.0.1").await.unwrap_err();
    assert!(error.contains("10.0.0.1") && error.contains("default/shop"), "{error}");
}

async fn wait_deleted(installed: &Installed) {
    let is_absent = |object: Option<&KubernetesCluster>| object.is_none();
    timeout(TIMEOUT, await_condition(installed.kubernetes_clusters(), "shop", is_absent))
        .await
        .expect("the cluster is deleted")
        .unwrap();
}

#[tokio::test]
async fn a_cluster_is_admitted_created_by_a_restricted_runner_and_deleted() {
    let installed = Installed::start().await;
    declare_shop(&installed).await;
    let (job, operation) = installed.running_job("shop", "create-").await;
    let (runner, other) =
        (installed.runner(&job).await, installed.runner("create-default-shopping-job-12345").await);
    let state = "default-shop-state";
    wait_policies(&installed, &other, &operation, state).await;
    assert!(
        installed.write_status(&other, &operation).await.unwrap_err().contains("is written by its own Job")
    );
    assert!(
        installed
            .write_secret(&other, state, "state.tar.zst")
            .await
            .unwrap_err()
            .contains("was made for Job")
    );
    check_host_keys_policy(&installed, &runner, &other).await;
    check_recorded_pod(&installed, &job, &operation).await;
    installed.write_status(&runner, &operation).await.unwrap();
    installed.write_secret(&runner, state, "state.tar.zst").await.unwrap();
    installed.write_secret(&runner, "default-shop-kubeconfig", "kubeconfig").await.unwrap();
    installed.write_secret(&runner, "default-shop-observer", "kubeconfig").await.unwrap();
    let result = json!({"status": {"status": "Succeeded"}});
    let operations = installed.operations(&runner);
    let refused = operations.patch_status(&operation, &PatchParams::default(), &Patch::Merge(result)).await;
    assert!(refused.unwrap_err().to_string().contains("written by the operator alone"));
    assert!(
        installed.write_secret(&runner, "another", "x").await.is_err(),
        "a runner must not create a Secret"
    );
    let step = |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.step.clone());
    installed.until("shop", |object| step(object).as_deref() == Some("9/27 etcd on h1")).await;

    installed.end_job(&job).await;
    let phase = |object: &KubernetesCluster| object.status.as_ref().and_then(|status| status.phase);
    let created = installed.until("shop", |object| phase(object) == Some(Phase::Running)).await;
    let status = created.status.unwrap();
    assert_eq!(status.kubeconfig_secret.unwrap().name.as_str(), "default-shop-kubeconfig");
    assert_eq!(
        (status.ready.as_deref(), status.api_endpoint.as_deref()),
        (Some("2/2"), Some("https://10.0.0.1:6443"))
    );
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.observed_generation), ("True", created.metadata.generation));

    installed.kubernetes_clusters().delete("shop", &DeleteParams::default()).await.unwrap();
    let (deletion, _) = installed.running_job("shop", "delete-").await;
    assert!(
        installed.write_secret(&runner, state, "state.tar.zst").await.is_err(),
        "the Secret is assigned to another Job"
    );
    assert!(
        installed.write_host_keys(&runner, KNOWN_HOSTS).await.is_err(),
        "the ConfigMap is assigned to another Job"
    );
    installed.write_secret(&installed.runner(&deletion).await, state, "state.tar.zst").await.unwrap();
    assert_eq!(installed.secrets().await.len(), 3, "the Secrets are deleted after the cluster");
    installed.end_job(&deletion).await;
    wait_deleted(&installed).await;
    assert!(installed.secrets().await.is_empty());
    assert!(installed.config_maps("kubeon.io/cluster").await.is_empty());
    let reasons = installed.event_reasons("shop").await;
    for about in [&reasons, &installed.event_reasons(&operation).await] {
        assert_eq!(about.iter().filter(|one| *one == "HostKeysPinned").count(), 1, "{about:?}");
    }
    for reason in ["Creating", "Prechecked", "CreateKubeJobSuccess", "Terminating", "DeleteKubeJobSuccess"] {
        assert!(reasons.iter().any(|one| one == reason), "{reason} is missing in {reasons:?}");
    }
}

#[tokio::test]
async fn a_cluster_without_saved_state_is_deleted_without_a_job() {
    let installed = Installed::start().await;
    eventually("the webhook answers", || async {
        installed.declare("shop", "v1.36.3", "10.0.0.1").await.is_ok()
    })
    .await;
    let (job, _) = installed.running_job("shop", "create-").await;
    let jobs = Api::<Job>::namespaced(installed.client.clone(), "default");
    end_job(&jobs, &job, false).await;
    let failed = |object: &KubernetesCluster| {
        object.status.as_ref().is_some_and(|status| status.phase == Some(Phase::Failed))
    };
    installed.until("shop", failed).await;
    installed.kubernetes_clusters().delete("shop", &DeleteParams::default()).await.unwrap();
    wait_deleted(&installed).await;
    let names: Vec<_> =
        jobs.list(&ListParams::default()).await.unwrap().iter().map(kube::ResourceExt::name_any).collect();
    assert!(!names.iter().any(|name| name.starts_with("delete-")), "{names:?}");
    assert!(installed.secrets().await.is_empty());
}
