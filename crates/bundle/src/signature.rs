//! Signatures of bundles, in the formats of OpenSSH, so that `ssh-keygen` makes and checks them too.
//!
//! ```text
//!   index.json ──► manifest ──► every part      each by its SHA-256, so a signature of index.json covers all
//!   index.json.sig                              ssh-keygen -Y sign -n kubeon-bundle -f KEY index.json
//!   allowed_signers                             ssh-keygen -Y verify -n kubeon-bundle -f allowed_signers -I NAME
//!                                                   -s index.json.sig < index.json
//! ```

use std::path::{Path, PathBuf};
use std::{fs, io};

use jiff::Timestamp;
use kubeon_atomic_file::write_atomically;
use ssh_key::{HashAlg, LineEnding, PrivateKey, SshSig};

use crate::Bundle;
use crate::layout::INDEX_FILE;

mod error;
mod signers;

pub use error::{NAMESPACE, SignatureError};
pub use signers::TrustedSigners;

/// The signature in the folder of a bundle.
pub(crate) const SIGNATURE_FILE: &str = "index.json.sig";

/// Reads a private key of OpenSSH. `passphrase` decrypts a protected one.
///
/// # Errors
/// [`SignatureError::Encrypted`] for a protected key without a passphrase; when the key cannot be read.
pub fn read_key(path: &Path, passphrase: Option<&str>) -> Result<PrivateKey, SignatureError> {
    let text = fs::read(path).map_err(SignatureError::file(path))?;
    let unusable =
        |error: ssh_key::Error| SignatureError::Key { path: path.to_owned(), why: error.to_string() };
    let key = PrivateKey::from_openssh(text).map_err(unusable)?;
    match passphrase {
        _ if !key.is_encrypted() => Ok(key),
        None => Err(SignatureError::Encrypted { path: path.to_owned() }),
        Some(passphrase) => key.decrypt(passphrase).map_err(unusable),
    }
}

/// Signs the bundle; an old signature is replaced. Returns the fingerprint of the key.
///
/// # Errors
/// When the index cannot be read, the key cannot sign, or the signature cannot be written.
pub fn sign(bundle: &Bundle, key: &PrivateKey) -> Result<String, SignatureError> {
    let index = bundle.root().join(INDEX_FILE);
    let content = fs::read(&index).map_err(SignatureError::file(&index))?;
    let unusable = |error: ssh_key::Error| SignatureError::Key {
        path: PathBuf::from(key.fingerprint(HashAlg::Sha256).to_string()),
        why: error.to_string(),
    };
    let signature = key.sign(NAMESPACE, HashAlg::Sha512, &content).map_err(unusable)?;
    let text = signature.to_pem(LineEnding::LF).map_err(unusable)?;
    let path = bundle.root().join(SIGNATURE_FILE);
    write_atomically(&path, text.as_bytes(), 0o644).map_err(SignatureError::file(&path))?;
    Ok(key.fingerprint(HashAlg::Sha256).to_string())
}

/// The signature of a bundle.
fn signature(bundle: &Bundle) -> Result<SshSig, SignatureError> {
    let path = bundle.root().join(SIGNATURE_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(SignatureError::Unsigned { bundle: bundle.root().to_owned() });
        }
        Err(error) => return Err(SignatureError::file(&path)(error)),
    };
    let shape = |why: String| SignatureError::Shape { path: path.clone(), why };
    let signature = SshSig::from_pem(&text).map_err(|error| shape(error.to_string()))?;
    if signature.namespace() != NAMESPACE {
        return Err(shape(format!("it is for {}", signature.namespace())));
    }
    Ok(signature)
}

impl TrustedSigners {
    /// Checks that one of these keys signed the bundle, and is trusted at `now`. Returns the name of the signer.
    ///
    /// # Errors
    /// Why the signature is not accepted.
    pub fn check(&self, bundle: &Bundle, now: Timestamp) -> Result<String, SignatureError> {
        let root = bundle.root().to_owned();
        let signature = signature(bundle)?;
        let key = signature.public_key().fingerprint(HashAlg::Sha256).to_string();
        let mut known =
            self.signers().filter(|signer| signer.key.key_data() == signature.public_key()).peekable();
        if known.peek().is_none() {
            let trusted: Vec<String> = self.signers().map(|signer| signer.fingerprint()).collect();
            return Err(SignatureError::NotTrusted { bundle: root, found: key, trusted: trusted.join(" ") });
        }
        let index = root.join(INDEX_FILE);
        let content = fs::read(&index).map_err(SignatureError::file(&index))?;
        let mut refused = String::new();
        for signer in known {
            if signer.key.verify(NAMESPACE, &content, &signature).is_err() {
                return Err(SignatureError::Mismatch { bundle: root, key });
            }
            match signer.trusted_at(now) {
                Ok(()) => return Ok(signer.name.clone()),
                Err(why) => refused = why,
            }
        }
        Err(SignatureError::NotNow { bundle: root, key, why: refused })
    }
}

#[cfg(test)]
mod tests;
