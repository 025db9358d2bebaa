//! Files of a host, and the certificates in them.

use kubeon_wire::{CertificateAuthority, Content, File, Leaf, SecretRef, Usage};

use crate::context::ObservedHost;

/// A configuration file, for root only.
pub(crate) fn config(path: String, text: String) -> File {
    File { path, mode: 0o600, content: Content::Text(text) }
}

/// A file that programs of other users read.
pub(crate) fn readable(path: String, text: String) -> File {
    File { mode: 0o644, ..config(path, text) }
}

/// A file with a secret, for root only.
pub(crate) fn secret(path: String, secret: SecretRef) -> File {
    File { path, mode: 0o600, content: Content::Secret(secret) }
}

/// The certificate of an authority.
pub(crate) fn authority(path: String, ca: CertificateAuthority) -> File {
    File { path, mode: 0o644, content: Content::Secret(SecretRef::CaCertificate { ca }) }
}

/// The certificate and the key of a leaf, as `NAME.crt` and `NAME.key`.
pub(crate) fn pair(name: &str, leaf: Leaf) -> [File; 2] {
    let certificate = Content::Secret(SecretRef::LeafCertificate(leaf.clone()));
    [
        File { path: format!("{name}.crt"), mode: 0o644, content: certificate },
        secret(format!("{name}.key"), SecretRef::LeafKey(leaf)),
    ]
}

/// Leaf certificates are valid for one year. Hosts renew them after two thirds of their life.
const LEAF_HOURS: u32 = 365 * 24;

/// A client certificate.
pub(crate) fn client(ca: CertificateAuthority, common_name: &str, organizations: &[&str]) -> Leaf {
    Leaf {
        ca,
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|&o| o.to_owned()).collect(),
        dns_names: Vec::new(),
        addresses: Vec::new(),
        usage: Usage::Client,
        hours: LEAF_HOURS,
    }
}

/// A server certificate for the name and the address of the host and for localhost.
pub(crate) fn server(
    ca: CertificateAuthority,
    common_name: &str,
    host: &ObservedHost<'_>,
    usage: Usage,
) -> Leaf {
    let mut addresses = vec![std::net::Ipv4Addr::LOCALHOST, host.ip()];
    // People reach the host at its login address.
    addresses.extend(host.spec.internal_address.map(|_| host.address().ip()));
    Leaf {
        ca,
        common_name: common_name.to_owned(),
        organizations: Vec::new(),
        dns_names: vec!["localhost".to_owned(), host.name.to_string()],
        addresses,
        usage,
        hours: LEAF_HOURS,
    }
}
