//! TLS between the hosts of one run.

use std::sync::Arc;

use kubeon_wire::{ForwardingIdentity, StepFailure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::failure::failed;

/// Both roles of a host. Only certificates of the run's authority are accepted.
pub(super) struct RunTls {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

impl RunTls {
    pub(super) fn new(identity: &ForwardingIdentity) -> Result<Self, StepFailure> {
        let unusable = |error: &dyn std::fmt::Display| failed(format!("the identity of the run: {error}"));
        let certificate =
            |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| unusable(&e));
        let key = || PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|e| unusable(&e));
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&identity.authority)?).map_err(|e| unusable(&e))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|e| unusable(&e))?;
        let own = || Ok::<_, StepFailure>(vec![certificate(&identity.certificate)?]);
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own()?, key()?)
            .map_err(|e| unusable(&e))?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(own()?, key()?)
            .map_err(|e| unusable(&e))?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}
