//! References to the secrets of a cluster, which plans hold in place of their text.

use std::fmt;

use kubeon_api::{ClusterKeys, KeyNumber};
use serde::{Deserialize, Serialize};

/// The certificate authorities of a cluster, each with its own key: a key that signs for one purpose cannot
/// sign for another. In JSON the name is written as in [`CertificateAuthority::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateAuthority {
    /// For etcd members and their clients.
    Etcd,
    /// For the API server as a client of extension API servers.
    FrontProxy,
    /// For kubelets as servers.
    KubeletServing,
    /// For the API server and its clients.
    Kubernetes,
}

impl CertificateAuthority {
    /// All authorities.
    pub const ALL: [Self; 4] = [Self::Kubernetes, Self::Etcd, Self::FrontProxy, Self::KubeletServing];

    /// Its name, such as `front-proxy`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::FrontProxy => "front-proxy",
            Self::KubeletServing => "kubelet-serving",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reference to a secret. It does not hold the text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "secret")]
pub enum SecretRef {
    /// The certificates of a certificate authority that are trusted, PEM: first that of the key that signs.
    CaCertificate {
        /// The authority.
        ca: CertificateAuthority,
    },
    /// The certificate of the authority that signs now, alone, PEM: what belongs to [`SecretRef::CaKey`].
    SigningCertificate {
        /// The authority.
        ca: CertificateAuthority,
    },
    /// The private key of a certificate authority, PEM.
    CaKey {
        /// The authority.
        ca: CertificateAuthority,
    },
    /// The certificate of a leaf, PEM. The certificate and the key of equal [`Leaf`] values belong together.
    LeafCertificate(Leaf),
    /// The private key of a leaf, PEM.
    LeafKey(Leaf),
    /// The private key that signs service account tokens, PEM.
    ServiceAccountKey,
    /// The public keys of service account tokens that are trusted, PEM: first that of [`SecretRef::ServiceAccountKey`].
    ServiceAccountPublicKey,
    /// The `EncryptionConfiguration` of the API servers, with the keys for Secrets in etcd. It is the same on every
    /// master.
    EncryptionConfiguration {
        /// Whether Secrets are written encrypted. Otherwise encrypted Secrets can be read, and Secrets are written as
        /// they are.
        encrypts: bool,
    },
}

impl SecretRef {
    /// What of the keys of the cluster its text depends on: which keys are used, and which are trusted as well.
    #[must_use]
    pub fn keys(&self, keys: ClusterKeys) -> (KeyNumber, Option<KeyNumber>) {
        let also = match self {
            Self::CaCertificate { .. }
            | Self::ServiceAccountPublicKey
            | Self::EncryptionConfiguration { .. } => keys.also_trusted(),
            Self::SigningCertificate { .. }
            | Self::CaKey { .. }
            | Self::LeafCertificate(_)
            | Self::LeafKey(_)
            | Self::ServiceAccountKey => None,
        };
        (keys.signing(), also)
    }
}

/// The content of a leaf certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaf {
    /// The authority that signs it.
    pub ca: CertificateAuthority,
    /// Subject common name.
    pub common_name: String,
    /// Subject organizations: groups, for client certificates.
    pub organizations: Vec<String>,
    /// DNS names for which it is valid.
    pub dns_names: Vec<String>,
    /// Addresses for which it is valid.
    pub addresses: Vec<std::net::Ipv4Addr>,
    /// The allowed usage.
    pub usage: Usage,
    /// Hours from issue to expiry.
    pub hours: u32,
}

/// The allowed usage of a leaf certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Usage {
    /// Client authentication.
    Client,
    /// Server authentication.
    Server,
    /// Both, for etcd members.
    Both,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_serialized_as_its_name() {
        for ca in CertificateAuthority::ALL {
            let text = serde_json::to_string(&ca).unwrap();
            assert_eq!(text, format!("\"{ca}\""));
            assert_eq!(serde_json::from_str::<CertificateAuthority>(&text).unwrap(), ca);
        }
        assert!(serde_json::from_str::<CertificateAuthority>("\"unknown\"").is_err());
    }

    #[test]
    fn only_what_is_trusted_depends_on_the_other_keys() {
        let ca = CertificateAuthority::Etcd;
        let trust = ClusterKeys::default().advanced();
        assert_eq!(SecretRef::CaKey { ca }.keys(trust), SecretRef::CaKey { ca }.keys(ClusterKeys::default()));
        let trusted = SecretRef::CaCertificate { ca };
        assert_ne!(trusted.keys(trust), trusted.keys(ClusterKeys::default()));
        assert_ne!(trusted.keys(trust), trusted.keys(trust.advanced()), "the order changes");
    }
}
