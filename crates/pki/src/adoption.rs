//! The keys of a cluster as its masters hold them, for a control machine that lost its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kubeon_api::KeyNumber;
use kubeon_wire::CertificateAuthority;

use crate::authority::{self, Authority, first_length};
use crate::encryption;
use crate::error::PkiError;
use crate::pki::SERVICE_ACCOUNT;
use crate::private_key;

/// The first line of a certificate.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// The texts of the key files on a master.
pub struct MasterKeys {
    /// The certificate and the key of every authority, PEM.
    pub authorities: BTreeMap<CertificateAuthority, MasterAuthority>,
    /// The key that signs tokens of service accounts, PEM.
    pub service_account_key: String,
    /// The public keys of service accounts, PEM: first that of the key.
    pub service_account_public_key: String,
    /// The `EncryptionConfiguration` of the API server; `None` if it stores Secrets as they are.
    pub encryption_configuration: Option<String>,
}

/// An authority on a master.
pub struct MasterAuthority {
    /// Its certificate, PEM. Further ones may follow.
    pub certificate: String,
    /// Its key, PEM.
    pub key: String,
}

/// The keys of a master cannot be used. The message contains no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct MasterKeyError {
    /// Which key.
    pub what: String,
    /// What is wrong with it.
    pub reason: String,
}

impl MasterKeyError {
    fn new(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { what: what.into(), reason: reason.into() }
    }
}

impl MasterKeys {
    /// Checks that every certificate belongs to its key, and returns the files for the folder of the keys: name and content.
    /// `number` is that of the keys.
    ///
    /// # Errors
    /// When a key is missing or damaged, or certificate and key do not belong together.
    pub fn files(&self, number: KeyNumber) -> Result<BTreeMap<String, String>, MasterKeyError> {
        let mut files = BTreeMap::new();
        for ca in CertificateAuthority::ALL {
            let name = authority::numbered(&format!("ca-{ca}"), number);
            files.insert(name, self.authority(ca)?);
        }
        files.insert(authority::numbered(SERVICE_ACCOUNT, number), self.service_account()?);
        if let Some(configuration) = &self.encryption_configuration {
            let keys = encryption::lines(configuration, number)
                .map_err(|reason| MasterKeyError::new("the key for Secrets in etcd", reason))?;
            files.insert(encryption::FILE.to_owned(), keys);
        }
        Ok(files)
    }

    /// Adds the authorities that a cluster of kubeadm does not have, with a lifetime of `ca_years`.
    ///
    /// # Errors
    /// When an authority cannot be made.
    pub fn add_missing(&mut self, ca_years: u32) -> Result<(), MasterKeyError> {
        for ca in CertificateAuthority::ALL {
            if self.authorities.contains_key(&ca) {
                continue;
            }
            let made = authority::generate(ca, ca_years, None)
                .map_err(|error| MasterKeyError::new(format!("authority {ca}"), error.to_string()))?;
            let begin = made.find(CERTIFICATE).unwrap_or(made.len());
            let (key, certificate) = (made[..begin].to_owned(), made[begin..].to_owned());
            self.authorities.insert(ca, MasterAuthority { certificate, key });
        }
        Ok(())
    }

    /// The key and the first certificate of an authority, as its file holds them.
    fn authority(&self, ca: CertificateAuthority) -> Result<String, MasterKeyError> {
        let what = || format!("authority {ca}");
        let MasterAuthority { certificate, key } =
            self.authorities.get(&ca).ok_or_else(|| MasterKeyError::new(what(), "it is missing"))?;
        let text = format!("{}\n{}", key.trim_end(), &certificate[..first_length(certificate)]);
        Authority::parse(&text, PathBuf::new()).map_err(|error| match error {
            PkiError::Unreadable { reason, .. } => MasterKeyError::new(what(), reason),
            other => MasterKeyError::new(what(), other.to_string()),
        })?;
        Ok(text)
    }

    fn service_account(&self) -> Result<String, MasterKeyError> {
        let refused = |reason: String| MasterKeyError::new("the service account key", reason);
        let pair = private_key::read(&self.service_account_key).map_err(|e| refused(e.to_string()))?;
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        if !plain(&self.service_account_public_key).starts_with(&plain(&pair.public_key_pem())) {
            return Err(refused("key and public key do not belong together".to_owned()));
        }
        Ok(self.service_account_key.clone())
    }
}

#[cfg(test)]
mod tests {
    use kubeon_api::ClusterKeys;
    use kubeon_ports::Secrets as _;
    use kubeon_wire::SecretRef;

    use super::*;
    use crate::ClusterPki;
    use crate::private_key::tests::key_of_kubeadm;

    /// What the plan writes on a master.
    fn on_master(pki: &ClusterPki) -> MasterKeys {
        let text = |secret: SecretRef| pki.resolve(&secret).unwrap();
        let authority = |ca| {
            let certificate = text(SecretRef::CaCertificate { ca });
            (ca, MasterAuthority { certificate, key: text(SecretRef::CaKey { ca }) })
        };
        MasterKeys {
            authorities: CertificateAuthority::ALL.into_iter().map(authority).collect(),
            service_account_key: text(SecretRef::ServiceAccountKey),
            service_account_public_key: text(SecretRef::ServiceAccountPublicKey),
            encryption_configuration: Some(text(SecretRef::EncryptionConfiguration { encrypts: true })),
        }
    }

    fn new_keys() -> (tempfile::TempDir, MasterKeys) {
        let folder = tempfile::tempdir().unwrap();
        let pki = ClusterPki::load_or_create(folder.path(), 1).unwrap();
        (folder, on_master(&pki))
    }

    fn written(files: &BTreeMap<String, String>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn the_keys_of_a_master_are_those_of_the_control_machine() {
        let (original, keys) = new_keys();
        let files = keys.files(KeyNumber::FIRST).unwrap();
        for (name, text) in &files {
            assert_eq!(*text, std::fs::read_to_string(original.path().join(name)).unwrap(), "{name}");
        }
        assert_eq!(files.len(), std::fs::read_dir(original.path()).unwrap().count());
    }

    #[test]
    fn the_keys_after_a_rotation_are_read_under_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let mut keys = ClusterKeys::default();
        drop(ClusterPki::load_or_create(folder.path(), 1).unwrap());
        ClusterPki::make_next(folder.path(), keys, 1).unwrap();
        while keys.newest() == KeyNumber::FIRST || keys.rotation().is_some() {
            keys = keys.advanced();
        }
        ClusterPki::remove_old(folder.path(), keys).unwrap();
        let original = on_master(&ClusterPki::load(folder.path(), keys, true).unwrap());
        let files = original.files(keys.newest()).unwrap();
        assert!(files.contains_key("ca-etcd-2.pem") && files.contains_key("sa-2.pem"), "{:?}", files.keys());
        let copy = written(&files);
        let copy =
            on_master(&ClusterPki::load(copy.path(), ClusterKeys::settled(keys.newest()), true).unwrap());
        assert_eq!(copy.encryption_configuration, original.encryption_configuration);
        let refused = original.files(KeyNumber::FIRST).unwrap_err();
        assert_eq!(refused.what, "the key for Secrets in etcd");
    }

    /// The certificate of an authority with this key, as kubeadm makes it.
    fn certificate_of(key: &str) -> String {
        let pair = private_key::read(key).unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![
            rcgen::KeyUsagePurpose::DigitalSignature,
            rcgen::KeyUsagePurpose::KeyEncipherment,
            rcgen::KeyUsagePurpose::KeyCertSign,
        ];
        params.not_before = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
        params.not_after = params.not_before + time::Duration::days(3650);
        params.self_signed(&pair).unwrap().pem()
    }

    #[test]
    fn the_keys_of_kubeadm_sign_and_the_missing_authority_is_made() {
        for algorithm in ["RSA", "EC"] {
            let key = key_of_kubeadm(algorithm);
            let of = [
                CertificateAuthority::Kubernetes,
                CertificateAuthority::Etcd,
                CertificateAuthority::FrontProxy,
            ];
            let authority =
                |ca| (ca, MasterAuthority { certificate: certificate_of(&key), key: key.clone() });
            let mut keys = MasterKeys {
                authorities: of.into_iter().map(authority).collect(),
                service_account_public_key: private_key::read(&key).unwrap().public_key_pem(),
                service_account_key: key.clone(),
                encryption_configuration: None,
            };
            assert_eq!(keys.files(KeyNumber::FIRST).unwrap_err().what, "authority kubelet-serving");
            keys.add_missing(10).unwrap();
            let folder = written(&keys.files(KeyNumber::FIRST).unwrap());
            ClusterPki::check(folder.path(), ClusterKeys::default(), false).unwrap();
            let pki = ClusterPki::load(folder.path(), ClusterKeys::default(), false).unwrap();
            let leaf = kubeon_wire::Leaf {
                ca: CertificateAuthority::Kubernetes,
                common_name: "kube-apiserver".to_owned(),
                organizations: Vec::new(),
                dns_names: vec!["kubernetes".to_owned()],
                addresses: Vec::new(),
                usage: kubeon_wire::Usage::Server,
                hours: 1,
            };
            let text = |secret: SecretRef| pki.resolve(&secret).unwrap();
            let issued = text(SecretRef::LeafCertificate(leaf));
            let (_, issued) = x509_parser::pem::parse_x509_pem(issued.as_bytes()).unwrap();
            let authority = text(SecretRef::CaCertificate { ca: CertificateAuthority::Kubernetes });
            let (_, authority) = x509_parser::pem::parse_x509_pem(authority.as_bytes()).unwrap();
            let (issued, authority) = (issued.parse_x509().unwrap(), authority.parse_x509().unwrap());
            assert_eq!(issued.issuer().as_raw(), authority.subject().as_raw(), "{algorithm}");
            assert_eq!(text(SecretRef::CaKey { ca: CertificateAuthority::Etcd }).trim(), key.trim());
            let public = text(SecretRef::ServiceAccountPublicKey);
            assert_eq!(public, keys.service_account_public_key, "tokens stay valid");
        }
    }

    #[test]
    fn keys_that_do_not_belong_together_are_refused() {
        let (_folder, other) = new_keys();
        let etcd = CertificateAuthority::Etcd;
        let refused = |change: &dyn Fn(&mut MasterKeys)| {
            let (_folder, mut keys) = new_keys();
            change(&mut keys);
            keys.files(KeyNumber::FIRST).unwrap_err().to_string()
        };
        let swapped = refused(&|keys| {
            keys.authorities.get_mut(&etcd).unwrap().key.clone_from(&other.authorities[&etcd].key);
        });
        assert_eq!(swapped, "authority etcd: key and certificate do not belong together");
        let missing = refused(&|keys| drop(keys.authorities.remove(&etcd)));
        assert_eq!(missing, "authority etcd: it is missing");
        let tokens = refused(&|keys| keys.service_account_key.clone_from(&other.service_account_key));
        assert!(tokens.starts_with("the service account key: "), "{tokens}");
        for damaged in ["", "{}", "not JSON"] {
            let secrets = refused(&|keys| keys.encryption_configuration = Some(damaged.to_owned()));
            assert!(secrets.starts_with("the key for Secrets in etcd: "), "{secrets}");
        }
    }
}
