//! Newtypes for names, addresses, versions and digests. Other crates use them instead of `String`.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

/// Why a text is not a valid name, address, version or digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not an RFC 1123 label.
    #[error(
        "{kind} {value:?} is not a DNS label: 1 to 63 of a-z, 0-9 and '-', a letter or digit first and last"
    )]
    NotALabel {
        /// The kind of name: `cluster name`, `host name`.
        kind: &'static str,
        /// The refused text.
        value: String,
    },
    /// Not an IPv4 address.
    #[error("{0:?} is not an IPv4 address")]
    NotAnAddress(String),
    /// Not an IPv4 network in CIDR notation, or one with host bits set.
    #[error("{value:?} is not a network in CIDR notation{hint}")]
    NotACidr {
        /// The refused text.
        value: String,
        /// Empty, or a suggestion.
        hint: String,
    },
    /// Not `vMAJOR.MINOR.PATCH`.
    #[error("{0:?} is not a Kubernetes version such as v1.36.3")]
    NotAVersion(String),
    /// Not 64 hexadecimal digits.
    #[error("{0:?} is not a SHA-256 digest")]
    NotADigest(String),
    /// Not a text of the expected form.
    #[error("{value:?} is not {expected}")]
    Malformed {
        /// The expected form, with its article: `a DNS name such as …`.
        expected: &'static str,
        /// The refused text.
        value: String,
    },
}

pub(crate) fn is_label(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&text.len())
        && text.chars().all(|c| edge(c) || c == '-')
        && text.starts_with(edge)
        && text.ends_with(edge)
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = crate::NameError;
            fn try_from(value: String) -> Result<Self, crate::NameError> {
                value.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.0
            }
        }
    };
}
pub(crate) use text_newtype;

text_newtype! {
    /// The name of a business cluster: an RFC 1123 label of 1 to 63 characters.
    ClusterName
}
text_newtype! {
    /// The name of a host and of its Node: an RFC 1123 label of 1 to 63 characters.
    HostName
}
text_newtype! {
    /// A SHA-256 digest: 64 lower-case hexadecimal digits, without a prefix.
    Digest
}

impl FromStr for ClusterName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_label(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError::NotALabel { kind: "cluster name", value: text.to_owned() })
    }
}

impl FromStr for HostName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_label(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError::NotALabel { kind: "host name", value: text.to_owned() })
    }
}

impl FromStr for Digest {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let valid = hex.len() == 64 && hex.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
        if valid { Ok(Self(hex.to_owned())) } else { Err(NameError::NotADigest(text.to_owned())) }
    }
}

/// The address of a host on the network of its cluster. Only IPv4 is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostAddress(Ipv4Addr);

impl HostAddress {
    /// The address as the standard library's type.
    #[must_use]
    pub fn ip(self) -> Ipv4Addr {
        self.0
    }
}

impl From<Ipv4Addr> for HostAddress {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip)
    }
}

impl FromStr for HostAddress {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map(Self).map_err(|_| NameError::NotAnAddress(text.to_owned()))
    }
}

impl TryFrom<String> for HostAddress {
    type Error = NameError;
    fn try_from(value: String) -> Result<Self, NameError> {
        value.parse()
    }
}

impl From<HostAddress> for String {
    fn from(value: HostAddress) -> String {
        value.0.to_string()
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// An IPv4 network without host bits, such as `10.64.0.0/12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr(Ipv4Net);

impl Cidr {
    /// The network as a type of `ipnet`.
    #[must_use]
    pub fn net(self) -> Ipv4Net {
        self.0
    }

    /// The address at `offset` in the network, from 0; `None` when it is outside of the network.
    #[must_use]
    pub fn nth(self, offset: u32) -> Option<Ipv4Addr> {
        let address = Ipv4Addr::from(u32::from(self.0.network()).checked_add(offset)?);
        self.0.contains(&address).then_some(address)
    }

    /// Whether the two networks have an address in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.0.contains(&other.0.network()) || other.0.contains(&self.0.network())
    }
}

impl FromStr for Cidr {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |hint: String| NameError::NotACidr { value: text.to_owned(), hint };
        let net: Ipv4Net = text.parse().map_err(|_| refuse(String::new()))?;
        if net.trunc() != net {
            return Err(refuse(format!(": it has host bits set; did you mean {}?", net.trunc())));
        }
        Ok(Self(net))
    }
}

impl TryFrom<String> for Cidr {
    type Error = NameError;
    fn try_from(value: String) -> Result<Self, NameError> {
        value.parse()
    }
}

impl From<Cidr> for String {
    fn from(value: Cidr) -> String {
        value.0.to_string()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

/// A Kubernetes version: `vMAJOR.MINOR.PATCH`, ordered by number. The `v` is optional on input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// Always 1 so far.
    pub major: u32,
    /// The minor release, such as 36.
    pub minor: u32,
    /// The patch release.
    pub patch: u32,
}

impl FromStr for Version {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = || NameError::NotAVersion(text.to_owned());
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.').map(|part| {
            let digits = !part.is_empty() && part.len() <= 5 && part.chars().all(|c| c.is_ascii_digit());
            if digits { part.parse::<u32>().map_err(|_| refuse()) } else { Err(refuse()) }
        });
        let mut next = || numbers.next().ok_or_else(refuse)?;
        let version = Self { major: next()?, minor: next()?, patch: next()? };
        if numbers.next().is_some() { Err(refuse()) } else { Ok(version) }
    }
}

impl TryFrom<String> for Version {
    type Error = NameError;
    fn try_from(value: String) -> Result<Self, NameError> {
        value.parse()
    }
}

impl From<Version> for String {
    fn from(value: Version) -> String {
        value.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("v{}.{}.{}", self.major, self.minor, self.patch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_dns_labels() {
        for good in ["a", "demo", "a-1", &"x".repeat(63)] {
            assert!(good.parse::<ClusterName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "x;rm -rf /", &"x".repeat(64)] {
            assert!(bad.parse::<ClusterName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn orders_versions_by_number() {
        let v = |text: &str| text.parse::<Version>().unwrap();
        assert!(v("v1.9.0") < v("1.36.3"));
        assert_eq!(v("1.36.3").to_string(), "v1.36.3");
        for bad in ["1.36", "v1.36.3.1", "1.36.x", "", "v1..3", "1.36.+3"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn suggests_the_network_without_host_bits() {
        let error = "10.64.3.7/12".parse::<Cidr>().unwrap_err();
        assert!(error.to_string().contains("10.64.0.0/12"), "{error}");
    }

    #[test]
    fn overlap_is_symmetric() {
        let net = |text: &str| text.parse::<Cidr>().unwrap();
        assert!(net("10.64.0.0/12").overlaps(net("10.65.0.0/16")));
        assert!(net("10.65.0.0/16").overlaps(net("10.64.0.0/12")));
        assert!(!net("10.64.0.0/12").overlaps(net("10.96.0.0/12")));
    }

    #[test]
    fn nth_counts_from_the_first_address() {
        let net: Cidr = "10.64.0.0/12".parse().unwrap();
        assert_eq!(net.nth(10).unwrap().to_string(), "10.64.0.10");
        assert_eq!("10.0.0.0/30".parse::<Cidr>().unwrap().nth(4), None);
    }
}
