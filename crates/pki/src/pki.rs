//! All keys of a cluster, and the port through which `apply` reads them.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::{ClusterKeys, KeyNumber};
use kubeon_ports::{SecretError, Secrets};
use kubeon_wire::{CertificateAuthority, Leaf, SecretRef, Usage};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use time::{Duration, OffsetDateTime};

use crate::authority::{self, Authorities, Authority};
use crate::encryption::{self, EncryptionKeys};
use crate::error::{KeyFileError, PkiError};
use crate::keyfile;
use crate::leaf::{self, Issued};
use crate::private_key;

/// The file of the service account key, without its end.
pub(crate) const SERVICE_ACCOUNT: &str = "sa";

/// The authorities and the service account key with one number.
struct KeySet {
    authorities: Authorities,
    service_account: KeyPair,
}

/// The authorities, the service account key and the key for Secrets of one cluster, and the leaves created so far.
pub struct ClusterPki {
    keys: ClusterKeys,
    signing: KeySet,
    /// What is trusted beside the keys that sign.
    also_trusted: Option<KeySet>,
    /// `None` for a cluster that was made without encryption of Secrets.
    encryption: Option<EncryptionKeys>,
    leaves: Mutex<HashMap<Leaf, Issued>>,
    longest_life: Option<Duration>,
}

impl ClusterPki {
    /// Reads the first keys in `folder` and makes those that are missing: the folder with mode 0700, the files with mode
    /// 0600. Each file appears complete or not at all, so two processes may call this at once, also after a crash.
    /// `ca_years` is the lifetime of new authorities, 1 to 100.
    ///
    /// # Errors
    /// When a file cannot be read or written, or is damaged.
    pub fn load_or_create(folder: &Path, ca_years: u32) -> Result<Self, PkiError> {
        own(folder)?;
        let signing = KeySet::load_or_create(folder, KeyNumber::FIRST, ca_years, None)?;
        let encryption = EncryptionKeys::load_or_create(folder)?;
        Ok(Self::of(ClusterKeys::default(), signing, None, Some(encryption)))
    }

    /// Reads the keys in `folder` and makes none: for a cluster that exists and uses `keys`. `encrypts` says whether its
    /// API servers may use the key for Secrets; otherwise that key is made when it is missing.
    ///
    /// # Errors
    /// [`PkiError::Missing`] with every missing file; when a file cannot be read or is damaged.
    pub fn load(folder: &Path, keys: ClusterKeys, encrypts: bool) -> Result<Self, PkiError> {
        check_presence(folder, keys, encrypts)?;
        own(folder)?;
        if !encrypts && keys.is_first() {
            EncryptionKeys::load_or_create(folder)?;
        }
        Self::read(folder, keys, keyfile::read)
    }

    /// Checks that [`Self::load`] would succeed, without changing anything, not even the mode of a file.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn check(folder: &Path, keys: ClusterKeys, encrypts: bool) -> Result<(), PkiError> {
        check_presence(folder, keys, encrypts)?;
        Self::read(folder, keys, keyfile::read_unchanged).map(drop)
    }

    /// Makes the keys after `keys`, unless they exist; no host uses them yet. `ca_years` is the lifetime of the
    /// authorities.
    ///
    /// # Errors
    /// When a file cannot be read or written, or is damaged.
    pub fn make_next(folder: &Path, keys: ClusterKeys, ca_years: u32) -> Result<(), PkiError> {
        let before = KeySet::load(folder, keys.newest(), keyfile::read)?;
        let next = keys.newest().next();
        KeySet::load_or_create(folder, next, ca_years, Some(&before))?;
        if is_missing(&encryption::file(folder)) { Ok(()) } else { EncryptionKeys::add(folder, next) }
    }

    /// Removes the keys before the newest ones: no host trusts them any more.
    ///
    /// # Errors
    /// When a file cannot be removed or written.
    pub fn remove_old(folder: &Path, keys: ClusterKeys) -> Result<(), PkiError> {
        if !is_missing(&encryption::file(folder)) {
            EncryptionKeys::remove_before(folder, keys.newest())?;
        }
        let Some(before) = keys.newest().previous() else { return Ok(()) };
        for path in files(folder, before) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(PkiError::File { path, source: error });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read(
        folder: &Path,
        keys: ClusterKeys,
        read: fn(&Path) -> io::Result<String>,
    ) -> Result<Self, PkiError> {
        let signing = KeySet::load(folder, keys.signing(), read)?;
        let also = keys.also_trusted().map(|number| KeySet::load(folder, number, read)).transpose()?;
        let encryption = if is_missing(&encryption::file(folder)) {
            None
        } else {
            Some(EncryptionKeys::load(folder, read)?)
        };
        Ok(Self::of(keys, signing, also, encryption))
    }

    fn of(
        keys: ClusterKeys,
        signing: KeySet,
        also_trusted: Option<KeySet>,
        encryption: Option<EncryptionKeys>,
    ) -> Self {
        let leaves = Mutex::new(HashMap::new());
        Self { keys, signing, also_trusted, encryption, leaves, longest_life: None }
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
            .map(|ca| (ca.as_str(), self.signing.authorities.get(ca).not_after.unix_timestamp()))
    }

    /// The leaf that was issued before, or a new one. Equal leaves get the same key pair, so that certificate and key can be
    /// resolved one after the other.
    fn leaf(&self, leaf: &Leaf) -> Result<Issued, PkiError> {
        let mut leaves = self.leaves.lock();
        if let Some(issued) = leaves.get(leaf) {
            return Ok(issued.clone());
        }
        let authority = self.signing.authorities.get(leaf.ca);
        let mut issued = leaf::issue(leaf, authority, OffsetDateTime::now_utc(), self.longest_life)?;
        if leaf.usage != Usage::Client {
            issued.certificate.push_str(&authority.cross_certificate);
        }
        leaves.insert(leaf.clone(), issued.clone());
        Ok(issued)
    }

    /// The keys that are trusted: those that sign come first.
    fn trusted(&self) -> impl Iterator<Item = &KeySet> {
        std::iter::once(&self.signing).chain(&self.also_trusted)
    }

    fn text(&self, secret: &SecretRef) -> Result<String, PkiError> {
        let (authorities, service_account) = (&self.signing.authorities, &self.signing.service_account);
        Ok(match secret {
            SecretRef::CaCertificate { ca } => {
                self.trusted().map(|keys| keys.authorities.get(*ca).certificate.as_str()).collect()
            }
            SecretRef::SigningCertificate { ca } => authorities.get(*ca).certificate.clone(),
            SecretRef::CaKey { ca } => authorities.get(*ca).key.clone(),
            SecretRef::LeafCertificate(leaf) => self.leaf(leaf)?.certificate,
            SecretRef::LeafKey(leaf) => self.leaf(leaf)?.key,
            SecretRef::ServiceAccountKey => service_account.serialize_pem(),
            SecretRef::ServiceAccountPublicKey => {
                self.trusted().map(|keys| keys.service_account.public_key_pem()).collect()
            }
            SecretRef::EncryptionConfiguration { encrypts } => self
                .encryption
                .as_ref()
                .and_then(|encryption| encryption.configuration(*encrypts, self.keys))
                .ok_or(PkiError::NoEncryptionKey)?,
        })
    }
}

impl KeySet {
    /// Reads the keys with the number and makes those that are missing. `before` holds the keys that they replace.
    fn load_or_create(
        folder: &Path,
        number: KeyNumber,
        ca_years: u32,
        before: Option<&Self>,
    ) -> Result<Self, PkiError> {
        let authorities = Authorities::try_new(|ca| {
            let before = before.map(|keys| keys.authorities.get(ca));
            Authority::load_or_create(folder, ca, number, ca_years, before)
        })?;
        let path = service_account_file(folder, number);
        let text = keyfile::read_or_create(&path, || {
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
                .map(|key| key.serialize_pem())
                .map_err(KeyFileError::Sign)
        })
        .map_err(|error| error.at(&path))?;
        Self::of(authorities, &text, path)
    }

    fn load(
        folder: &Path,
        number: KeyNumber,
        read: fn(&Path) -> io::Result<String>,
    ) -> Result<Self, PkiError> {
        let authorities = Authorities::try_new(|ca| Authority::load(folder, ca, number, read))?;
        let path = service_account_file(folder, number);
        let text = read(&path).map_err(|error| KeyFileError::Io(error).at(&path))?;
        Self::of(authorities, &text, path)
    }

    /// Combines the authorities with the service account key. `text` is the content of the file `path`.
    fn of(authorities: Authorities, text: &str, path: PathBuf) -> Result<Self, PkiError> {
        let service_account =
            private_key::read(text).map_err(|e| PkiError::Unreadable { path, reason: e.to_string() })?;
        Ok(Self { authorities, service_account })
    }
}

fn service_account_file(folder: &Path, number: KeyNumber) -> PathBuf {
    folder.join(authority::numbered(SERVICE_ACCOUNT, number))
}

/// Creates the folder with mode 0700, or changes its mode.
fn own(folder: &Path) -> Result<(), PkiError> {
    keyfile::secret_folder(folder).map_err(|source| PkiError::File { path: folder.to_owned(), source })
}

fn check_presence(folder: &Path, keys: ClusterKeys, encrypts: bool) -> Result<(), PkiError> {
    let paths = missing(folder, keys, encrypts);
    if paths.is_empty() { Ok(()) } else { Err(PkiError::Missing { paths }) }
}

/// The folder, if it is missing, or its missing files.
fn missing(folder: &Path, keys: ClusterKeys, encrypts: bool) -> Vec<PathBuf> {
    if is_missing(folder) {
        return vec![folder.to_owned()];
    }
    let numbers = [keys.signing()].into_iter().chain(keys.also_trusted());
    let encryption = encrypts.then(|| encryption::file(folder));
    numbers
        .flat_map(|number| files(folder, number))
        .chain(encryption)
        .filter(|path| is_missing(path))
        .collect()
}

/// The files of the authorities and of the service account key.
fn files(folder: &Path, number: KeyNumber) -> Vec<PathBuf> {
    let authorities = CertificateAuthority::ALL.into_iter().map(|ca| authority::file(folder, ca, number));
    authorities.chain([service_account_file(folder, number)]).collect()
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
        SecretRef::SigningCertificate { ca } => format!("the signing certificate of authority {ca}"),
        SecretRef::CaKey { ca } => format!("the key of authority {ca}"),
        SecretRef::LeafCertificate(leaf) => format!("the certificate of {}", leaf.common_name),
        SecretRef::LeafKey(leaf) => format!("the key of {}", leaf.common_name),
        SecretRef::ServiceAccountKey => "the service account key".to_owned(),
        SecretRef::ServiceAccountPublicKey => "the service account public key".to_owned(),
        SecretRef::EncryptionConfiguration { .. } => "the key for Secrets in etcd".to_owned(),
    }
}
