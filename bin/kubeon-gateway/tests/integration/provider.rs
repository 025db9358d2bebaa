//! A provider of OpenID Connect for tests: its discovery document, its keys, and tokens that it signs.

use std::net::TcpListener;
use std::sync::Arc;

use axum::Json;
use axum::routing::get;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::support::IssuedCertificate;

/// A key and its name.
struct SigningKey {
    name: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    fn new(name: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let text = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self {
            name: name.to_owned(),
            pair: EcdsaKeyPair::from_pkcs8(algorithm, text.as_ref(), &random).unwrap(),
        }
    }

    fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": self.name,
            "x": encoded(&point[1..33]), "y": encoded(&point[33..])})
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A running provider.
pub(crate) struct Provider {
    pub issuer: String,
    keys: Arc<Mutex<Vec<SigningKey>>>,
}

impl Provider {
    /// Serves on a thread of its own, with the key `first`.
    pub(crate) fn start(certificate: &IssuedCertificate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("https://{}", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(vec![SigningKey::new("first")]));
        let (url, shown) = (issuer.clone(), keys.clone());
        let router = axum::Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || async move { Json(json!({"issuer": url, "jwks_uri": format!("{url}/keys")})) }),
            )
            .route(
                "/keys",
                get(move || async move {
                    let keys: Vec<Value> = shown.lock().iter().map(SigningKey::public).collect();
                    Json(json!({"keys": keys}))
                }),
            );
        serve_tls(listener, certificate, router);
        Self { issuer, keys }
    }

    /// Adds a key.
    pub(crate) fn add(&self, name: &str) {
        self.keys.lock().push(SigningKey::new(name));
    }

    /// The claims of a token for the gateway that is valid for ten minutes.
    pub(crate) fn claims(&self, user: &str) -> Value {
        let now = k8s_openapi::jiff::Timestamp::now().as_second();
        json!({"iss": self.issuer, "aud": "kubeon", "sub": user, "iat": now, "exp": now + 600,
            "groups": ["system:masters"]})
    }

    /// A token with these claims, signed with the first key.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_of("first", claims)
    }

    /// A token that is signed with this key.
    pub(crate) fn token_of(&self, name: &str, claims: &Value) -> String {
        let keys = self.keys.lock();
        let key = keys.iter().find(|key| key.name == name).unwrap();
        signed(&json!({"alg": "ES256", "typ": "JWT", "kid": name}), claims, &key.pair)
    }

    /// A token that a stranger signed in the name of the first key.
    pub(crate) fn forged(&self, claims: &Value) -> String {
        signed(&json!({"alg": "ES256", "kid": "first"}), claims, &SigningKey::new("first").pair)
    }
}

/// Serves on a thread of its own.
pub(crate) fn serve_tls(listener: TcpListener, certificate: &IssuedCertificate, router: axum::Router) {
    let tls = RustlsConfig::from_config(Arc::new(server_config(certificate)));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = axum_server::from_tcp_rustls(listener, tls).unwrap();
            server.serve(router.into_make_service()).await.unwrap();
        });
    });
}

fn server_config(certificate: &IssuedCertificate) -> ServerConfig {
    let chain = vec![CertificateDer::from_pem_slice(certificate.certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap()
}

fn signed(header: &Value, claims: &Value, key: &EcdsaKeyPair) -> String {
    let message =
        format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()));
    let signature = key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
    format!("{message}.{}", encoded(signature.as_ref()))
}

/// A token without a signature.
pub(crate) fn unsigned(claims: &Value) -> String {
    let header = json!({"alg": "none", "typ": "JWT"}).to_string();
    format!("{}.{}.", encoded(header.as_bytes()), encoded(claims.to_string().as_bytes()))
}
