//! The clients of the webhook: everybody, or API servers only.
//!
//! An API server publishes in the ConfigMap `kube-system/extension-apiserver-authentication` which authorities and names its own
//! client certificate has; aggregated API servers use it in the same way.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use kubeon_install::names::API_SERVER_IDENTITY;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::watch_object::watch_object;

/// The namespace of the ConfigMap with the identity of API servers.
const SYSTEM: &str = "kube-system";

const NO_CERTIFICATE: &str = "the webhook of kubeon answers API servers only, and this client has no certificate; \
     kube-apiserver gets one with --admission-control-config-file (docs/meta-cluster.md)";
const FOREIGN_NAME: &str = "the webhook of kubeon answers API servers only, and the name of this client's certificate is not in \
     --requestheader-allowed-names of kube-apiserver";

/// Who may ask for reviews.
#[derive(Clone)]
pub enum WebhookClients {
    /// Everybody who reaches the webhook.
    Everybody,
    /// API servers with a client certificate. The client reads which certificates they have.
    ApiServers(Client),
}

/// The authorities and names of the client certificates of API servers.
#[derive(Debug, Clone)]
pub(crate) struct ApiServerIdentity {
    pub(crate) authorities: Arc<RootCertStore>,
    /// Empty: every name.
    pub(crate) names: Vec<String>,
}

impl ApiServerIdentity {
    fn read(published: &ConfigMap) -> Result<Self, String> {
        let text = |key: &str| published.data.as_ref().and_then(|data| data.get(key));
        let pem = text("requestheader-client-ca-file")
            .ok_or("the API server has no --requestheader-client-ca-file")?;
        let mut authorities = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            authorities.add(certificate).map_err(|error| error.to_string())?;
        }
        let names = text("requestheader-allowed-names").map_or("[]", String::as_str);
        let names = serde_json::from_str(names)
            .map_err(|error| format!("requestheader-allowed-names is no list of names: {error}"))?;
        Ok(Self { authorities: Arc::new(authorities), names })
    }

    /// Why a client gets no answer; `None` when it does. Its chain has been verified if it has one.
    pub(crate) fn refuses(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<&'static str> {
        let Some(leaf) = chain.and_then(<[_]>::first) else { return Some(NO_CERTIFICATE) };
        let is_allowed =
            self.names.is_empty() || common_names(leaf).iter().any(|name| self.names.contains(name));
        (!is_allowed).then_some(FOREIGN_NAME)
    }
}

fn common_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let names = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    names.map(str::to_owned).collect()
}

/// Reports the identity of API servers, and every change of it, until dropped.
pub(crate) async fn follow_identity(client: Client, mut show: impl FnMut(ApiServerIdentity)) {
    let maps: Api<ConfigMap> = Api::namespaced(client, SYSTEM);
    let mut changes = std::pin::pin!(watch_object(maps, API_SERVER_IDENTITY));
    while let Some(published) = changes.next().await {
        let identity = published.as_ref().ok_or_else(|| "it does not exist".to_owned());
        match identity.and_then(ApiServerIdentity::read) {
            Ok(identity) => show(identity),
            Err(error) => {
                tracing::warn!(
                    error,
                    "ConfigMap {SYSTEM}/{API_SERVER_IDENTITY} does not describe API servers"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(name: &str) -> (String, CertificateDer<'static>) {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        (certificate.pem(), certificate.der().clone())
    }

    fn published(data: &[(&str, &str)]) -> ConfigMap {
        let data: BTreeMap<_, _> =
            data.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        ConfigMap { data: Some(data), ..ConfigMap::default() }
    }

    #[test]
    fn only_the_published_names_are_answered() {
        let (pem, der) = certificate("front-proxy-client");
        let (_, other) = certificate("alice");
        let read = |names: &str| {
            let data =
                [("requestheader-client-ca-file", pem.as_str()), ("requestheader-allowed-names", names)];
            ApiServerIdentity::read(&published(&data))
        };
        let named = read(r#"["front-proxy-client"]"#).unwrap();
        assert_eq!(named.refuses(Some(std::slice::from_ref(&der))), None);
        assert_eq!(named.refuses(Some(std::slice::from_ref(&other))), Some(FOREIGN_NAME));
        assert_eq!(named.refuses(Some(&[])), Some(NO_CERTIFICATE));
        assert_eq!(named.refuses(None), Some(NO_CERTIFICATE));
        assert_eq!(read("[]").unwrap().refuses(Some(std::slice::from_ref(&other))), None);
        assert!(read("front-proxy-client").unwrap_err().contains("is no list of names"));
    }

    #[test]
    fn an_api_server_without_an_identity_is_described() {
        let error = ApiServerIdentity::read(&published(&[])).unwrap_err();
        assert_eq!(error, "the API server has no --requestheader-client-ca-file");
        let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(ApiServerIdentity::read(&published(&[("requestheader-client-ca-file", invalid)])).is_err());
    }
}
