//! The keys of hosts. A host's key is checked before anything secret is sent to it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use parking_lot::Mutex;
use russh::keys::{Algorithm, HashAlg, PublicKey};

use crate::failure::failure;
use crate::known_hosts::{self, KnownHostsEntry, host_name};

/// How an unknown host key is treated. A key that differs from the known one is refused under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// It is refused.
    Pinned,
    /// Its key is accepted and the caller pins it, see [`HostKeys::pinned_text`].
    AcceptNew,
    /// Its key is accepted for this process and not pinned.
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
        /// The cause.
        source: io::Error,
    },
    /// A line cannot be parsed.
    #[error("{place}, line {line}, is not a line of known_hosts: mend or remove it")]
    Line {
        /// The file, as shown to people.
        place: KeyPlace,
        /// Counted from 1.
        line: usize,
    },
}

/// A key that a host showed.
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
    pub(crate) key: PublicKey,
}

/// The place of known keys, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyPlace {
    /// In a file of this machine.
    File(PathBuf),
    /// Another place, of which a file here is a copy, with its name for people.
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

/// The known keys, and those that this process has accepted.
pub struct HostKeys {
    policy: HostKeyPolicy,
    pinned: Option<(KeyPlace, String)>,
    known: Vec<(KeyPlace, KnownHostsEntry)>,
    accepted: BTreeMap<(HostAddress, u16), PublicKey>,
    met: Mutex<BTreeMap<(HostAddress, u16), (PublicKey, bool)>>,
}

impl HostKeys {
    /// No known keys.
    #[must_use]
    pub fn new(policy: HostKeyPolicy) -> Self {
        let (known, accepted, met) = (Vec::new(), BTreeMap::new(), Mutex::new(BTreeMap::new()));
        Self { policy, pinned: None, known, accepted, met }
    }

    /// Adds the cluster's own pinned keys; a missing file has none.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned(self, path: &Path) -> Result<Self, HostKeyError> {
        self.with_pinned_of(path, KeyPlace::File(path.to_owned()))
    }

    /// As [`HostKeys::with_pinned`], for a file that is a copy of `place`: messages name that place.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned_of(mut self, path: &Path, place: KeyPlace) -> Result<Self, HostKeyError> {
        let text = self.read(path, &place)?;
        self.pinned = Some((place, text));
        Ok(self)
    }

    /// Adds keys that the user knows, such as those of `~/.ssh/known_hosts`; a missing file has none.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_known_hosts(mut self, path: &Path) -> Result<Self, HostKeyError> {
        self.read(path, &KeyPlace::File(path.to_owned()))?;
        Ok(self)
    }

    /// Adds keys that a person has accepted. For such a host no other key is accepted. They do not override lines of files.
    #[must_use]
    pub fn with_accepted(mut self, keys: &[SeenKey]) -> Self {
        self.accepted.extend(keys.iter().map(|seen| ((seen.host, seen.port), seen.key.clone())));
        self
    }

    /// Whether no line of any file accepts or refuses the key; only then a person is asked. The same rules apply as for a
    /// connection.
    #[must_use]
    pub fn is_new(&self, shown: &SeenKey) -> bool {
        let name = host_name(&shown.host.to_string(), shown.port);
        !self.about(&name).any(|(_, entry)| !entry.revoked || same(&entry.key, &shown.key))
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

    /// Keys that this process has accepted and the pinned file lacks, ordered by host.
    #[must_use]
    pub fn new_keys(&self) -> Vec<SeenKey> {
        let met = self.met.lock();
        let new = met.iter().filter(|(_, (_, pinned))| !pinned);
        new.map(|((host, port), (key, _))| seen(*host, *port, key)).collect()
    }

    /// The text of the pinned file with the new keys, for the caller to write under [`HostKeyPolicy::AcceptNew`].
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

    /// The lines about a host, in the order of the files.
    fn about(&self, name: &str) -> impl Iterator<Item = &(KeyPlace, KnownHostsEntry)> {
        self.known.iter().filter(move |(_, entry)| entry.names(name))
    }

    /// The types of a host's known keys. They are requested first, so that the host shows a known key.
    pub(crate) fn algorithms(&self, host: HostAddress, port: u16) -> Vec<Algorithm> {
        let name = host_name(&host.to_string(), port);
        let known = self.about(&name).filter(|(_, entry)| !entry.revoked);
        known.map(|(_, entry)| entry.key.algorithm()).collect()
    }

    /// Accepts the key, or returns why it is refused and the remedy.
    pub(crate) fn check(&self, host: HostAddress, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        let name = host_name(&host.to_string(), port);
        let lines: Vec<_> = self.about(&name).collect();
        // As in OpenSSH, a line that revokes the key overrides all others, wherever it is.
        let revoking = lines.iter().find(|(_, entry)| entry.revoked && same(&entry.key, key));
        if let Some((place, entry)) = revoking {
            return Err(revoked(host, key, place, entry.line));
        }
        let known: Vec<_> = lines.iter().filter(|(_, entry)| !entry.revoked).collect();
        // A host may have several keys.
        if known.iter().any(|(_, entry)| same(&entry.key, key)) {
            self.remember(host, port, key);
            return Ok(());
        }
        match known.first() {
            Some((place, entry)) => Err(changed(host, &name, key, place, entry)),
            None => self.meet(host, port, key),
        }
    }

    /// Checks the key of a host without known keys.
    fn meet(&self, host: HostAddress, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        let met = self.met.lock().get(&(host, port)).cloned();
        let before = met.map(|(before, _)| before).or_else(|| self.accepted.get(&(host, port)).cloned());
        match before {
            Some(before) if !same(&before, key) => Err(replaced(host, &before, key)),
            None if self.policy == HostKeyPolicy::Pinned => Err(not_known(host, key)),
            _ => {
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
        let mut met = self.met.lock();
        met.insert((host, port), (key.clone(), is_pinned));
    }
}

pub(crate) fn seen(host: HostAddress, port: u16, key: &PublicKey) -> SeenKey {
    let text = key.to_openssh().unwrap_or_default();
    let mut words = text.split_whitespace();
    let (kind, key_text) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let line = format!("{} {kind} {key_text}", host_name(&host.to_string(), port));
    SeenKey { host, port, fingerprint: fingerprint(key), line, key: key.clone() }
}

/// Whether two keys are equal, except for the comment.
fn same(a: &PublicKey, b: &PublicKey) -> bool {
    a.key_data() == b.key_data()
}

/// In the form of `ssh-keygen -l`: `ED25519 SHA256:…`.
fn fingerprint(key: &PublicKey) -> String {
    let kind = match key.algorithm() {
        Algorithm::Ed25519 => "ED25519",
        Algorithm::Ecdsa { .. } => "ECDSA",
        Algorithm::Rsa { .. } => "RSA",
        _ => "key",
    };
    format!("{kind} {}", key.fingerprint(HashAlg::Sha256))
}

fn changed(
    host: HostAddress,
    name: &str,
    key: &PublicKey,
    place: &KeyPlace,
    entry: &KnownHostsEntry,
) -> StepFailure {
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
         the connection may be intercepted. If the host was reinstalled, {forget}",
        fingerprint(&entry.key),
        entry.line,
        fingerprint(key),
    );
    failure(Category::Denied, cause)
}

fn replaced(host: HostAddress, before: &PublicKey, key: &PublicKey) -> StepFailure {
    let cause = format!(
        "{host} shows another SSH host key than a moment ago ({} then, {} now): the connection may be intercepted",
        fingerprint(before),
        fingerprint(key)
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

#[cfg(test)]
mod tests {
    use russh::keys::parse_public_key_base64;

    use super::*;

    const ONE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIIxuorVMLiuXGxvfFjK+EH50I5WMPWXbLX7L+A3ca37c";
    const OTHER: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIO5j+ReaLQbLzTyR3N1vMetGifxXgzrIxP+3UFBrKIO9";

    /// 10.0.0.1 and its port 2222, as `ssh-keygen -H` writes them.
    const HASHED: &str = "|1|d7OMcQrhsylQynuy9k11r3qqFGI=|cinT0pk8Ct+bOAxf1gk0KCWcnVg=";
    const HASHED_PORT: &str = "|1|DgCegl+f7OxtNmAEkWya2gFfB94=|zv+H5ninEmqUT2dmQQUrHPp0CSg=";

    /// How a line may name the host, and the port of the sshd that it means.
    const NAMES: [(&str, u16); 6] = [
        (HASHED, 22),
        (HASHED_PORT, 2222),
        ("h1,10.0.0.1", 22),
        ("[10.0.0.1]:2222", 2222),
        ("10.0.0.*,!10.0.0.2", 22),
        ("[10.0.0.?]:*", 2222),
    ];

    fn host() -> HostAddress {
        "10.0.0.1".parse().unwrap()
    }

    fn key(text: &str) -> PublicKey {
        parse_public_key_base64(text).unwrap()
    }

    fn knowing(policy: HostKeyPolicy, text: &str) -> HostKeys {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        HostKeys::new(policy).with_known_hosts(file.path()).unwrap()
    }

    #[test]
    fn a_known_host_is_not_new_however_its_line_names_it() {
        let knowing = |names: &str| knowing(HostKeyPolicy::Pinned, &format!("{names} ssh-ed25519 {ONE}\n"));
        for (names, port) in NAMES {
            let keys = knowing(names);
            assert!(!keys.is_new(&seen(host(), port, &key(ONE))), "{names}");
            keys.check(host(), port, &key(ONE)).unwrap();
        }
        for (names, port) in [(HASHED, 2222), (HASHED_PORT, 22), ("10.0.0.*,!10.0.0.1", 22), ("10.0.0.2", 22)]
        {
            let keys = knowing(names);
            assert!(keys.is_new(&seen(host(), port, &key(ONE))), "{names}");
            assert!(keys.check(host(), port, &key(ONE)).is_err(), "{names}");
        }
    }

    #[test]
    fn no_accepted_key_outweighs_the_one_that_a_file_knows() {
        for (names, port) in NAMES {
            for policy in [HostKeyPolicy::Pinned, HostKeyPolicy::AcceptNew, HostKeyPolicy::Probe] {
                let keys = knowing(policy, &format!("{names} ssh-ed25519 {ONE}\n"));
                let shown = seen(host(), port, &key(OTHER));
                assert!(!keys.is_new(&shown), "{names}");
                let keys = keys.with_accepted(&[shown]);
                let failure = keys.check(host(), port, &key(OTHER)).unwrap_err();
                assert_eq!(failure.category, Category::Denied);
                let words = failure.to_string();
                assert!(words.contains("another SSH host key than the pinned one"), "{names}: {words}");
                assert!(keys.new_keys().is_empty() && keys.pinned_text().is_empty(), "{names}");
            }
        }
    }

    #[test]
    fn who_accepts_a_key_accepts_no_other() {
        let shown = seen(host(), 22, &key(ONE));
        let keys = knowing(HostKeyPolicy::Pinned, "");
        assert!(keys.is_new(&shown));
        let keys = keys.with_accepted(std::slice::from_ref(&shown));
        let words = keys.check(host(), 22, &key(OTHER)).unwrap_err().to_string();
        assert!(words.contains("than a moment ago"), "{words}");
        let words = keys.check(host(), 2222, &key(ONE)).unwrap_err().to_string();
        assert!(words.contains("is not known"), "another port is another sshd: {words}");
        keys.check(host(), 22, &key(ONE)).unwrap();
        assert_eq!(keys.new_keys(), [shown]);
    }

    #[test]
    fn a_host_may_have_several_keys() {
        let text = format!("10.0.0.1 ssh-ed25519 {ONE}\n{HASHED} ssh-ed25519 {OTHER}\n");
        for shown in [ONE, OTHER] {
            knowing(HostKeyPolicy::Pinned, &text).check(host(), 22, &key(shown)).unwrap();
        }
    }

    #[test]
    fn a_revoked_key_is_refused_wherever_its_line_stands() {
        for text in [
            format!("@revoked 10.0.0.1 ssh-ed25519 {ONE}\n"),
            format!("10.0.0.1 ssh-ed25519 {ONE}\n@revoked * ssh-ed25519 {ONE}\n"),
            format!("10.0.0.1 ssh-ed25519 {ONE}\n@revoked {HASHED} ssh-ed25519 {ONE}\n"),
        ] {
            let (keys, shown) = (knowing(HostKeyPolicy::AcceptNew, &text), seen(host(), 22, &key(ONE)));
            assert!(!keys.is_new(&shown), "{text}");
            let words = keys.with_accepted(&[shown]).check(host(), 22, &key(ONE)).unwrap_err().to_string();
            assert!(words.contains("marked as revoked"), "{text}: {words}");
        }
    }

    #[test]
    fn a_line_that_revokes_another_key_makes_no_host_known() {
        let keys = knowing(HostKeyPolicy::Pinned, &format!("@revoked * ssh-ed25519 {OTHER}\n"));
        assert!(keys.is_new(&seen(host(), 22, &key(ONE))));
        let words = keys.check(host(), 22, &key(ONE)).unwrap_err().to_string();
        assert!(words.contains("is not known"), "{words}");
    }
}
