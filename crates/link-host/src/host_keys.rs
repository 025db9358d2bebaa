//! The keys of hosts. A host's key is checked before anything secret is sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_api::HostAddress;
use kubeon_wire::StepFailure;
use parking_lot::Mutex;
use russh::keys::{Algorithm, PublicKey};

use crate::host_key_failure::{changed, fingerprint, jump_host_not_known, not_known, replaced, revoked};
use crate::known_hosts::{self, KeySource, KnownHostsEntry, host_name};

/// Treatment of unknown host keys. A key that differs from the known one is refused under every policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyPolicy {
    /// An unknown key is refused.
    Pinned,
    /// An unknown key is accepted and the caller pins it, see [`HostKeys::pinned_text`].
    AcceptNew,
    /// An unknown key is accepted for this process and not pinned.
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
    #[error("{place}, line {line}, is not a line of known_hosts: correct or remove it")]
    Line {
        /// The file, as messages name it.
        place: KeySource,
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

/// The known keys, and those that this process has accepted.
pub struct HostKeys {
    policy: HostKeyPolicy,
    pinned: Option<(KeySource, String)>,
    known: Vec<(KeySource, KnownHostsEntry)>,
    accepted: BTreeMap<(HostAddress, u16), PublicKey>,
    /// Hosts that get a password. Their unknown keys are refused under every policy.
    password_hosts: BTreeSet<HostAddress>,
    /// The accepted keys that hosts have shown, and whether the pinned file has them.
    shown: Mutex<BTreeMap<(HostAddress, u16), (PublicKey, bool)>>,
    /// Whether a host was refused because its key is not known.
    refused_unknown: AtomicBool,
}

impl HostKeys {
    /// No known keys.
    #[must_use]
    pub fn new(policy: HostKeyPolicy) -> Self {
        let (known, accepted, shown) = (Vec::new(), BTreeMap::new(), Mutex::new(BTreeMap::new()));
        let (password_hosts, refused_unknown) = (BTreeSet::new(), AtomicBool::new(false));
        Self { policy, pinned: None, known, accepted, password_hosts, shown, refused_unknown }
    }

    /// Adds the cluster's pinned keys. A missing file counts as empty.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned(self, path: &Path) -> Result<Self, HostKeyError> {
        self.with_pinned_of(path, KeySource::File(path.to_owned()))
    }

    /// As [`HostKeys::with_pinned`], for a file that is a copy of `place`: messages name that place.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_pinned_of(mut self, path: &Path, place: KeySource) -> Result<Self, HostKeyError> {
        let text = self.read(path, &place)?;
        self.pinned = Some((place, text));
        Ok(self)
    }

    /// Adds keys that the user knows, such as those of `~/.ssh/known_hosts`. A missing file counts as empty.
    ///
    /// # Errors
    /// When the file cannot be read, or a line of it is damaged.
    pub fn with_known_hosts(mut self, path: &Path) -> Result<Self, HostKeyError> {
        self.read(path, &KeySource::File(path.to_owned()))?;
        Ok(self)
    }

    /// Adds keys that the user has accepted. For these hosts no other key is accepted. The keys do not override lines of
    /// files.
    #[must_use]
    pub fn with_accepted(mut self, keys: &[SeenKey]) -> Self {
        self.accepted.extend(keys.iter().map(|seen| ((seen.host, seen.port), seen.key.clone())));
        self
    }

    /// Adds the known keys of a host whose address changed for its new address. A host that shows another key there is
    /// refused.
    #[must_use]
    pub fn with_moved_host(mut self, from: SocketAddrV4, to: SocketAddrV4) -> Self {
        let (from, to) = [from, to].map(|login| host_name(&login.ip().to_string(), login.port())).into();
        let moved: Vec<_> = self
            .entries_for(&from)
            .filter(|(_, entry)| !entry.revoked)
            .map(|(_, entry)| (KeySource::Elsewhere(format!("the keys of {from}")), entry.renamed(&to)))
            .collect();
        self.known.extend(moved);
        self
    }

    /// Marks hosts that get a password. An unknown key of such a host is refused also under [`HostKeyPolicy::AcceptNew`] and
    /// [`HostKeyPolicy::Probe`]: the host that answers with it would learn the password.
    #[must_use]
    pub fn with_password_hosts(mut self, hosts: impl IntoIterator<Item = HostAddress>) -> Self {
        self.password_hosts.extend(hosts);
        self
    }

    /// Whether no line of any file accepts or refuses the key, so that the user must confirm it. The same rules apply as
    /// for a connection.
    #[must_use]
    pub fn is_new(&self, shown: &SeenKey) -> bool {
        let name = host_name(&shown.host.to_string(), shown.port);
        !self.entries_for(&name).any(|(_, entry)| !entry.revoked || same(&entry.key, &shown.key))
    }

    /// Whether a line of any file names the host with a key that is not revoked: no key that it shows is new then.
    #[must_use]
    pub fn knows(&self, host: HostAddress, port: u16) -> bool {
        let name = host_name(&host.to_string(), port);
        self.entries_for(&name).any(|(_, entry)| !entry.revoked)
    }

    fn read(&mut self, path: &Path, place: &KeySource) -> Result<String, HostKeyError> {
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

    /// Whether a host was refused because its key is not known.
    #[must_use]
    pub fn refused_unknown(&self) -> bool {
        self.refused_unknown.load(Ordering::Relaxed)
    }

    /// Keys that this process has accepted and the pinned file lacks, ordered by host.
    #[must_use]
    pub fn new_keys(&self) -> Vec<SeenKey> {
        let shown = self.shown.lock();
        let new = shown.iter().filter(|(_, (_, pinned))| !pinned);
        new.map(|((host, port), (key, _))| seen_key(*host, *port, key)).collect()
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

    /// The lines that name a host, in the order of the files.
    fn entries_for(&self, name: &str) -> impl Iterator<Item = &(KeySource, KnownHostsEntry)> {
        self.known.iter().filter(move |(_, entry)| entry.names(name))
    }

    /// The types of a host's known keys. They are requested first, so that the host shows a known key.
    pub(crate) fn algorithms(&self, host: &str, port: u16) -> Vec<Algorithm> {
        let name = host_name(host, port);
        let known = self.entries_for(&name).filter(|(_, entry)| !entry.revoked);
        known.map(|(_, entry)| entry.key.algorithm()).collect()
    }

    /// Accepts the key, or returns why it is refused.
    pub(crate) fn check(&self, host: HostAddress, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        match self.compare(&host.to_string(), port, key)? {
            Comparison::Known => {
                self.remember(host, port, key);
                Ok(())
            }
            Comparison::Unknown => self.check_unknown(host, port, key),
        }
    }

    /// Accepts the key of a jump host if a line of a file has it, or returns why it is refused.
    pub(crate) fn check_jump_host(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        match self.compare(host, port, key)? {
            Comparison::Known => Ok(()),
            Comparison::Unknown => Err(jump_host_not_known(host, key)),
        }
    }

    /// Compares a key with the lines of all files.
    fn compare(&self, host: &str, port: u16, key: &PublicKey) -> Result<Comparison, StepFailure> {
        let name = host_name(host, port);
        let lines: Vec<_> = self.entries_for(&name).collect();
        // As in OpenSSH, a line that revokes the key overrides all others, wherever it is.
        let revoking = lines.iter().find(|(_, entry)| entry.revoked && same(&entry.key, key));
        if let Some((place, entry)) = revoking {
            return Err(revoked(host, key, place, entry.line));
        }
        let known: Vec<_> = lines.iter().filter(|(_, entry)| !entry.revoked).collect();
        // A host may have several keys.
        if known.iter().any(|(_, entry)| same(&entry.key, key)) {
            return Ok(Comparison::Known);
        }
        match known.first() {
            Some((place, entry)) => Err(changed(host, &name, key, place, entry)),
            None => Ok(Comparison::Unknown),
        }
    }

    /// Checks the key of a host without known keys.
    fn check_unknown(&self, host: HostAddress, port: u16, key: &PublicKey) -> Result<(), StepFailure> {
        let shown = self.shown.lock().get(&(host, port)).cloned();
        let before = shown.map(|(before, _)| before).or_else(|| self.accepted.get(&(host, port)).cloned());
        match before {
            Some(before) if !same(&before, key) => Err(replaced(host, &before, key)),
            None if self.policy == HostKeyPolicy::Pinned || self.password_hosts.contains(&host) => {
                self.refused_unknown.store(true, Ordering::Relaxed);
                Err(not_known(host, key, self.password_hosts.contains(&host)))
            }
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
        let mut shown = self.shown.lock();
        shown.insert((host, port), (key.clone(), is_pinned));
    }
}

/// The result of comparing a key with the known keys of a host.
enum Comparison {
    /// The key is known.
    Known,
    /// No key of the host is known.
    Unknown,
}

pub(crate) fn seen_key(host: HostAddress, port: u16, key: &PublicKey) -> SeenKey {
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

#[cfg(test)]
mod tests {
    use kubeon_wire::Category;
    use russh::keys::parse_public_key_base64;

    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIIxuorVMLiuXGxvfFjK+EH50I5WMPWXbLX7L+A3ca37c";
    const OTHER: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIO5j+ReaLQbLzTyR3N1vMetGifxXgzrIxP+3UFBrKIO9";

    /// 10.0.0.1 and its port 2222, as `ssh-keygen -H` writes them.
    const HASHED: &str = "|1|d7OMcQrhsylQynuy9k11r3qqFGI=|cinT0pk8Ct+bOAxf1gk0KCWcnVg=";
    const HASHED_PORT: &str = "|1|DgCegl+f7OxtNmAEkWya2gFfB94=|zv+H5ninEmqUT2dmQQUrHPp0CSg=";

    /// Forms in which a line names the host, and the port of the sshd that each form names.
    const NAMES: [(&str, u16); 6] = [
        (HASHED, 22),
        (HASHED_PORT, 2222),
        ("h1,10.0.0.1", 22),
        ("[10.0.0.1]:2222", 2222),
        ("10.0.0.*,!10.0.0.2", 22),
        ("[10.0.0.?]:*", 2222),
    ];

    #[test]
    fn a_host_that_gets_a_password_must_have_a_known_key() {
        let key = parse_public_key_base64(KEY).unwrap();
        for policy in [HostKeyPolicy::AcceptNew, HostKeyPolicy::Probe] {
            let keys = HostKeys::new(policy).with_password_hosts([host()]);
            let refused = keys.check(host(), 22, &key).unwrap_err();
            assert_eq!(refused.category, Category::UnknownHostKey);
            assert!(
                refused.cause.contains("a password is sent only to a host whose key is known"),
                "{refused}"
            );
            assert!(keys.refused_unknown() && keys.new_keys().is_empty());
            let other = "10.0.0.2".parse().unwrap();
            assert!(keys.check(other, 22, &key).is_ok(), "{policy:?}: a host that gets no password");
            let confirmed = HostKeys::new(policy).with_password_hosts([host()]).with_accepted(&[seen_key(
                host(),
                22,
                &key,
            )]);
            assert!(confirmed.check(host(), 22, &key).is_ok(), "a person confirmed the fingerprint");
        }
    }

    fn host() -> HostAddress {
        "10.0.0.1".parse().unwrap()
    }

    fn key(text: &str) -> PublicKey {
        parse_public_key_base64(text).unwrap()
    }

    fn with_known(policy: HostKeyPolicy, text: &str) -> HostKeys {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        HostKeys::new(policy).with_known_hosts(file.path()).unwrap()
    }

    #[test]
    fn a_known_host_is_not_new_in_every_form_of_its_name() {
        let with_known =
            |names: &str| with_known(HostKeyPolicy::Pinned, &format!("{names} ssh-ed25519 {KEY}\n"));
        for (names, port) in NAMES {
            let keys = with_known(names);
            assert!(!keys.is_new(&seen_key(host(), port, &key(KEY))) && keys.knows(host(), port), "{names}");
            keys.check(host(), port, &key(KEY)).unwrap();
        }
        for (names, port) in [(HASHED, 2222), (HASHED_PORT, 22), ("10.0.0.*,!10.0.0.1", 22), ("10.0.0.2", 22)]
        {
            let keys = with_known(names);
            assert!(keys.is_new(&seen_key(host(), port, &key(KEY))) && !keys.knows(host(), port), "{names}");
            assert!(keys.check(host(), port, &key(KEY)).is_err(), "{names}");
        }
    }

    #[test]
    fn an_accepted_key_does_not_override_the_key_of_a_file() {
        for (names, port) in NAMES {
            for policy in [HostKeyPolicy::Pinned, HostKeyPolicy::AcceptNew, HostKeyPolicy::Probe] {
                let keys = with_known(policy, &format!("{names} ssh-ed25519 {KEY}\n"));
                let shown = seen_key(host(), port, &key(OTHER));
                assert!(!keys.is_new(&shown), "{names}");
                let keys = keys.with_accepted(&[shown]);
                let failure = keys.check(host(), port, &key(OTHER)).unwrap_err();
                assert_eq!(failure.category, Category::HostKeyMismatch);
                let message = failure.to_string();
                assert!(message.contains("another SSH host key than the pinned one"), "{names}: {message}");
                assert!(keys.new_keys().is_empty() && keys.pinned_text().is_empty(), "{names}");
            }
        }
    }

    #[test]
    fn accepting_a_key_does_not_accept_another_key() {
        let shown = seen_key(host(), 22, &key(KEY));
        let keys = with_known(HostKeyPolicy::Pinned, "");
        assert!(keys.is_new(&shown));
        let keys = keys.with_accepted(std::slice::from_ref(&shown));
        let message = keys.check(host(), 22, &key(OTHER)).unwrap_err().to_string();
        assert!(message.contains("than a moment ago"), "{message}");
        let message = keys.check(host(), 2222, &key(KEY)).unwrap_err().to_string();
        assert!(message.contains("is not known"), "another port is another sshd: {message}");
        keys.check(host(), 22, &key(KEY)).unwrap();
        assert_eq!(keys.new_keys(), [shown]);
    }

    #[test]
    fn a_host_may_have_several_keys() {
        let text = format!("10.0.0.1 ssh-ed25519 {KEY}\n{HASHED} ssh-ed25519 {OTHER}\n");
        for shown in [KEY, OTHER] {
            with_known(HostKeyPolicy::Pinned, &text).check(host(), 22, &key(shown)).unwrap();
        }
    }

    #[test]
    fn a_revoked_key_is_refused_wherever_its_line_is() {
        for text in [
            format!("@revoked 10.0.0.1 ssh-ed25519 {KEY}\n"),
            format!("10.0.0.1 ssh-ed25519 {KEY}\n@revoked * ssh-ed25519 {KEY}\n"),
            format!("10.0.0.1 ssh-ed25519 {KEY}\n@revoked {HASHED} ssh-ed25519 {KEY}\n"),
        ] {
            let (keys, shown) =
                (with_known(HostKeyPolicy::AcceptNew, &text), seen_key(host(), 22, &key(KEY)));
            assert!(!keys.is_new(&shown), "{text}");
            let message = keys.with_accepted(&[shown]).check(host(), 22, &key(KEY)).unwrap_err().to_string();
            assert!(message.contains("marked as revoked"), "{text}: {message}");
        }
    }

    #[test]
    fn revoking_another_key_does_not_make_a_host_known() {
        let keys = with_known(HostKeyPolicy::Pinned, &format!("@revoked * ssh-ed25519 {OTHER}\n"));
        assert!(keys.is_new(&seen_key(host(), 22, &key(KEY))));
        let message = keys.check(host(), 22, &key(KEY)).unwrap_err().to_string();
        assert!(message.contains("is not known"), "{message}");
    }
}
