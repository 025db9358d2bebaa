//! The webhook's own authority and certificate: created, checked and renewed without I/O.
//!
//! ```text
//!   authority  10 years  ──signs──►  leaf  90 days, renewed after 60
//!      └ renewed after two thirds of its life: the new one signs the next leaf, the old one stays in the bundle, so
//!        that an API server which still trusts only the old one, or only the new one, is served
//! ```

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer as _, GeneralName, Pem, X509Certificate};

/// Life of an authority.
pub const AUTHORITY_LIFE: Duration = Duration::days(3650);
/// Life of a leaf.
pub const LEAF_LIFE: Duration = Duration::days(90);
/// Certificates start this much in the past, to tolerate wrong clocks.
const BACKDATED: Duration = Duration::minutes(10);

/// Why a certificate could not be created or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A key or certificate could not be created.
    #[error("creating {what}")]
    Make {
        /// The key or certificate.
        what: &'static str,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// A stored certificate cannot be read.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// The part.
        what: &'static str,
        /// The cause; it never contains a key.
        why: String,
    },
}

impl CertificateError {
    /// The error category for labels.
    #[must_use]
    pub fn category(&self) -> &'static str {
        match self {
            Self::Make { .. } => "certificate-make",
            Self::Unreadable { .. } => "certificate-unreadable",
        }
    }
}

/// Authority and leaf with their keys, all PEM. `Debug` shows no key.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookCertificates {
    /// The authorities that an API server trusts: the one that signs, then earlier ones.
    pub authorities: String,
    /// Key of the first authority.
    pub authority_key: String,
    /// The certificate of the webhook.
    pub leaf: String,
    /// Key of the leaf.
    pub leaf_key: String,
}

impl std::fmt::Debug for WebhookCertificates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookCertificates")
            .field("authorities", &self.authorities)
            .field("leaf", &self.leaf)
            .finish()
    }
}

/// Lifetime and names of a certificate.
struct CertificateFacts {
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
    names: Vec<String>,
}

impl CertificateFacts {
    /// The time of renewal: two thirds of its lifetime.
    fn due(&self) -> OffsetDateTime {
        self.not_before + (self.not_after - self.not_before) * 2 / 3
    }
}

impl WebhookCertificates {
    /// An authority and a leaf for these DNS names or addresses.
    ///
    /// # Errors
    /// When a key or certificate cannot be created.
    pub fn make(names: &[String], now: OffsetDateTime) -> Result<Self, CertificateError> {
        let (authority, authority_key) = authority(now)?;
        let (leaf, leaf_key) = leaf(&authority, &authority_key, names, now)?;
        Ok(Self { authorities: authority, authority_key, leaf, leaf_key })
    }

    /// When [`Self::renewed`] next renews a part.
    ///
    /// # Errors
    /// When a stored certificate cannot be read.
    pub fn due(&self) -> Result<OffsetDateTime, CertificateError> {
        Ok(self.authority()?.due().min(facts("the leaf", &self.leaf)?.due()))
    }

    /// The renewed certificates; `None` when none is due. It renews one part at a time, the authority first.
    ///
    /// # Errors
    /// When a stored certificate cannot be read, or the new part cannot be created.
    pub fn renewed(&self, names: &[String], now: OffsetDateTime) -> Result<Option<Self>, CertificateError> {
        let (signer, leaf_facts) = (self.authority()?, facts("the leaf", &self.leaf)?);
        if now >= signer.due() {
            let (new, authority_key) = authority(now)?;
            let old_authority = if now < signer.not_after { first_pem(&self.authorities) } else { "" };
            // The leaf stays until it is due, unless its authority has expired.
            let (leaf, leaf_key) = if old_authority.is_empty() {
                leaf(&new, &authority_key, names, now)?
            } else {
                (self.leaf.clone(), self.leaf_key.clone())
            };
            return Ok(Some(Self {
                authorities: format!("{new}{old_authority}"),
                authority_key,
                leaf,
                leaf_key,
            }));
        }
        if now < leaf_facts.due() && names.iter().all(|name| leaf_facts.names.contains(name)) {
            return Ok(None);
        }
        let (leaf, leaf_key) = leaf(first_pem(&self.authorities), &self.authority_key, names, now)?;
        Ok(Some(Self { leaf, leaf_key, ..self.clone() }))
    }

    fn authority(&self) -> Result<CertificateFacts, CertificateError> {
        facts("the authority", first_pem(&self.authorities))
    }
}

const END: &str = "-----END CERTIFICATE-----\n";

fn first_pem(bundle: &str) -> &str {
    bundle.find(END).and_then(|at| bundle.get(..at + END.len())).unwrap_or(bundle)
}

fn facts(what: &'static str, pem: &str) -> Result<CertificateFacts, CertificateError> {
    let unreadable = |why: String| CertificateError::Unreadable { what, why };
    let pem = Pem::iter_from_buffer(pem.as_bytes())
        .next()
        .ok_or_else(|| unreadable("there is no certificate".to_owned()))?
        .map_err(|error| unreadable(error.to_string()))?;
    let (_, certificate) =
        X509Certificate::from_der(&pem.contents).map_err(|error| unreadable(error.to_string()))?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let names = alternatives.map(|names| names.value.general_names.iter().filter_map(name).collect());
    let validity = certificate.validity();
    Ok(CertificateFacts {
        not_before: validity.not_before.to_datetime(),
        not_after: validity.not_after.to_datetime(),
        names: names.unwrap_or_default(),
    })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            <[u8; 4]>::try_from(*octets).ok().map(|octets| std::net::Ipv4Addr::from(octets).to_string())
        }
        _ => None,
    }
}

fn authority(now: OffsetDateTime) -> Result<(String, String), CertificateError> {
    let failed = |source| CertificateError::Make { what: "the webhook's authority", source };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let mut params = params(now, AUTHORITY_LIFE);
    // Each authority has its own name, so that a bundle can be searched by issuer.
    params.distinguished_name.push(DnType::CommonName, format!("kubeon-webhook-ca-{}", now.unix_timestamp()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem().replace("\r\n", "\n"), key.serialize_pem()))
}

fn leaf(
    authority: &str,
    authority_key: &str,
    names: &[String],
    now: OffsetDateTime,
) -> Result<(String, String), CertificateError> {
    let failed = |source| CertificateError::Make { what: "the webhook's certificate", source };
    let issuer = Issuer::from_ca_cert_pem(authority, KeyPair::from_pem(authority_key).map_err(failed)?)
        .map_err(failed)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let alternatives = CertificateParams::new(names.to_vec()).map_err(failed)?.subject_alt_names;
    let mut params = params(now, LEAF_LIFE);
    params.distinguished_name.push(DnType::CommonName, "kubeon-webhook");
    params.subject_alt_names = alternatives;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok((certificate.pem().replace("\r\n", "\n"), key.serialize_pem()))
}

fn params(now: OffsetDateTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let mut serial: [u8; 16] = rand::random();
    // The number is positive and always has 16 bytes.
    serial[0] = serial[0] & 0x3f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = now - BACKDATED;
    params.not_after = now + life;
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["kubeon-webhook.kubeon-system.svc".to_owned(), "127.0.0.1".to_owned()]
    }

    #[test]
    fn renews_the_leaf_after_two_thirds_of_its_life_and_not_before() {
        let now = OffsetDateTime::now_utc();
        let initial = WebhookCertificates::make(&names(), now).unwrap();
        assert_eq!(initial.renewed(&names(), now + Duration::days(59)).unwrap(), None);
        let due = initial.due().unwrap();
        assert!(due > now + Duration::days(59) && due < now + Duration::days(61), "{due}");
        let renewed = initial.renewed(&names(), now + Duration::days(61)).unwrap().unwrap();
        assert_eq!(renewed.authorities, initial.authorities);
        assert_ne!(renewed.leaf, initial.leaf);
        assert_ne!(renewed.leaf_key, initial.leaf_key);
        assert_eq!(renewed.renewed(&names(), now + Duration::days(61)).unwrap(), None);
    }

    #[test]
    fn renews_a_leaf_that_lacks_a_name() {
        let now = OffsetDateTime::now_utc();
        let initial = WebhookCertificates::make(&names()[..1], now).unwrap();
        assert!(initial.renewed(&names(), now).unwrap().is_some());
    }

    /// Clients that trust the bundle from before the renewal and clients that trust the one from after it accept the leaf.
    #[test]
    fn clients_with_the_old_or_the_new_bundle_trust_every_renewed_leaf() {
        let now = OffsetDateTime::now_utc();
        let initial = WebhookCertificates::make(&names(), now).unwrap();
        let later = now + Duration::days(2500);
        let first = initial.renewed(&names(), later).unwrap().unwrap();
        assert_eq!(first.leaf, initial.leaf, "signed by the authority that all clients trust");
        assert!(
            first.authorities.ends_with(&initial.authorities) && first.authorities != initial.authorities
        );
        let second = first.renewed(&names(), later).unwrap().unwrap();
        assert_eq!(second.authorities, first.authorities);
        assert_ne!(second.leaf, initial.leaf, "the old leaf has expired");
    }

    #[test]
    fn replaces_an_expired_authority() {
        let now = OffsetDateTime::now_utc();
        let initial = WebhookCertificates::make(&names(), now).unwrap();
        let renewed = initial.renewed(&names(), now + AUTHORITY_LIFE + Duration::days(1)).unwrap().unwrap();
        assert!(!renewed.authorities.contains(&initial.authorities));
        assert_ne!(renewed.leaf, initial.leaf);
    }

    #[test]
    fn an_unreadable_part_is_named_and_keys_are_hidden() {
        let now = OffsetDateTime::now_utc();
        let initial = WebhookCertificates::make(&names(), now).unwrap();
        let damaged = WebhookCertificates { leaf: "x".into(), ..initial.clone() };
        assert_eq!(damaged.due().unwrap_err().category(), "certificate-unreadable");
        assert!(!format!("{initial:?}").contains("PRIVATE"));
    }
}
