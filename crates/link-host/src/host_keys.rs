//! Which key a host must show. Compared before anything secret is sent to it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use russh::keys::{Algorithm, HashAlg, PublicKey};

use crate::failure::failure;
use crate::known_hosts::{self, Entry, host_name};

/// What happens with a host whose key is not known yet. A key that differs from the known one is
/// refused under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// It is refused.
    Pinned,
    /// Its key is accepted and is to be pinned by the caller, see [`HostKeys::pinned_text`].
    AcceptNew,
    /// Its key is accepted for this process; nothing is to be pinned.
    Probe,
}

/// A file of known keys could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file cannot be opened.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of it is no known-hosts line.
    #[error("{place}, line {line}, is not a line of known_hosts: mend or remove it")]
    Line {
        /// Where it stands.
        place: KeyPlace,
        /// Counted from 1.
        line: usize,
    },
}

/// A key that a host showed and that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenKey {
    /// The host.
    pub host: HostAddress,
    /// The port of its sshd.
    pub port: u16,
    /// Such as `ED25519 SHA256:…`, as `ssh-keygen -l` prints it.
    pub fingerprint: String,
    /// Its line in `known_hosts`.
    pub line: String,
}

/// Where known keys stand, as a person is told who is to mend them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a file of this machine.
    File(PathBuf),
    /// Somewhere else, of which a file here is a copy: what people call it.
    Elsewhere(String),
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Elsewhere(name) => f.write_str(name),
        }
    }
}

/// The known keys, and those met on the way.
pub struct HostKeys {
    policy: Policy,
    pinned: Option<(KeyPlace, String)>,
    known: Vec<(KeyPlace, Entry)>,
    met: Mutex<BTreeMap<(HostAddress, u16), (PublicKey, bool)>>,
}

impl HostKeys {
    /// Knows no key yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, pinned: None, known: Vec::new(), met: Mutex::new(BTreeMap::new()) }
    }

    /// Adds the cluster's own pinned keys; a missing file holds none.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned(self, path: &Path) -> Result<Self, HostKeyError> {
        self.with_pinned_of(path, KeyPlace::File(path.to_owned()))
    }

    /// As [`HostKeys::with_pinned`], where people do not know the file but the `place` that it is a copy of: what is
    /// said of a key names that.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned_of(mut self, path: &Path, place: KeyPlace) -> Result<Self, HostKeyError> {
        let text = self.read(path, &place)?;
        self.pinned = Some((place, text));
        Ok(self)
    }

    /// Adds keys that the user knows, such as those of `~/.ssh/known_hosts`; a missing file holds none.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_known_hosts(mut self, path: &Path) -> Result<Self, HostKeyError> {
        self.read(path, &KeyPlace::File(path.to_owned()))?;
        Ok(self)
    }

    fn read(&mut self, path: &Path, place: &KeyPlace) -> Result<String, HostKeyError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            Err(source) => return Err(HostKeyError::Read { path: path.to_owned(), source }),
        };
        let entries =
            known_hosts::parse(&text).map_err(|line| HostKeyError::Line { place: place.clone(), line })?;
        self.known.extend(entries.into_iter().map(|entry| (place.clone(), entry)));
        Ok(text)
    }

    /// Keys accepted by this process that the pinned file does not hold, ordered by host.
    #[must_use]
    pub fn new_keys(&self) -> Vec<SeenKey> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let new = met.iter().filter(|(_, (_, pinned))| !pinned);
        new.map(|((host, port), (key, _))| seen(*host, *port, key)).collect()
    }

    /// The text of the pinned file with the new keys added: what the caller writes where the policy is
    /// [`Policy::AcceptNew`].
    #[must_use]
    pub fn pinned_text(&self) -> String {
        let mut text = self.pinned.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for key in self.new_keys() {
            text.push_str(&key.line);
            text.push('\n');
        }
        text
    }

    /// Key types known of a host, which are asked for first, so that it shows the key that is known.
    pub(crate) fn algorithms(&self, host: HostAddress, port: u16) -> Vec<Algorithm> {
        let name = host_name(&host.to_string(), port);
        let known = self.known.iter().filter(|(_, entry)| !entry.revoked && entry.names(&name));
        known.map(|(_, entry)| entry.key.algorithm()).collect()
    }

    /// Accepts the key, or says why not and what to do.
    pub(crate) fn check(&self, host: HostAddress, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        let name = host_name(&host.to_string(), port);
        let mut known = self.known.iter().filter(|(_, entry)| entry.names(&name)).peekable();
        let unknown = known.peek().is_none();
        let mut expected = None;
        for (place, entry) in known {
            match (same(&entry.key, key), entry.revoked) {
                (true, true) => return Err(revoked(host, key, place, entry.line)),
                (true, false) => {
                    self.remember(host, port, key);
                    return Ok(());
                }
                (false, false) => expected = expected.or(Some((place, entry))),
                (false, true) => {}
            }
        }
        if let Some((place, entry)) = expected {
            return Err(changed(host, &name, key, place, entry));
        }
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner).get(&(host, port)).cloned();
        match met {
            Some((before, _)) if same(&before, key) => Ok(()),
            Some((before, _)) => Err(failure(
                Category::Denied,
                format!(
                    "{host} shows another SSH host key than a moment ago ({} then, {} now): somebody may be in between",
                    fingerprint(&before),
                    fingerprint(key)
                ),
            )),
            None if unknown && self.policy == Policy::Pinned => Err(not_known(host, key)),
            None => {
                self.remember(host, port, key);
                Ok(())
            }
        }
    }

    fn remember(&self, host: HostAddress, port: u16, key: &PublicKey) {
        let name = host_name(&host.to_string(), port);
        let pinned = self.pinned.as_ref().map(|(place, _)| place);
        let is_pinned = self
            .known
            .iter()
            .any(|(place, entry)| Some(place) == pinned && entry.names(&name) && same(&entry.key, key));
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.insert((host, port), (key.clone(), is_pinned));
    }
}

pub(crate) fn seen(host: HostAddress, port: u16, key: &PublicKey) -> SeenKey {
    let text = key.to_openssh().unwrap_or_default();
    let mut words = text.split_whitespace();
    let (kind, key_text) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let line = format!("{} {kind} {key_text}", host_name(&host.to_string(), port));
    SeenKey { host, port, fingerprint: fingerprint(key), line }
}

/// Equal but for the comment.
fn same(a: &PublicKey, b: &PublicKey) -> bool {
    a.key_data() == b.key_data()
}

/// As `ssh-keygen -l` names it: `ED25519 SHA256:…`.
fn fingerprint(key: &PublicKey) -> String {
    let kind = match key.algorithm() {
        Algorithm::Ed25519 => "ED25519",
        Algorithm::Ecdsa { .. } => "ECDSA",
        Algorithm::Rsa { .. } => "RSA",
        _ => "key",
    };
    format!("{kind} {}", key.fingerprint(HashAlg::Sha256))
}

fn changed(host: HostAddress, name: &str, key: &PublicKey, place: &KeyPlace, entry: &Entry) -> StepFailure {
    let forget = match place {
        KeyPlace::File(path) => {
            let path = path.display().to_string();
            let file = shlex::try_quote(&path).map_or_else(|_| path.clone(), |quoted| quoted.into_owned());
            format!("forget its old key with: ssh-keygen -R '{name}' -f {file}")
        }
        KeyPlace::Elsewhere(_) => format!("take that line out of {place}"),
    };
    let cause = format!(
        "{host} shows another SSH host key than the pinned one: {} is expected ({place}, line {}), {} was shown; \
         somebody may be in between. If the host was installed anew, {forget}",
        fingerprint(&entry.key),
        entry.line,
        fingerprint(key),
    );
    failure(Category::Denied, cause)
}

fn revoked(host: HostAddress, key: &PublicKey, place: &KeyPlace, line: usize) -> StepFailure {
    let cause = format!(
        "{host} shows the SSH host key {}, which is marked as revoked in {place}, line {line}; give the host a new key",
        fingerprint(key),
    );
    failure(Category::Denied, cause)
}

fn not_known(host: HostAddress, key: &PublicKey) -> StepFailure {
    let cause = format!(
        "the SSH host key of {host} is not known: it shows {}; compare it with `ssh-keygen -lf` of the public key in \
         /etc/ssh on the host, then accept it with --accept-new",
        fingerprint(key)
    );
    failure(Category::Denied, cause)
}
