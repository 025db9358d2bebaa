//! One API server and one gateway for all tests. Each test has its own clusters.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubeon_api::KubernetesCluster;
use kubeon_envtest::TestApiServer;
use kubeon_gateway::{CallerNamespaces, GatewayLimits, GatewayOptions, OidcOptions};
use kubeon_install::{GatewayInstallOptions, gateway_objects, manifest};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, SanType,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::provider::Provider;

const SYSTEM: &str = "kubeon-system";
/// The user of a client certificate that the gateway may impersonate.
pub(crate) const CERTIFIED_USER: &str = "carol";
/// The user of the provider whom the gateway may impersonate.
pub(crate) const OIDC_USER: &str = "dora";

/// A gateway and the API server behind it.
pub(crate) struct RestServer {
    pub server: &'static TestApiServer,
    pub address: SocketAddr,
    pub provider: std::sync::Arc<Provider>,
    authority: Authority,
}

/// A certificate authority.
#[derive(Clone)]
struct Authority {
    certificate: String,
    issuer: std::sync::Arc<Issuer<'static, KeyPair>>,
}

/// A certificate and its key, PEM.
pub(crate) struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: std::sync::Arc::new(Issuer::new(params, key)) }
    }

    fn issue(&self, name: &str, groups: &[&str]) -> IssuedCertificate {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        groups.iter().for_each(|group| params.distinguished_name.push(DnType::OrganizationName, *group));
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        IssuedCertificate {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// A process that ends with the test, also when that fails.
pub(crate) struct EndedWithTest(pub(crate) Child);

impl Drop for EndedWithTest {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).unwrap();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The gateway that all tests share.
pub(crate) async fn rest() -> &'static RestServer {
    static REST: OnceCell<RestServer> = OnceCell::const_new();
    REST.get_or_init(start).await
}

async fn start() -> RestServer {
    let server = TestApiServer::shared().await.unwrap();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    server.apply_crds(&deploy.join("crds")).await.unwrap();
    for namespace in [SYSTEM, "team-a", "team-b"] {
        create_namespace(&server.client().await.unwrap(), namespace).await;
    }
    let (authority, address, health) = (Authority::new(), free_address(), free_address());
    let provider = Provider::start(&authority.issue("provider", &[]));
    let users = [CERTIFIED_USER.to_owned(), format!("{}#{OIDC_USER}", provider.issuer)];
    let options =
        GatewayInstallOptions { impersonated_users: users.to_vec(), ..GatewayInstallOptions::default() };
    let objects = manifest::documents(&gateway_objects(&options).unwrap()).unwrap();
    server.apply(&server.write_file("gateway.yaml", &objects).unwrap()).await.unwrap();
    let token = server.service_account(SYSTEM, "kubeon-gateway").await.unwrap();
    let kubeconfig = server.write_file("gateway", &server.kubeconfig_of_token(&token)).unwrap();
    serve(server, (&authority, &provider), &kubeconfig, (address, health), users);
    let rest = RestServer { server, address, provider: provider.into(), authority };
    wait_until_ready(health).await;
    rest
}

/// Serves on a thread of its own, because every test has a runtime of its own.
fn serve(
    server: &TestApiServer,
    (authority, provider): (&Authority, &Provider),
    kubeconfig: &Path,
    (address, health): (SocketAddr, SocketAddr),
    users: [String; 2],
) {
    let own = authority.issue("gateway", &[]);
    let file = |name: &str, text: &str| -> PathBuf { server.write_file(name, text).unwrap() };
    let rules = ["group:system:serviceaccounts:team-a=team-a", "group:system:serviceaccounts:team-b=team-b"];
    let options = GatewayOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        address,
        health_address: health,
        certificate: file("gateway.crt", &own.certificate),
        key: file("gateway.key", &own.key),
        client_authorities: Some(file("clients.crt", &authority.certificate)),
        oidc: Some(OidcOptions {
            issuer: provider.issuer.parse().unwrap(),
            client_id: "kubeon".to_owned(),
            username_claim: "sub".to_owned(),
            username_prefix: None,
            groups_claim: Some("groups".to_owned()),
            groups_prefix: String::new(),
            authorities: Some(file("provider.crt", &authority.certificate)),
        }),
        impersonated_users: users.into(),
        impersonated_groups: [].into(),
        namespaces: CallerNamespaces::new(rules.map(|rule| rule.parse().unwrap()).to_vec()),
        limits: GatewayLimits {
            connections: 12_000,
            connections_per_user: 1_000,
            logs: 300,
            logs_per_user: 100,
            write_timeout: Duration::from_secs(60),
        },
        request_timeout: Duration::from_secs(15),
    };
    std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(kubeon_gateway::run(options, Box::pin(std::future::pending()))).unwrap();
    });
}

async fn wait_until_ready(health: SocketAddr) {
    for _ in 0..600 {
        let url = format!("http://{health}/readyz");
        let ready = tokio::task::spawn_blocking(move || ureq::get(&url).call().is_ok()).await.unwrap();
        if ready {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the gateway is not ready after 60 s");
}

async fn create_namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta { name: Some(name.to_owned()), ..kube::api::ObjectMeta::default() },
        ..Namespace::default()
    };
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

impl RestServer {
    /// The same authorities and API server, for a gateway at another address.
    pub(crate) fn at(&self, address: SocketAddr) -> Self {
        let provider = self.provider.clone();
        Self { server: self.server, address, provider, authority: self.authority.clone() }
    }

    /// A client that trusts the gateway, with a client certificate or without.
    pub(crate) fn agent(&self, client: Option<&IssuedCertificate>) -> ureq::Agent {
        let pem = |text: &str| Certificate::from_pem(text.as_bytes()).unwrap().to_owned();
        let client = client.map(|client| {
            let key = PrivateKey::from_pem(client.key.as_bytes()).unwrap().to_owned();
            ClientCert::new_with_certs(&[pem(&client.certificate)], key)
        });
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(std::sync::Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[pem(&self.authority.certificate)]))
            .client_cert(client)
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(60)))
            .build();
        config.new_agent()
    }

    /// A client certificate of the authority that the gateway trusts.
    pub(crate) fn client_certificate(&self, user: &str, groups: &[&str]) -> IssuedCertificate {
        self.authority.issue(user, groups)
    }

    /// The settings of TLS for a client that writes bytes of any form.
    pub(crate) fn tls_client(&self) -> rustls::ClientConfig {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.authority_certificate()).unwrap();
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }

    /// Starts the gateway as a process of its own, and waits until it is ready.
    pub(crate) async fn start_process(&self, mut program: Command) -> (Child, SocketAddr) {
        let (address, health) = (free_address(), free_address());
        let own = self.authority.issue("gateway", &[]);
        let file = |name: &str, text: &str| {
            self.server.write_file(&format!("{name}-{}", address.port()), text).unwrap()
        };
        let process = program
            .arg("--kubeconfig")
            .arg(file("process", &self.server.kubeconfig_of_token(self.server.admin_token())))
            .arg(format!("--address={address}"))
            .arg(format!("--health-address={health}"))
            .arg("--tls-cert")
            .arg(file("process.crt", &own.certificate))
            .arg("--tls-key")
            .arg(file("process.key", &own.key))
            .arg("--log=warn")
            .spawn()
            .unwrap();
        wait_until_ready(health).await;
        (process, address)
    }

    /// The certificate of the authority that signed the gateway's certificate.
    pub(crate) fn authority_certificate(&self) -> rustls::pki_types::CertificateDer<'static> {
        use rustls::pki_types::pem::PemObject as _;
        rustls::pki_types::CertificateDer::from_pem_slice(self.authority.certificate.as_bytes()).unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Sends a request with a token and returns status and body.
    pub(crate) async fn send(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        let mut request = http::Request::builder().method(method).uri(self.url(path));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        self.send_with(self.agent(None), request.header("content-type", "application/json"), body).await
    }

    /// Sends a request with a client.
    pub(crate) async fn send_with(
        &self,
        agent: ureq::Agent,
        request: http::request::Builder,
        body: &str,
    ) -> (u16, Value) {
        let request = request.body(body.to_owned()).unwrap();
        let answer = move || {
            let mut response = agent.run(request).unwrap();
            let text = response.body_mut().read_to_string().unwrap();
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            (response.status().as_u16(), value)
        };
        tokio::task::spawn_blocking(answer).await.unwrap()
    }

    /// A client of the administrator.
    pub(crate) async fn admin(&self) -> Client {
        self.server.client().await.unwrap()
    }

    pub(crate) async fn clusters(&self, namespace: &str) -> Api<KubernetesCluster> {
        Api::namespaced(self.admin().await, namespace)
    }

    /// A service account in a namespace that has these rights on clusters there, and its token.
    pub(crate) async fn account(&self, namespace: &str, name: &str, verbs: &[&str]) -> String {
        let token = self.server.service_account(namespace, name).await.unwrap();
        self.grant(namespace, name, verbs).await;
        token
    }

    /// Gives an account rights on clusters in its namespace.
    pub(crate) async fn grant(&self, namespace: &str, name: &str, verbs: &[&str]) {
        let rules = json!([
            {"apiGroups": ["ecs.yun.com"], "resources": ["kubernetesclusters"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods", "pods/log", "configmaps"], "verbs": ["get", "list"]},
        ]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"namespace": namespace, "name": name}, "rules": rules});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"namespace": namespace, "name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}]});
        let text = manifest::documents(&[role, binding]).unwrap();
        let file = self.server.write_file(&format!("{namespace}-{name}.yaml"), &text).unwrap();
        self.server.apply(&file).await.unwrap();
    }

    /// Sets the status of a cluster, as the operator would.
    pub(crate) async fn set_status(&self, namespace: &str, name: &str, status: Value) {
        let clusters = self.clusters(namespace).await;
        let patch = Patch::Merge(json!({"status": status}));
        clusters.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The authority of the gateway's certificate, PEM.
    pub(crate) fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// A cluster in a phase.
    pub(crate) async fn cluster_in(&self, namespace: &str, name: &str, phase: &str) {
        let object: KubernetesCluster = serde_json::from_value(json!({
            "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster",
            "metadata": {"name": name, "namespace": namespace,
                "annotations": {"app.kubernetes.io/operation": "create-finished"},
                "finalizers": [format!("kubernetescluster.ecs.yun.com/{name}")]},
            "spec": {"cluster": {"masterList": [{"ip": "10.0.0.1"}], "nodeList": [{"ip": "10.0.0.2"}],
                "authConfig": {"password": "hunter2"}}},
        }))
        .unwrap();
        self.clusters(namespace).await.create(&PostParams::default(), &object).await.unwrap();
        if !phase.is_empty() {
            self.set_status(namespace, name, json!({"phase": phase})).await;
        }
    }
}

/// The verbs of an editor.
pub(crate) const EDIT: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// Reads a path until the gateway's watch has the object in the wanted form.
pub(crate) async fn eventually(
    rest: &RestServer,
    token: &str,
    path: &str,
    wanted: impl Fn(&(u16, Value)) -> bool,
) -> Value {
    let mut last = (0, Value::Null);
    for _ in 0..200 {
        last = rest.send(Some(token), "GET", path, "").await;
        if wanted(&last) {
            return last.1;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path}: {last:?}");
}
