//! Renews leaf certificates on a host that has the keys of their authorities.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use time::{Duration, OffsetDateTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::parse_x509_pem;

use crate::authority::{Authority, first_length};
use crate::error::PkiError;
use crate::leaf::BACKDATE;
use crate::private_key;
use crate::serial::random_serial;

/// An authority that renews leaves.
pub struct Renewer(pub(crate) Authority);

impl Renewer {
    /// Reads the certificate and the key of an authority, PEM. `path` is the file of the certificate, for errors.
    ///
    /// # Errors
    /// When one of them is damaged, or they do not belong together.
    pub fn new(certificate: &str, key: &str, path: &Path) -> Result<Self, PkiError> {
        Authority::parse(&format!("{key}{certificate}"), path.to_owned()).map(Self)
    }

    /// Whether the authority issued the certificate: the name of its issuer is the name of the authority.
    #[must_use]
    pub fn has_issued(&self, certificate: &str) -> bool {
        let Ok((_, pem)) = parse_x509_pem(certificate.as_bytes()) else { return false };
        pem.parse_x509().is_ok_and(|parsed| parsed.issuer().as_raw() == self.0.subject)
    }

    /// A certificate with the content, the key and the length of life of `certificate`, which begins at `now`, in
    /// seconds since 1970, followed by the further certificates of that text. It begins five minutes earlier, for clocks that
    /// are behind, and never outlives the authority. `path` is the file of the certificate, for errors.
    ///
    /// # Errors
    /// When the certificate or its key is damaged, the certificate has content that kubeon does not issue, or the
    /// authority is not valid at `now`.
    pub fn renew(&self, certificate: &str, key: &str, path: &Path, now: i64) -> Result<String, PkiError> {
        let refused = |reason: String| PkiError::NotRenewable { path: path.to_owned(), reason };
        if !belong_together(certificate, key) {
            return Err(refused("key and certificate do not belong together".to_owned()));
        }
        let pair = private_key::read(key).map_err(|e| refused(format!("its key: {e}")))?;
        let renewed = self.reissue(certificate, &pair, path, now)?;
        Ok(renewed + &certificate[first_length(certificate)..])
    }

    /// The same as [`Self::renew`] with a new key: the certificate and the key.
    ///
    /// # Errors
    /// As for [`Self::renew`].
    pub fn replace(&self, certificate: &str, path: &Path, now: i64) -> Result<(String, String), PkiError> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map_err(|source| PkiError::Sign { what: path.display().to_string(), source })?;
        Ok((self.reissue(certificate, &pair, path, now)?, pair.serialize_pem()))
    }

    fn reissue(&self, certificate: &str, key: &KeyPair, path: &Path, now: i64) -> Result<String, PkiError> {
        let refused = |reason: String| PkiError::NotRenewable { path: path.to_owned(), reason };
        let now = OffsetDateTime::from_unix_timestamp(now).map_err(|e| refused(e.to_string()))?;
        let issuer = self.0.issuer(now)?;
        let (_, pem) = parse_x509_pem(certificate.as_bytes()).map_err(|e| refused(e.to_string()))?;
        let parsed = pem.parse_x509().map_err(|e| refused(e.to_string()))?;
        let mut params = content(&parsed).map_err(|reason| refused(reason.to_owned()))?;
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(random_serial());
        let validity = parsed.validity();
        let life = validity.not_after.timestamp() - validity.not_before.timestamp();
        params.not_before = now - BACKDATE;
        params.not_after = (params.not_before + Duration::seconds(life)).min(self.0.not_after);
        let signed = params.signed_by(key, issuer);
        signed.map(|renewed| renewed.pem()).map_err(|e| refused(e.to_string()))
    }
}

/// Whether a certificate and a key, PEM, belong together.
#[must_use]
pub fn belong_together(certificate: &str, key: &str) -> bool {
    let Ok((_, pem)) = parse_x509_pem(certificate.as_bytes()) else { return false };
    let (Ok(parsed), Ok(pair)) = (pem.parse_x509(), private_key::read(key)) else { return false };
    parsed.public_key().subject_public_key.data.as_ref() == pair.public_key_raw()
}

/// The subject, names and usages of a leaf, or the reason why they cannot be repeated.
pub(crate) fn content(leaf: &X509Certificate<'_>) -> Result<CertificateParams, &'static str> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for attribute in leaf.subject().iter_attributes() {
        let kind = match attribute.attr_type() {
            oid if *oid == OID_X509_COMMON_NAME => DnType::CommonName,
            oid if *oid == OID_X509_ORGANIZATION_NAME => DnType::OrganizationName,
            _ => return Err("its subject has an attribute that kubeon does not issue"),
        };
        if params.distinguished_name.get(&kind).is_some() {
            return Err("its subject has an attribute twice");
        }
        params.distinguished_name.push(kind, attribute.as_str().map_err(|_| "its subject is not text")?);
    }
    let names = leaf.subject_alternative_name().map_err(|_| "its names cannot be read")?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        params.subject_alt_names.push(alternative_name(name).ok_or("it has a name of an unknown kind")?);
    }
    let usage = leaf.extended_key_usage().map_err(|_| "its usage cannot be read")?;
    let usage = usage.ok_or("it has no usage")?.value;
    if usage.server_auth {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    if usage.client_auth {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    if leaf.is_ca() || params.extended_key_usages.is_empty() {
        return Err("it is not the certificate of a server or a client");
    }
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

fn alternative_name(name: &GeneralName<'_>) -> Option<SanType> {
    match name {
        GeneralName::DNSName(name) => Some(SanType::DnsName((*name).try_into().ok()?)),
        GeneralName::IPAddress(bytes) => {
            let bytes: [u8; 4] = (*bytes).try_into().ok()?;
            Some(SanType::IpAddress(IpAddr::V4(Ipv4Addr::from(bytes))))
        }
        _ => None,
    }
}
