//! The server's certificate and the authorities of clients, read again when the files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum_server::tls_rustls::RustlsConfig;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest as _, Sha256};

/// How often the files are compared. A Secret in a pod changes about a minute after the object.
const INTERVAL: Duration = Duration::from_secs(30);

/// The files of the certificates.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_authorities: Option<PathBuf>,
}

impl TlsFiles {
    /// The settings of TLS, and a digest of the files.
    fn read(&self) -> anyhow::Result<(rustls::ServerConfig, [u8; 32])> {
        let mut digest = Sha256::new();
        let mut read = |path: &Path| {
            let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            digest.update(&bytes);
            anyhow::Ok(bytes)
        };
        let chain = certificates(&read(&self.certificate)?)
            .with_context(|| format!("reading certificates from {}", self.certificate.display()))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .with_context(|| format!("reading a private key from {}", self.key.display()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(&read(file)?)
                    .with_context(|| format!("reading certificates from {}", file.display()))?
                {
                    roots.add(authority)?;
                }
                // A caller may send a token instead.
                builder.with_client_cert_verifier(
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .allow_unauthenticated()
                        .build()?,
                )
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .with_context(|| format!("using the certificate {}", self.certificate.display()))?;
        // Not HTTP/2: an answer before the end of a body, such as 401, is an error of the stream for common versions of curl.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((config, digest.finalize().into()))
    }

    /// The settings of TLS. From now on they follow the files: a file that cannot be used is reported, and the settings stay.
    pub(crate) fn follow(self) -> anyhow::Result<RustlsConfig> {
        let (config, mut current) = self.read()?;
        let config = RustlsConfig::from_config(Arc::new(config));
        let followed = config.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                match self.read() {
                    Ok((_, digest)) if digest == current => {}
                    Ok((config, digest)) => {
                        followed.reload_from_config(Arc::new(config));
                        current = digest;
                        tracing::info!("the certificate was read again");
                    }
                    Err(error) => {
                        tracing::warn!(
                            error = format!("{error:#}"),
                            "the certificate cannot be read again; the old one stays"
                        );
                    }
                }
            }
        });
        Ok(config)
    }
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let all = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
    anyhow::ensure!(!all.is_empty(), "the file holds no certificate in PEM");
    Ok(all)
}
