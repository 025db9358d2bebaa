//! Requests for certificates: a worker makes them, a master checks and signs them.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use kubeon_wire::{CertificateAuthority, Leaf, Usage};
use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKey, SanType,
};
use time::{Duration, OffsetDateTime};
use x509_parser::pem::parse_x509_pem;

use crate::error::PkiError;
use crate::leaf::{self, BACKDATE};
use crate::renewal::{Renewer, content};

/// A new key, PEM, for a request.
///
/// # Errors
/// When the operating system gives no random numbers.
pub fn new_key() -> Result<String, PkiError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
    key.map(|key| key.serialize_pem()).map_err(|source| PkiError::Sign { what: "a key".to_owned(), source })
}

/// A request for a certificate with the content of `certificate` and the key `key`, PEM. `path` is the file of the
/// certificate, for errors.
///
/// # Errors
/// When the certificate or its key is damaged, or the certificate has content that kubeon does not issue.
pub fn request_renewal(certificate: &str, key: &str, path: &Path) -> Result<String, PkiError> {
    let refused = |reason: String| PkiError::NotRenewable { path: path.to_owned(), reason };
    let (_, pem) = parse_x509_pem(certificate.as_bytes()).map_err(|e| refused(e.to_string()))?;
    let parsed = pem.parse_x509().map_err(|e| refused(e.to_string()))?;
    let pair = KeyPair::from_pem(key).map_err(|e| refused(format!("its key: {e}")))?;
    let params = content(&parsed).map_err(|reason| refused(reason.to_owned()))?;
    let request = params.serialize_request(&pair).and_then(|request| request.pem());
    request.map_err(|e| refused(e.to_string()))
}

/// A request whose signature by its own key was verified.
pub struct CertificateRequest {
    /// The requested content. The authority and the life are not part of a request: they are placeholders.
    pub leaf: Leaf,
    key: PublicKey,
}

impl CertificateRequest {
    /// Reads a request, PEM. `name` is for errors.
    ///
    /// # Errors
    /// When it is damaged, its signature is wrong, or it asks for content that kubeon does not issue.
    pub fn parse(pem: &str, name: &str) -> Result<Self, PkiError> {
        let refused = |reason: String| PkiError::NotRenewable { path: PathBuf::from(name), reason };
        let request = CertificateSigningRequestParams::from_pem(pem).map_err(|e| refused(e.to_string()))?;
        let leaf = requested(&request).ok_or_else(|| {
            refused("it asks for more than one name, one organization, addresses and one usage".to_owned())
        })?;
        Ok(Self { leaf, key: request.public_key })
    }
}

/// The content of a request; `None` if it has content that kubeon does not issue.
fn requested(request: &CertificateSigningRequestParams) -> Option<Leaf> {
    let params = &request.params;
    let mut leaf = Leaf {
        ca: CertificateAuthority::Kubernetes,
        common_name: String::new(),
        organizations: Vec::new(),
        dns_names: Vec::new(),
        addresses: Vec::<Ipv4Addr>::new(),
        usage: match params.extended_key_usages.as_slice() {
            [ExtendedKeyUsagePurpose::ClientAuth] => Usage::Client,
            [ExtendedKeyUsagePurpose::ServerAuth] => Usage::Server,
            _ => return None,
        },
        hours: 1,
    };
    for (kind, value) in params.distinguished_name.iter() {
        let DnValue::Utf8String(text) = value else { return None };
        match kind {
            DnType::CommonName => leaf.common_name.clone_from(text),
            DnType::OrganizationName => leaf.organizations.push(text.clone()),
            _ => return None,
        }
    }
    for name in &params.subject_alt_names {
        match name {
            SanType::DnsName(name) => leaf.dns_names.push(name.as_str().to_owned()),
            SanType::IpAddress(IpAddr::V4(address)) => leaf.addresses.push(*address),
            _ => return None,
        }
    }
    matches!(params.is_ca, IsCa::NoCa | IsCa::ExplicitNoCa).then_some(leaf)
}

impl Renewer {
    /// Signs a request that the caller has checked, for a life of `seconds` from `now`, in seconds since 1970.
    ///
    /// # Errors
    /// When the authority is not valid at `now`, or the certificate cannot be made.
    pub fn sign(&self, request: &CertificateRequest, seconds: i64, now: i64) -> Result<String, PkiError> {
        let name = &request.leaf.common_name;
        let refused = |reason: String| PkiError::NotRenewable { path: PathBuf::from(name), reason };
        let now = OffsetDateTime::from_unix_timestamp(now).map_err(|e| refused(e.to_string()))?;
        let issuer = self.0.issuer(now)?;
        let mut params = leaf::content(&request.leaf)?;
        params.not_before = now - BACKDATE;
        params.not_after = (params.not_before + Duration::seconds(seconds)).min(self.0.not_after);
        let signed = params.signed_by(&request.key, issuer);
        signed.map(|certificate| certificate.pem()).map_err(|e| refused(e.to_string()))
    }
}
