//! The client certificate of the API server, and others.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

/// The name in the certificate of API servers.
const NAME: &str = "front-proxy-client";

/// An authority for client certificates.
pub(crate) struct FrontProxy {
    authority: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A client certificate and its key, PEM.
pub(crate) struct ClientIdentity {
    pub certificate: String,
    pub key: String,
}

impl FrontProxy {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "front-proxy-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        Self { authority, issuer: Issuer::new(params, key) }
    }

    /// The certificate of an API server.
    pub(crate) fn api_server(&self) -> ClientIdentity {
        self.client(NAME)
    }

    pub(crate) fn client(&self, name: &str) -> ClientIdentity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        ClientIdentity { certificate, key: key.serialize_pem() }
    }

    /// Writes the files of an API server that presents its certificate to every webhook, and returns its arguments.
    pub(crate) fn write(&self, folder: &Path) -> Vec<String> {
        let ClientIdentity { certificate, key } = self.api_server();
        let file = |name: &str| folder.join(name).display().to_string();
        let login = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "*", "user": {"client-certificate": file("client.crt"), "client-key": file("client.key")}}],
        });
        let webhooks = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": file("login"),
            }})
        };
        let admission = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [webhooks("MutatingAdmissionWebhook"), webhooks("ValidatingAdmissionWebhook")],
        });
        for (name, text) in [
            ("authority.crt", &self.authority),
            ("client.crt", &certificate),
            ("client.key", &key),
            ("login", &login.to_string()),
            ("admission.json", &admission.to_string()),
        ] {
            std::fs::write(file(name), text).unwrap();
        }
        vec![
            format!("--requestheader-client-ca-file={}", file("authority.crt")),
            format!("--requestheader-allowed-names={NAME}"),
            format!("--admission-control-config-file={}", file("admission.json")),
        ]
    }
}
