//! The TLS settings of servers.

/// The lowest version, as the Kubernetes programs name it.
pub(crate) const MIN_VERSION: &str = "VersionTLS12";

/// The cipher suites of TLS 1.2: authenticated encryption with forward secrecy. TLS 1.3 has its own suites, which cannot be
/// chosen.
pub(crate) const CIPHER_SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];
