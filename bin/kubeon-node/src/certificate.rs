//! Reads certificate files.

use sha2::{Digest as _, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_SUBJECT_ALT_NAME};
use x509_parser::pem::Pem;

/// Calls `read` with the first certificate in a PEM text, which may also contain a key; `None` if there is none.
pub fn with_first<T>(text: &[u8], read: impl FnOnce(&X509Certificate<'_>) -> T) -> Option<T> {
    let pem = Pem::iter_from_buffer(text).map_while(Result::ok).find(|pem| pem.label == "CERTIFICATE")?;
    pem.parse_x509().ok().map(|certificate| read(&certificate))
}

/// A digest of everything in a leaf certificate that a renewal keeps: issuer, subject, key, names, usages. `None` if
/// the text is not a certificate, or is the certificate of an authority.
#[must_use]
pub fn leaf_identity(text: &[u8]) -> Option<String> {
    with_first(text, |leaf| (!leaf.is_ca()).then(|| identity(leaf)))?
}

/// Whether the first certificate in `new` has issuer, subject and names of the one in `old`, however they are encoded.
#[must_use]
pub fn is_renewal_of(old: &[u8], new: &[u8]) -> bool {
    let kept = |leaf: &X509Certificate<'_>| {
        let names = leaf.get_extension_unique(&OID_X509_EXT_SUBJECT_ALT_NAME).ok().flatten();
        let names = names.map(|names| names.value.to_vec());
        (leaf.issuer().to_string(), leaf.subject().to_string(), names)
    };
    let (old, new) = (with_first(old, kept), with_first(new, kept));
    old.is_some() && old == new
}

fn identity(leaf: &X509Certificate<'_>) -> String {
    let extension = |oid| leaf.get_extension_unique(oid).ok().flatten().map_or(&[][..], |found| found.value);
    let parts = [
        leaf.issuer().as_raw(),
        leaf.subject().as_raw(),
        leaf.public_key().raw,
        extension(&OID_X509_EXT_SUBJECT_ALT_NAME),
        extension(&OID_X509_EXT_EXTENDED_KEY_USAGE),
    ];
    let mut sum = Sha256::new();
    for part in parts {
        sum.update((part.len() as u64).to_be_bytes());
        sum.update(part);
    }
    hex::encode(sum.finalize())
}
