//! The TLS settings of the webhook: its certificate and the clients that it accepts. Both change without a restart.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::certificate::WebhookCertificates;
use crate::clients::ApiServerIdentity;

/// Why TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WebhookTlsError {
    /// The TLS library refuses its settings.
    #[error("setting up TLS")]
    Library(#[source] rustls::Error),
    /// A given certificate is invalid.
    #[error("the certificate cannot be used: {0}")]
    Certificate(String),
}

impl WebhookTlsError {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Library(_) => "tls",
            Self::Certificate(_) => "certificate",
        }
    }
}

/// The current settings; none until both parts are known.
pub(crate) struct TlsSettings {
    parts: Mutex<Parts>,
    current: watch::Sender<Option<CurrentTls>>,
}

struct Parts {
    certificate: Option<Arc<CertifiedKey>>,
    clients: Clients,
}

/// Who is accepted.
#[derive(Clone)]
enum Clients {
    Everybody,
    /// API servers, whose identity is not known yet.
    Unknown,
    ApiServers(ApiServerIdentity),
}

/// Settings for one connection.
#[derive(Clone)]
pub(crate) struct CurrentTls {
    pub(crate) acceptor: TlsAcceptor,
    clients: Clients,
}

impl CurrentTls {
    /// Why a client with this verified chain gets no answer.
    pub(crate) fn refuses(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<&'static str> {
        match &self.clients {
            Clients::ApiServers(identity) => identity.refuses(chain),
            Clients::Everybody | Clients::Unknown => None,
        }
    }
}

impl TlsSettings {
    /// Settings without a certificate. With `only_api_servers` their identity is awaited too.
    pub(crate) fn new(only_api_servers: bool) -> Self {
        let clients = if only_api_servers { Clients::Unknown } else { Clients::Everybody };
        Self { parts: Mutex::new(Parts { certificate: None, clients }), current: watch::Sender::new(None) }
    }

    /// The settings, as soon as there are some.
    pub(crate) async fn current(&self) -> Option<CurrentTls> {
        // An error means that the sender was dropped, and `self` holds it.
        self.current.subscribe().wait_for(Option::is_some).await.ok()?.clone()
    }

    /// What it still waits for.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        if self.current.borrow().is_some() {
            return None;
        }
        let parts = self.parts.lock();
        match (&parts.certificate, &parts.clients) {
            (None, _) => Some("the webhook's certificate"),
            (_, Clients::Unknown) => Some("the identity of API servers"),
            // The log says why the TLS library refused them.
            _ => Some("a certificate and authorities that can be used"),
        }
    }

    /// Uses another certificate for new connections.
    ///
    /// # Errors
    /// When it cannot be read, or its key belongs to another one.
    pub(crate) fn show(&self, certificates: &WebhookCertificates) -> Result<(), WebhookTlsError> {
        let mut parts = self.parts.lock();
        parts.certificate = Some(Arc::new(certified(certificates)?));
        self.update(&parts)
    }

    /// Accepts API servers of this identity from now on.
    ///
    /// # Errors
    /// When the TLS library refuses its authorities.
    pub(crate) fn accept(&self, identity: ApiServerIdentity) -> Result<(), WebhookTlsError> {
        let mut parts = self.parts.lock();
        parts.clients = Clients::ApiServers(identity);
        self.update(&parts)
    }

    fn update(&self, parts: &Parts) -> Result<(), WebhookTlsError> {
        let Some(certificate) = &parts.certificate else { return Ok(()) };
        let config = match &parts.clients {
            Clients::Unknown => return Ok(()),
            Clients::Everybody => config(certificate, None)?,
            Clients::ApiServers(identity) => config(certificate, Some(identity))?,
        };
        let acceptor = TlsAcceptor::from(Arc::new(config));
        self.current.send_replace(Some(CurrentTls { acceptor, clients: parts.clients.clone() }));
        Ok(())
    }
}

/// A client without a certificate gets an HTTP answer, which an API server shows to its user; a certificate of another authority
/// fails the handshake.
fn config(
    certificate: &Arc<CertifiedKey>,
    identity: Option<&ApiServerIdentity>,
) -> Result<ServerConfig, WebhookTlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(WebhookTlsError::Library)?;
    let builder = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let roots = identity.authorities.clone();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| WebhookTlsError::Certificate(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.clone())));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certified(certificates: &WebhookCertificates) -> Result<CertifiedKey, WebhookTlsError> {
    let refused = |error: &dyn std::fmt::Display| WebhookTlsError::Certificate(error.to_string());
    let chain = CertificateDer::pem_slice_iter(certificates.leaf.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| refused(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(certificates.leaf_key.as_bytes()).map_err(|error| refused(&error))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| refused(&error))?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|error| refused(&error))?;
    Ok(certified)
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn refused_authorities_are_not_ready() {
        let settings = TlsSettings::new(true);
        let certificates =
            WebhookCertificates::make(&["webhook.example".to_owned()], OffsetDateTime::now_utc()).unwrap();
        settings.show(&certificates).unwrap();
        assert_eq!(settings.waits_for(), Some("the identity of API servers"));
        let nobody =
            ApiServerIdentity { authorities: Arc::new(rustls::RootCertStore::empty()), names: Vec::new() };
        assert!(settings.accept(nobody).is_err());
        assert_eq!(settings.waits_for(), Some("a certificate and authorities that can be used"));
    }
}
