//! A certificate authority: one key, one self-signed certificate, one file.

use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::KeyNumber;
use kubeon_api::kubernetes_cluster::defaults::MAX_CA_YEARS;
use kubeon_wire::CertificateAuthority;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256,
};
use time::{Duration, OffsetDateTime};

use crate::error::{KeyFileError, PkiError};
use crate::keyfile;
use crate::private_key;
use crate::serial::random_serial;

/// The authorities of one cluster.
pub(crate) struct Authorities {
    kubernetes: Authority,
    etcd: Authority,
    front_proxy: Authority,
    kubelet_serving: Authority,
}

impl Authorities {
    /// Calls `authority` for each authority.
    pub(crate) fn try_new(
        authority: impl Fn(CertificateAuthority) -> Result<Authority, PkiError>,
    ) -> Result<Self, PkiError> {
        Ok(Self {
            kubernetes: authority(CertificateAuthority::Kubernetes)?,
            etcd: authority(CertificateAuthority::Etcd)?,
            front_proxy: authority(CertificateAuthority::FrontProxy)?,
            kubelet_serving: authority(CertificateAuthority::KubeletServing)?,
        })
    }

    /// The authority `ca`.
    pub(crate) fn get(&self, ca: CertificateAuthority) -> &Authority {
        match ca {
            CertificateAuthority::Kubernetes => &self.kubernetes,
            CertificateAuthority::Etcd => &self.etcd,
            CertificateAuthority::FrontProxy => &self.front_proxy,
            CertificateAuthority::KubeletServing => &self.kubelet_serving,
        }
    }
}

pub(crate) struct Authority {
    /// The certificate, PEM.
    pub(crate) certificate: String,
    /// The certificate that the authority before it signed for its key, PEM; empty for the first authority. Servers send
    /// it, so that a program that read only the old authority trusts them too.
    pub(crate) cross_certificate: String,
    /// The private key, PEM, as its file has it.
    pub(crate) key: String,
    /// When the certificate begins.
    pub(crate) not_before: OffsetDateTime,
    /// When the certificate ends.
    pub(crate) not_after: OffsetDateTime,
    /// The name in its certificate, DER.
    pub(crate) subject: Vec<u8>,
    pub(crate) path: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the file of the authority, or makes it with a lifetime of `years`. `before` is the authority that it replaces.
    pub(crate) fn load_or_create(
        folder: &Path,
        ca: CertificateAuthority,
        number: KeyNumber,
        years: u32,
        before: Option<&Self>,
    ) -> Result<Self, PkiError> {
        let path = file(folder, ca, number);
        let text = keyfile::read_or_create(&path, || generate(ca, years, before).map_err(KeyFileError::Sign))
            .map_err(|error| error.at(&path))?;
        Self::parse(&text, path)
    }

    /// Reads the file of the authority with `read`.
    pub(crate) fn load(
        folder: &Path,
        ca: CertificateAuthority,
        number: KeyNumber,
        read: fn(&Path) -> io::Result<String>,
    ) -> Result<Self, PkiError> {
        let path = file(folder, ca, number);
        let text = read(&path).map_err(|error| KeyFileError::Io(error).at(&path))?;
        Self::parse(&text, path)
    }

    /// Reads an authority from its key, its certificate and further certificates in one text, in this order. `path` is for
    /// errors.
    pub(crate) fn parse(text: &str, path: PathBuf) -> Result<Self, PkiError> {
        let unreadable = |reason: String| PkiError::Unreadable { path: path.clone(), reason };
        let start = text.find("-----BEGIN CERTIFICATE-----");
        let (key, certificate) =
            text.split_at(start.ok_or_else(|| unreadable("it contains no certificate".into()))?);
        let pair = private_key::read(key).map_err(|e| unreadable(format!("its key: {e}")))?;
        let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())
            .map_err(|e| unreadable(format!("its certificate: {e}")))?;
        let parsed = pem.parse_x509().map_err(|e| unreadable(format!("its certificate: {e}")))?;
        if parsed.public_key().subject_public_key.data.as_ref() != pair.public_key_raw() {
            return Err(unreadable("key and certificate do not belong together".into()));
        }
        let not_before = parsed.validity().not_before.to_datetime();
        let not_after = parsed.validity().not_after.to_datetime();
        let subject = parsed.subject().as_raw().to_vec();
        let issuer = Issuer::from_ca_cert_pem(certificate, pair)
            .map_err(|e| unreadable(format!("its certificate: {e}")))?;
        let (certificate, others) = certificate.split_at(first_length(certificate));
        let (certificate, key) = (certificate.to_owned(), key.to_owned());
        let cross_certificate = others.to_owned();
        Ok(Self { certificate, cross_certificate, key, not_before, not_after, subject, path, issuer })
    }

    /// The issuer that signs leaves.
    pub(crate) fn issuer(&self, now: OffsetDateTime) -> Result<&Issuer<'static, KeyPair>, PkiError> {
        if now < self.not_before {
            let (path, begins) = (self.path.clone(), self.not_before.date().to_string());
            return Err(PkiError::ClockBehind { path, begins });
        }
        if now >= self.not_after {
            return Err(PkiError::Expired {
                path: self.path.clone(),
                since: self.not_after.date().to_string(),
            });
        }
        Ok(&self.issuer)
    }
}

/// The length of the first certificate in a PEM text, with the end of its last line.
pub(crate) fn first_length(text: &str) -> usize {
    const END: &str = "-----END CERTIFICATE-----";
    let Some(end) = text.find(END).map(|at| at + END.len()) else { return text.len() };
    end + text[end..].len() - text[end..].trim_start().len()
}

/// The file of an authority: `ca-<authority>.pem`, or `ca-<authority>-<number>.pem` for later keys.
pub(crate) fn file(folder: &Path, ca: CertificateAuthority, number: KeyNumber) -> PathBuf {
    folder.join(numbered(&format!("ca-{ca}"), number))
}

/// The name of a file of keys.
pub(crate) fn numbered(name: &str, number: KeyNumber) -> String {
    if number == KeyNumber::FIRST { format!("{name}.pem") } else { format!("{name}-{number}.pem") }
}

/// Key, self-signed certificate and the certificate by the authority `before` in one text.
pub(crate) fn generate(
    ca: CertificateAuthority,
    years: u32,
    before: Option<&Authority>,
) -> Result<String, rcgen::Error> {
    let now = OffsetDateTime::now_utc();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("kubeon-{ca}-ca"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params.serial_number = Some(random_serial());
    params.not_before = now - Duration::minutes(5);
    params.not_after = now + Duration::days(365) * years.clamp(1, MAX_CA_YEARS);
    let certificate = params.self_signed(&key)?;
    let mut text = format!("{}{}", key.serialize_pem(), certificate.pem());
    if let Some(before) = before {
        params.serial_number = Some(random_serial());
        params.not_after = params.not_after.min(before.not_after);
        params.use_authority_key_identifier_extension = true;
        text.push_str(&params.signed_by(&key, &before.issuer)?.pem());
    }
    Ok(text)
}
