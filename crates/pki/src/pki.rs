//! All keys of a cluster, and the port through which `apply` reads them.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_ports::{SecretError, Secrets};
use kubeon_wire::{CertificateAuthority, Leaf, SecretRef};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use time::{Duration, OffsetDateTime};

use crate::authority::{self, Authorities, Authority};
use crate::encryption::{self, EncryptionKeys};
use crate::error::{KeyFileError, PkiError};
use crate::keyfile;
use crate::leaf::{self, Issued};

/// The file of the service account key.
const SERVICE_ACCOUNT: &str = "sa.pem";

/// The authorities, the service account key and the key for Secrets of one cluster, and the leaves created so far.
pub struct ClusterPki {
    authorities: Authorities,
    service_account: KeyPair,
    /// `None` for a cluster that was made without encryption of Secrets.
    encryption: Option<EncryptionKeys>,
    leaves: Mutex<HashMap<Leaf, Issued>>,
    longest_life: Option<Duration>,
}

impl ClusterPki {
    /// Reads the keys in `folder` and makes those that are missing: the folder with mode 0700, the files with mode 0600.
    /// Each file appears complete or not at all, so two processes may call this at once, also after a crash. `ca_years` is
    /// the lifetime of new authorities, 1 to 100.
    ///
    /// # Errors
    /// When a file cannot be read or written, or is damaged.
    pub fn load_or_create(folder: &Path, ca_years: u32) -> Result<Self, PkiError> {
        own(folder)?;
        let authorities = Authorities::try_new(|ca| Authority::load_or_create(folder, ca, ca_years))?;
        let path = folder.join(SERVICE_ACCOUNT);
        let text = keyfile::read_or_create(&path, || {
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
                .map(|key| key.serialize_pem())
                .map_err(KeyFileError::Sign)
        })
        .map_err(|error| error.at(&path))?;
        let encryption = EncryptionKeys::load_or_create(folder)?;
        Self::of(authorities, &text, path, Some(encryption))
    }

    /// Reads the keys in `folder` and makes none: for a cluster that exists. `encrypts` says whether its API servers may
    /// use the key for Secrets; otherwise that key is made when it is missing.
    ///
    /// # Errors
    /// [`PkiError::Missing`] with every missing file; when a file cannot be read or is damaged.
    pub fn load(folder: &Path, encrypts: bool) -> Result<Self, PkiError> {
        check_presence(folder, encrypts)?;
        own(folder)?;
        if !encrypts {
            EncryptionKeys::load_or_create(folder)?;
        }
        Self::read(folder, keyfile::read)
    }

    /// Checks that [`Self::load`] would succeed, without changing anything, not even the mode of a file.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn check(folder: &Path, encrypts: bool) -> Result<(), PkiError> {
        check_presence(folder, encrypts)?;
        Self::read(folder, keyfile::read_unchanged).map(drop)
    }

    fn read(folder: &Path, read: fn(&Path) -> io::Result<String>) -> Result<Self, PkiError> {
        let authorities = Authorities::try_new(|ca| Authority::load(folder, ca, read))?;
        let path = folder.join(SERVICE_ACCOUNT);
        let text = read(&path).map_err(|error| KeyFileError::Io(error).at(&path))?;
        let encryption = if is_missing(&encryption::file(folder)) {
            None
        } else {
            Some(EncryptionKeys::load(folder, read)?)
        };
        Self::of(authorities, &text, path, encryption)
    }

    /// Combines the authorities with the service account key. `text` is the content of the file `path`.
    fn of(
        authorities: Authorities,
        text: &str,
        path: PathBuf,
        encryption: Option<EncryptionKeys>,
    ) -> Result<Self, PkiError> {
        let service_account =
            KeyPair::from_pem(text).map_err(|e| PkiError::Unreadable { path, reason: e.to_string() })?;
        Ok(Self {
            authorities,
            service_account,
            encryption,
            leaves: Mutex::new(HashMap::new()),
            longest_life: None,
        })
    }

    /// Limits the life of the leaves that hosts renew, for tests of the renewal.
    #[must_use]
    pub fn with_longest_life(self, minutes: Option<u32>) -> Self {
        Self { longest_life: minutes.map(|minutes| Duration::minutes(i64::from(minutes))), ..self }
    }

    /// When each authority ends, in seconds since 1970, by name.
    pub fn expiries(&self) -> impl Iterator<Item = (&'static str, i64)> {
        CertificateAuthority::ALL
            .into_iter()
            .map(|ca| (ca.as_str(), self.authorities.get(ca).not_after.unix_timestamp()))
    }

    /// The leaf that was issued before, or a new one. Equal leaves get the same key pair, so that certificate and key can be
    /// resolved one after the other.
    fn leaf(&self, leaf: &Leaf) -> Result<Issued, PkiError> {
        let mut leaves = self.leaves.lock();
        if let Some(issued) = leaves.get(leaf) {
            return Ok(issued.clone());
        }
        let issued =
            leaf::issue(leaf, self.authorities.get(leaf.ca), OffsetDateTime::now_utc(), self.longest_life)?;
        leaves.insert(leaf.clone(), issued.clone());
        Ok(issued)
    }

    fn text(&self, secret: &SecretRef) -> Result<String, PkiError> {
        Ok(match secret {
            SecretRef::CaCertificate { ca } => self.authorities.get(*ca).certificate.clone(),
            SecretRef::CaKey { ca } => self.authorities.get(*ca).key.clone(),
            SecretRef::LeafCertificate(leaf) => self.leaf(leaf)?.certificate,
            SecretRef::LeafKey(leaf) => self.leaf(leaf)?.key,
            SecretRef::ServiceAccountKey => self.service_account.serialize_pem(),
            SecretRef::ServiceAccountPublicKey => self.service_account.public_key_pem(),
            SecretRef::EncryptionConfiguration { encrypts } => {
                self.encryption.as_ref().ok_or(PkiError::NoEncryptionKey)?.configuration(*encrypts)
            }
        })
    }
}

/// Creates the folder with mode 0700, or changes its mode.
fn own(folder: &Path) -> Result<(), PkiError> {
    keyfile::secret_folder(folder).map_err(|source| PkiError::File { path: folder.to_owned(), source })
}

fn check_presence(folder: &Path, encrypts: bool) -> Result<(), PkiError> {
    let paths = missing(folder, encrypts);
    if paths.is_empty() { Ok(()) } else { Err(PkiError::Missing { paths }) }
}

/// The folder, if it is missing, or its missing files.
fn missing(folder: &Path, encrypts: bool) -> Vec<PathBuf> {
    if is_missing(folder) {
        return vec![folder.to_owned()];
    }
    let files = CertificateAuthority::ALL.into_iter().map(|ca| authority::file(folder, ca));
    let encryption = encrypts.then(|| encryption::file(folder));
    files.chain([folder.join(SERVICE_ACCOUNT)]).chain(encryption).filter(|path| is_missing(path)).collect()
}

/// False when the check fails: reading the file then reports the cause.
fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

impl Secrets for ClusterPki {
    fn resolve(&self, secret: &SecretRef) -> Result<String, SecretError> {
        self.text(secret).map_err(|error| SecretError { what: describe(secret), why: error.to_string() })
    }
}

fn describe(secret: &SecretRef) -> String {
    match secret {
        SecretRef::CaCertificate { ca } => format!("the certificate of authority {ca}"),
        SecretRef::CaKey { ca } => format!("the key of authority {ca}"),
        SecretRef::LeafCertificate(leaf) => format!("the certificate of {}", leaf.common_name),
        SecretRef::LeafKey(leaf) => format!("the key of {}", leaf.common_name),
        SecretRef::ServiceAccountKey => "the service account key".to_owned(),
        SecretRef::ServiceAccountPublicKey => "the service account public key".to_owned(),
        SecretRef::EncryptionConfiguration { .. } => "the key for Secrets in etcd".to_owned(),
    }
}
