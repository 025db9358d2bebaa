//! Why the key of a host is refused, as failures.

use kubeon_api::HostAddress;
use kubeon_wire::{Category, StepFailure};
use russh::keys::{Algorithm, HashAlg, PublicKey};

use crate::failure::failure;
use crate::known_hosts::{KeySource, KnownHostsEntry};

/// In the form of `ssh-keygen -l`: `ED25519 SHA256:…`.
pub(crate) fn fingerprint(key: &PublicKey) -> String {
    let kind = match key.algorithm() {
        Algorithm::Ed25519 => "ED25519",
        Algorithm::Ecdsa { .. } => "ECDSA",
        Algorithm::Rsa { .. } => "RSA",
        _ => "key",
    };
    format!("{kind} {}", key.fingerprint(HashAlg::Sha256))
}

pub(crate) fn changed(
    host: &str,
    name: &str,
    key: &PublicKey,
    place: &KeySource,
    entry: &KnownHostsEntry,
) -> StepFailure {
    let forget = match place {
        KeySource::File(path) => {
            let path = path.display().to_string();
            let file = shlex::try_quote(&path).map_or_else(|_| path.clone(), |quoted| quoted.into_owned());
            format!("remove the old key with: ssh-keygen -R '{name}' -f {file}")
        }
        KeySource::Elsewhere(_) => format!("remove that line from {place}"),
    };
    let cause = format!(
        "{host} shows another SSH host key than the pinned one: {} is expected ({place}, line {}), {} was shown; \
         the connection may be intercepted. If the host was reinstalled, {forget}",
        fingerprint(&entry.key),
        entry.line,
        fingerprint(key),
    );
    failure(Category::HostKeyMismatch, cause)
}

pub(crate) fn replaced(host: HostAddress, before: &PublicKey, key: &PublicKey) -> StepFailure {
    let cause = format!(
        "{host} shows another SSH host key than a moment ago ({} then, {} now): the connection may be intercepted",
        fingerprint(before),
        fingerprint(key)
    );
    failure(Category::HostKeyMismatch, cause)
}

pub(crate) fn revoked(host: &str, key: &PublicKey, place: &KeySource, line: usize) -> StepFailure {
    let cause = format!(
        "{host} shows the SSH host key {}, which is marked as revoked in {place}, line {line}; give the host a new key",
        fingerprint(key),
    );
    failure(Category::HostKeyMismatch, cause)
}

pub(crate) fn not_known(host: HostAddress, key: &PublicKey, gets_password: bool) -> StepFailure {
    let why = if gets_password { ", and a password is sent only to a host whose key is known" } else { "" };
    let cause = format!(
        "the SSH host key of {host} is not known{why}: it shows {}; compare it with the public key in /etc/ssh on the host",
        fingerprint(key)
    );
    failure(Category::UnknownHostKey, cause)
}

pub(crate) fn jump_host_not_known(host: &str, key: &PublicKey) -> StepFailure {
    let cause = format!(
        "the SSH host key of jump host {host} is not known: it shows {}; compare it with the public key in /etc/ssh on the \
         jump host, and log in to it once with ssh",
        fingerprint(key)
    );
    failure(Category::UnknownHostKey, cause)
}
