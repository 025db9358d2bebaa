//! Ports for a run that only observes: without secrets and parts.

use std::path::PathBuf;

use kubeon_api::Digest;
use kubeon_ports::{Blobs, SecretError, Secrets};
use kubeon_wire::SecretRef;

/// Resolves no secret and finds no part.
pub struct NoSecrets;

impl Secrets for NoSecrets {
    fn resolve(&self, _: &SecretRef) -> Result<String, SecretError> {
        Err(SecretError { what: "a secret".to_owned(), why: "this run only observes".to_owned() })
    }
}

impl Blobs for NoSecrets {
    fn blob(&self, _: &Digest) -> Option<PathBuf> {
        None
    }
}
