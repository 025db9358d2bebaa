//! The whole of a cluster's keys, and the port through which `apply` gets at their text.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_ports::{SecretError, Secrets};
use kubeon_wire::{CertificateAuthority, Leaf, SecretRef};
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use time::OffsetDateTime;

use crate::authority::{self, Authorities, Authority, Making};
use crate::keyfile;
use crate::leaf::{self, Issued};

/// The file of the service account key.
const SERVICE_ACCOUNT: &str = "sa.pem";

/// A key or certificate could not be read or made. The text never holds key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file or folder could not be read or written.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is there but is not what it should be.
    #[error("{path} is damaged: {why}; put the file back from a backup: a new one would not fit the cluster")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What a cluster was made with is not there.
    #[error("missing: {}; put it back from a backup: a new one would not fit the cluster", listed(.paths))]
    Missing {
        /// The files, or the folder of them all.
        paths: Vec<PathBuf>,
    },
    /// The time of an authority is over.
    #[error("the authority in {path} has expired on {since}; it can sign nothing more")]
    Expired {
        /// The file of the authority.
        path: PathBuf,
        /// The date, UTC.
        since: String,
    },
    /// More than one organization in a leaf's subject.
    #[error("{0} has several organizations; a certificate of kubeon holds one at most")]
    ManyOrganizations(String),
    /// A certificate could not be made.
    #[error("cannot make the certificate of {what}: {source}")]
    Sign {
        /// Its subject or file.
        what: String,
        /// Why.
        source: rcgen::Error,
    },
}

/// The authorities and the service account key of one cluster, and the leaves made so far.
pub struct ClusterPki {
    authorities: Authorities,
    service_account: KeyPair,
    leaves: Mutex<HashMap<Leaf, Issued>>,
}

impl ClusterPki {
    /// Reads the keys in `folder`, making those that are missing: the folder 0700, the files 0600, each
    /// whole or not at all, so it may be called by two processes at once and after a crash. `ca_years`
    /// is the life of authorities made now (1 to 100).
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
                .map_err(Making::Sign)
        })
        .map_err(|error| error.at(&path))?;
        Self::of(authorities, &text, path)
    }

    /// Reads the keys in `folder` and makes none: for a cluster that was made with them.
    ///
    /// # Errors
    /// [`PkiError::Missing`] with everything that is not there; when a file cannot be read, or is damaged.
    pub fn load(folder: &Path) -> Result<Self, PkiError> {
        all_there(folder)?;
        own(folder)?;
        Self::read(folder, keyfile::read)
    }

    /// Says what [`Self::load`] would, and changes nothing: not even who may read the files.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn look(folder: &Path) -> Result<(), PkiError> {
        all_there(folder)?;
        Self::read(folder, keyfile::look).map(drop)
    }

    fn read(folder: &Path, read: fn(&Path) -> io::Result<String>) -> Result<Self, PkiError> {
        let authorities = Authorities::try_new(|ca| Authority::load(folder, ca, read))?;
        let path = folder.join(SERVICE_ACCOUNT);
        let text = read(&path).map_err(|error| Making::Io(error).at(&path))?;
        Self::of(authorities, &text, path)
    }

    /// Of the authorities and the text of the service account key, which lies at `path`.
    fn of(authorities: Authorities, text: &str, path: PathBuf) -> Result<Self, PkiError> {
        let service_account =
            KeyPair::from_pem(text).map_err(|e| PkiError::Unreadable { path, why: e.to_string() })?;
        Ok(Self { authorities, service_account, leaves: Mutex::new(HashMap::new()) })
    }

    /// When each authority ends, in seconds since 1970, by name.
    pub fn expiries(&self) -> impl Iterator<Item = (&'static str, i64)> {
        CertificateAuthority::ALL
            .into_iter()
            .map(|ca| (ca.as_str(), self.authorities.get(ca).not_after.unix_timestamp()))
    }

    /// The leaf as issued before, or a new one. An equal leaf gives the same pair for the life of this
    /// object, so certificate and key can be asked for one after the other.
    fn leaf(&self, leaf: &Leaf) -> Result<Issued, PkiError> {
        let mut leaves = self.leaves.lock();
        if let Some(issued) = leaves.get(leaf) {
            return Ok(issued.clone());
        }
        let issued = leaf::issue(leaf, self.authorities.get(leaf.ca), OffsetDateTime::now_utc())?;
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
        })
    }
}

/// Makes the folder, or narrows it, so that it is for its owner only.
fn own(folder: &Path) -> Result<(), PkiError> {
    keyfile::secret_folder(folder).map_err(|source| PkiError::File { path: folder.to_owned(), source })
}

fn all_there(folder: &Path) -> Result<(), PkiError> {
    let paths = missing(folder);
    if paths.is_empty() { Ok(()) } else { Err(PkiError::Missing { paths }) }
}

/// What is not there: the folder, or files of it.
fn missing(folder: &Path) -> Vec<PathBuf> {
    if is_missing(folder) {
        return vec![folder.to_owned()];
    }
    let files = CertificateAuthority::ALL.into_iter().map(|ca| authority::file(folder, ca));
    files.chain([folder.join(SERVICE_ACCOUNT)]).filter(|path| is_missing(path)).collect()
}

/// Of what cannot be told, reading it says why.
fn is_missing(path: &Path) -> bool {
    matches!(path.try_exists(), Ok(false))
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
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
    }
}
