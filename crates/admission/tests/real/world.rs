//! One API server with everything installed, for all tests. The webhook runs in this process, twice, as two replicas do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, ServiceAccount};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use kubeon_admission::{
    AddressBook, CertificateSource, CertificateStore, ServeOptions, WebhookClients, WebhookServer, follow,
};
use kubeon_api::{ClusterOperation, KubernetesCluster};
use kubeon_envtest::{ApiServerOptions, TestApiServer};
use kubeon_install::{InstallOptions, InstallPart, names, part, webhook};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{OnceCell, oneshot, watch};

use crate::front_proxy::FrontProxy;

/// Time limit for effects of the API server and the webhook.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub server: TestApiServer,
    /// The addresses of the leader and of a standby.
    pub replicas: [SocketAddr; 2],
    /// The authority of the API server's client certificate.
    pub front_proxy: FrontProxy,
    /// The API server reads its client certificate for every new webhook.
    _folder: TempDir,
}

pub(crate) async fn world() -> &'static World {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_init(raise).await
}

pub(crate) async fn raise() -> World {
    // This admission plugin is off by default and on in some distributions; the installed roles must suffice
    // with it.
    let guarded = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".to_owned();
    let (front_proxy, folder) =
        (FrontProxy::new(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let mut arguments = front_proxy.write(folder.path());
    arguments.push(guarded);
    let options = ApiServerOptions { arguments, ..ApiServerOptions::default() };
    let server = TestApiServer::start(options).await.unwrap();
    let client = server.client().await.unwrap();
    let options = InstallOptions { watch_namespaces: vec!["default".into()], ..InstallOptions::default() };
    let objects = kubeon_install::objects(&options).unwrap();
    let hooks = |object: &Value| object["kind"].as_str().unwrap().ends_with("WebhookConfiguration");
    for object in objects.iter().filter(|object| !hooks(object)) {
        apply(&client, object).await;
    }
    let kubeconfig = server.kubeconfig();
    let leader = replica(kubeconfig.clone(), true).await;
    let other = replica(kubeconfig, false).await;
    let webhook = webhook::configuration_with(&options, by_url(leader, names::WEBHOOK_PATH));
    apply(&client, &serde_json::to_value(webhook).unwrap()).await;
    let webhook = webhook::requester_configuration_with(&options, by_url(leader, names::REQUESTER_PATH));
    apply(&client, &serde_json::to_value(webhook).unwrap()).await;
    let world = World { server, replicas: [leader, other], front_proxy, _folder: folder };
    world.until_guarded().await;
    world
}

/// A webhook at this address.
pub(crate) fn by_url(address: SocketAddr, path: &str) -> WebhookClientConfig {
    let url = format!("https://{address}{path}");
    WebhookClientConfig { url: Some(url), ..WebhookClientConfig::default() }
}

/// A webhook on its own runtime, which outlives the first test.
async fn replica(kubeconfig: String, leads: bool) -> SocketAddr {
    let (sender, address) = oneshot::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let client = client_of(&kubeconfig).await;
            let versions = ["v1.35.4", "v1.36.1", "v1.36.3"].map(|text| text.parse().unwrap());
            let book = Arc::new(AddressBook::new(versions.to_vec()));
            let (_leader, leads) = watch::channel(leads);
            let store = CertificateStore {
                client: client.clone(),
                namespace: names::NAMESPACE.to_owned(),
                leads,
                names: vec!["127.0.0.1".to_owned()],
            };
            let server = WebhookServer::bind(ServeOptions {
                address: ([127, 0, 0, 1], 0).into(),
                certificate: CertificateSource::Stored(store),
                clients: WebhookClients::ApiServers(client.clone()),
                lookup: book.clone(),
            });
            let server = server.await.unwrap();
            sender.send(server.address()).unwrap();
            tokio::join!(server.run(std::future::pending()), follow(client, &book, std::future::pending()));
        });
    });
    address.await.unwrap()
}

pub(crate) async fn client_of(kubeconfig: &str) -> Client {
    let config = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn resource(object: &Value) -> ApiResource {
    let (group, version) = object["apiVersion"]
        .as_str()
        .unwrap()
        .rsplit_once('/')
        .unwrap_or(("", object["apiVersion"].as_str().unwrap()));
    let kind = object["kind"].as_str().unwrap();
    let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    if kind == "NetworkPolicy" || kind == "ValidatingAdmissionPolicy" {
        resource.plural = kind.to_lowercase().trim_end_matches('y').to_owned() + "ies";
    }
    resource
}

pub(crate) async fn apply(client: &Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let resource = resource(object);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let applied = api.patch(name, &PatchParams::apply("kubeon-install").force(), &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{} {name}: {error}", resource.kind));
    if part(&resource.kind) == InstallPart::Definitions {
        let crds = Api::all(client.clone());
        let served = kube::runtime::conditions::is_crd_established();
        let wait = kube::runtime::wait::await_condition(crds, name, served);
        tokio::time::timeout(TIMEOUT, wait).await.unwrap().unwrap();
    }
}

/// Polls until there is an answer, for effects that cannot be watched: an API server enforces policies and
/// webhooks some time after they are written.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

impl World {
    /// Waits until policies and webhook are enforced: each refuses a change.
    async fn until_guarded(&self) {
        let admin = self.admin().await;
        let (policy, hook) =
            (cluster("default", "probe", "10.255.0", &[]), cluster("default", "probe", "10.255.0", &[]));
        let policy =
            with(policy, "/metadata/annotations", json!({"app.kubernetes.io/operation": "create-finished"}));
        let hook = with(hook, "/spec/cluster/kubeVersion", json!("v1.99.0"));
        for (object, words) in [(policy, "is not for clients"), (hook, "not in the catalogue")] {
            let ask = || async {
                let refused = create_dry(&admin, &object).await.err()?;
                refused.contains(words).then_some(())
            };
            eventually(words, ask).await;
        }
        self.until_a_runner_is_guarded(&admin).await;
    }

    /// Waits for the policies of runners, which are written last, so the others are enforced as well.
    async fn until_a_runner_is_guarded(&self, admin: &Client) {
        let probe = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "probe", "namespace": "default"}});
        apply(admin, &probe).await;
        let secrets: Api<Secret> =
            Api::namespaced(self.runner("default", "probe-job-abcde").await, "default");
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let words = "this Secret was not made for a cluster";
        let ask = || async {
            let patch = Patch::Merge(json!({"stringData": {"state": "x"}}));
            let refused = said(secrets.patch("probe", &dry, &patch).await).err()?;
            refused.contains(words).then_some(())
        };
        eventually(words, ask).await;
    }

    pub(crate) async fn admin(&self) -> Client {
        self.server.client().await.unwrap()
    }

    /// The operator, as the API server knows it.
    pub(crate) async fn operator(&self) -> Client {
        let token = self.server.service_account(names::NAMESPACE, names::OPERATOR).await.unwrap();
        client_of(&self.server.kubeconfig_of_token(&token)).await
    }

    /// The controller that makes the pods of Jobs.
    pub(crate) async fn job_controller(&self) -> Client {
        let user = "system:serviceaccount:kube-system:job-controller";
        self.server.client_as(user, &["system:masters"]).await.unwrap()
    }

    /// The runner within the pod of that name, by a token that is bound to it.
    pub(crate) async fn runner(&self, namespace: &str, pod: &str) -> Client {
        let pods: Api<Pod> = Api::namespaced(self.job_controller().await, namespace);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"serviceAccountName": names::RUNNER, "containers": [{"name": "c", "image": "i"}]},
        });
        let created =
            pods.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        let request = serde_json::from_value(json!({
            "spec": {"audiences": [], "boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod", "name": pod, "uid": created.metadata.uid,
            }},
        }))
        .unwrap();
        let kubelet = self.server.client_as("system:node:h1", &["system:masters"]).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(kubelet, namespace);
        let answer =
            accounts.create_token_request(names::RUNNER, &PostParams::default(), &request).await.unwrap();
        client_of(&self.server.kubeconfig_of_token(&answer.status.unwrap().token.unwrap())).await
    }

    pub(crate) async fn namespace(&self) -> String {
        self.server.namespace().await.unwrap()
    }

    pub(crate) async fn label_namespace(&self, namespace: &str, label: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin().await);
        let patch = json!({"metadata": {"labels": {label: "yes"}}});
        namespaces.patch(namespace, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}

/// A cluster with master NET.1 and these workers.
pub(crate) fn cluster(namespace: &str, name: &str, net: &str, workers: &[u8]) -> Value {
    let workers: Vec<Value> = workers.iter().map(|host| json!({"ip": format!("{net}.{host}")})).collect();
    json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"cluster": {
            "kubeVersion": "v1.36.1", "masterList": [{"ip": format!("{net}.1")}], "nodeList": workers,
        }},
    })
}

pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
    object
}

pub(crate) fn clusters(client: &Client, namespace: &str) -> Api<KubernetesCluster> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn operations(client: &Client) -> Api<ClusterOperation> {
    Api::all(client.clone())
}

pub(crate) async fn create(client: &Client, object: &Value) -> Result<(), String> {
    post(client, object, false).await
}

pub(crate) async fn create_dry(client: &Client, object: &Value) -> Result<(), String> {
    post(client, object, true).await
}

/// Sends an object as JSON, without a typed client.
async fn post(client: &Client, object: &Value, dry_run: bool) -> Result<(), String> {
    let resource = resource(object);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let params = PostParams { dry_run, ..PostParams::default() };
    said(api.create(&params, &object).await)
}

/// A change of a cluster.
pub(crate) async fn change(client: &Client, object: &Value, patch: Value) -> Result<(), String> {
    let api = clusters(client, object["metadata"]["namespace"].as_str().unwrap());
    let name = object["metadata"]["name"].as_str().unwrap();
    said(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

/// Requests an operation by the annotation.
pub(crate) async fn ask(client: &Client, object: &Value, word: &str) -> Result<(), String> {
    change(client, object, json!({"metadata": {"annotations": {"app.kubernetes.io/operation": word}}})).await
}

/// Sets the phase of a cluster; `applied`: with an applied spec.
pub(crate) async fn put(world: &World, object: &Value, phase: &str, applied: bool) {
    let admin = world.admin().await;
    let api = clusters(&admin, object["metadata"]["namespace"].as_str().unwrap());
    let name = object["metadata"]["name"].as_str().unwrap();
    let status = json!({"status": {"phase": phase, "version": "v1.36.1"}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    if applied {
        let spec = object["spec"].to_string();
        let patch = json!({"metadata": {"annotations": {"app.kubernetes.io/spec": spec}}});
        change(&world.operator().await, object, patch).await.unwrap();
    }
}

pub(crate) fn said<T>(result: Result<T, kube::Error>) -> Result<(), String> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => panic!("{error:?}"),
    }
}

#[track_caller]
pub(crate) fn refused(result: Result<(), String>, words: &str) {
    let message = result.expect_err("allowed");
    assert!(message.contains(words), "{message}\n  does not contain\n{words}");
}
