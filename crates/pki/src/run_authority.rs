//! The authority of one run: it lets the hosts of the run know each other, and its key never leaves memory.

use std::net::{IpAddr, Ipv4Addr};

use kubeon_wire::ForwardingIdentity;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::error::PkiError;
use crate::serial::random_serial;

/// Before and after now: the clocks of hosts differ, and a run ends within hours.
const LIFE: Duration = Duration::days(1);
const NAME: &str = "kubeon-run";

/// An authority in memory.
pub struct RunAuthority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl RunAuthority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// When the operating system gives no random numbers.
    pub fn new() -> Result<Self, PkiError> {
        let sign = |source| PkiError::Sign { what: NAME.to_owned(), source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(sign)?;
        let mut params = params(NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).map_err(sign)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// An identity for an address, with a key of its own.
    ///
    /// # Errors
    /// When the operating system gives no random numbers.
    pub fn issue(&self, address: Ipv4Addr) -> Result<ForwardingIdentity, PkiError> {
        let sign = |source| PkiError::Sign { what: address.to_string(), source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(sign)?;
        let mut params = params(&address.to_string());
        params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(address))];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(sign)?.pem();
        let authority = self.certificate.clone();
        Ok(ForwardingIdentity { address, authority, certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - LIFE, now + LIFE);
    params.serial_number = Some(random_serial());
    params
}
