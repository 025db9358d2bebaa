//! What the signatures of both providers share.

use ring::hmac::{HMAC_SHA256, Key, sign};
use sha2::{Digest as _, Sha256};

/// The SHA-256 digest in hexadecimal digits.
pub(crate) fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

/// The HMAC with SHA-256.
pub(crate) fn hmac(key: &[u8], content: &str) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), content.as_bytes()).as_ref().to_vec()
}
