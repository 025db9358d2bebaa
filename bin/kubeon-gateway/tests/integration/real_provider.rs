//! A person logs in at a real provider of OpenID Connect and uses the gateway with the token.

use std::process::Command;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeon_envtest::TestIdentityProvider;
use serde_json::{Value, json};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::support::{EndedWithTest, rest};

/// The provider's name of its user.
const SUBJECT: &str = "id1";

/// A browser: it trusts the provider, and shows redirects instead of following them.
struct Browser(ureq::Agent);

impl Browser {
    fn new(provider: &TestIdentityProvider) -> Self {
        let authority = std::fs::read(provider.authority()).unwrap();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[Certificate::from_pem(&authority).unwrap().to_owned()]))
            .build();
        let config = ureq::Agent::config_builder()
            .tls_config(tls)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .build();
        Self(config.new_agent())
    }

    /// Where an answer leads to.
    fn target(answer: &ureq::http::Response<ureq::Body>, issuer: &str) -> String {
        let target = answer.headers()["location"].to_str().unwrap();
        if target.starts_with('/') { format!("{issuer}{target}") } else { target.to_owned() }
    }

    fn json(&self, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Value {
        serde_json::from_str(&answer.unwrap().body_mut().read_to_string().unwrap()).unwrap()
    }

    /// Logs in with the password, and returns the token of the person.
    fn log_in(&self, provider: &TestIdentityProvider) -> String {
        let issuer = provider.issuer();
        let discovery = self.json(self.0.get(format!("{issuer}/.well-known/openid-configuration")).call());
        let endpoint = |name: &str| discovery[name].as_str().unwrap().to_owned();
        let begin = self.0.get(endpoint("authorization_endpoint"));
        let begin = begin.query("client_id", TestIdentityProvider::CLIENT).query("response_type", "code");
        let begin = begin.query("redirect_uri", TestIdentityProvider::REDIRECT).query("state", "a-state");
        let login = Self::target(&begin.query("scope", "openid email").call().unwrap(), &issuer);
        let (_, request) = login.split_once('=').unwrap();
        let (user, password) = TestIdentityProvider::LOGIN;
        let form = [("id", request), ("username", user), ("password", password)];
        let page = login.split('?').next().unwrap();
        let done = Self::target(&self.0.post(page).send_form(form).unwrap(), &issuer);
        let back = Self::target(&self.0.get(done).call().unwrap(), &issuer);
        let (_, code) = back.split_once("code=").unwrap();
        let secret = format!("{}:{}", TestIdentityProvider::CLIENT, provider.secret());
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.split('&').next().unwrap()),
            ("redirect_uri", TestIdentityProvider::REDIRECT),
        ];
        let tokens = self.0.post(endpoint("token_endpoint"));
        let tokens = tokens.header("authorization", format!("Basic {}", STANDARD.encode(secret)));
        self.json(tokens.send_form(form))["id_token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "compiles a provider: ./test long"]
async fn soak_a_person_logs_in_at_a_real_provider() {
    let rest = rest().await;
    let provider = TestIdentityProvider::start().unwrap();
    let user = format!("{}#{SUBJECT}", provider.issuer());
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_kubeon-gateway"));
    gateway
        .arg(format!("--oidc-issuer-url={}", provider.issuer()))
        .arg(format!("--oidc-client-id={}", TestIdentityProvider::CLIENT))
        .arg("--oidc-ca-file")
        .arg(provider.authority())
        .arg(format!("--impersonate-user={user}"));
    let (process, address) = rest.start_process(gateway).await;
    let _ended = EndedWithTest(process);
    let with_provider = rest.at(address);
    let browser = Browser::new(&provider);
    let (token, provider) =
        tokio::task::spawn_blocking(move || (browser.log_in(&provider), provider)).await.unwrap();
    let path = "/api/v2/namespaces/team-a/clusters";
    let denied = with_provider.send(Some(&token), "GET", path, "").await;
    assert!(denied.0 == 403 && denied.1.to_string().contains(&user), "known, without rights: {denied:?}");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "team-b", "name": "of-the-provider"},
        "rules": [{"apiGroups": ["ecs.yun.com"], "resources": ["kubernetesclusters"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "team-b", "name": "of-the-provider"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "of-the-provider"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
    let text = kubeon_install::manifest::documents(&[role, binding]).unwrap();
    rest.server.apply(&rest.server.write_file("real-provider.yaml", &text).unwrap()).await.unwrap();
    let allowed = "/api/v2/namespaces/team-b/clusters";
    let listed = with_provider.send(Some(&token), "GET", allowed, "").await;
    assert_eq!(listed.0, 200, "{listed:?}");
    let changed = format!("{}x", &token[..token.len() - 1]);
    assert_eq!(with_provider.send(Some(&changed), "GET", allowed, "").await.0, 401);
    // The keys are known, so the provider may be away.
    drop(provider);
    assert_eq!(with_provider.send(Some(&token), "GET", allowed, "").await.0, 200);
}
