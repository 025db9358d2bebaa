//! What blocking HTTPS clients share: one implementation of cryptography, the authorities that a client trusts, and attempts.

mod attempts;

use std::sync::Arc;

use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsConfigBuilder, parse_pem};

pub use attempts::{AttemptFailure, FIRST_WAIT, repeated};

/// A text without a certificate in PEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("contains no certificate in PEM")]
pub struct NoCertificate;

/// The certificates in a PEM text, as the only authorities. Other items of the text are ignored.
///
/// # Errors
/// When the text contains no certificate.
pub fn authorities(pem: &[u8]) -> Result<RootCerts, NoCertificate> {
    let certificates: Vec<Certificate<'static>> = parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(NoCertificate);
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// The certificates in a PEM text; without a text, the authorities of this machine or of `$SSL_CERT_FILE`.
///
/// # Errors
/// When a text is given that contains no certificate.
pub fn authorities_or_platform(pem: Option<&[u8]>) -> Result<RootCerts, NoCertificate> {
    pem.map_or(Ok(RootCerts::PlatformVerifier), authorities)
}

/// TLS that trusts these authorities.
pub fn tls(authorities: RootCerts) -> TlsConfigBuilder {
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(authorities)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n";

    fn count(pem: &str) -> Result<usize, NoCertificate> {
        authorities(pem.as_bytes()).map(|found| match found {
            RootCerts::Specific(certificates) => certificates.len(),
            _ => 0,
        })
    }

    #[test]
    fn only_certificates_are_authorities() {
        assert_eq!(count(&[CERTIFICATE, KEY, CERTIFICATE].concat()), Ok(2));
        assert_eq!(count(KEY), Err(NoCertificate));
        assert_eq!(count(""), Err(NoCertificate));
        assert_eq!(count("no PEM"), Err(NoCertificate));
    }

    #[test]
    fn without_a_text_the_machine_decides() {
        assert!(matches!(authorities_or_platform(None), Ok(RootCerts::PlatformVerifier)));
        assert_eq!(authorities_or_platform(Some(b"")).map(drop), Err(NoCertificate));
    }
}
