//! Leaf certificates, by which programs authenticate.

use std::net::IpAddr;

use kubeon_wire::{Leaf, Usage, renewal_due};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::authority::Authority;
use crate::error::PkiError;
use crate::serial::random_serial;

/// How long before its issue a leaf begins to be valid, for clocks that are behind.
pub(crate) const BACKDATE: Duration = Duration::minutes(5);

/// The longest life of a leaf that hosts renew. The identity of a host lives longer and is not renewed.
const RENEWED_LIFE: Duration = Duration::days(366);

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Makes a key and signs its certificate, which never outlives its authority.
/// `longest` limits the life of a leaf that hosts renew.
pub(crate) fn issue(
    leaf: &Leaf,
    authority: &Authority,
    now: OffsetDateTime,
    longest: Option<Duration>,
) -> Result<Issued, PkiError> {
    let issuer = authority.issuer(now)?;
    let sign = |source| PkiError::Sign { what: leaf.common_name.clone(), source };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(sign)?;
    let mut params = content(leaf)?;
    let life = Duration::hours(i64::from(leaf.hours.max(1)));
    let life = longest.filter(|_| life <= RENEWED_LIFE).map_or(life, |longest| longest.min(life));
    params.not_before = now - BACKDATE;
    params.not_after = (now + life).min(authority.not_after);
    let certificate = params.signed_by(&key, issuer).map_err(sign)?;
    Ok(Issued { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The subject, names and usages of a leaf, without its dates.
pub(crate) fn content(leaf: &Leaf) -> Result<CertificateParams, PkiError> {
    let sign = |source| PkiError::Sign { what: leaf.common_name.clone(), source };
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    match leaf.organizations.as_slice() {
        [] => {}
        [group] => params.distinguished_name.push(DnType::OrganizationName, group.clone()),
        // The certificate library stores one value per attribute and would drop the others.
        _ => return Err(PkiError::ManyOrganizations(leaf.common_name.clone())),
    }
    params.distinguished_name.push(DnType::CommonName, leaf.common_name.clone());
    params.subject_alt_names = names(leaf).map_err(sign)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = purposes(leaf.usage);
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(random_serial());
    Ok(params)
}

/// Whether a certificate must be renewed: it is past two thirds of its lifetime, or cannot be parsed.
#[must_use]
pub fn is_due(pem: &str) -> bool {
    is_due_at(pem, OffsetDateTime::now_utc())
}

pub(crate) fn is_due_at(pem: &str, now: OffsetDateTime) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(pem.as_bytes()) else { return true };
    let Ok(certificate) = pem.parse_x509() else { return true };
    let life = certificate.validity();
    now.unix_timestamp() >= renewal_due(life.not_before.timestamp(), life.not_after.timestamp())
}

fn names(leaf: &Leaf) -> Result<Vec<SanType>, rcgen::Error> {
    let dns = leaf.dns_names.iter().map(|name| Ok(SanType::DnsName(name.clone().try_into()?)));
    let addresses = leaf.addresses.iter().map(|address| Ok(SanType::IpAddress(IpAddr::V4(*address))));
    dns.chain(addresses).collect()
}

fn purposes(usage: Usage) -> Vec<ExtendedKeyUsagePurpose> {
    match usage {
        Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
        Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
        Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
    }
}
