//! Newtypes for values that are written into certificates, unit files and SSH command lines.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{Cidr, NameError, is_label, text_newtype};

text_newtype! {
    /// A DNS name: 1 to 253 characters, labels joined by dots. The last label contains a letter.
    DnsName
}
text_newtype! {
    /// An IPv4 address or a DNS name, without a port.
    Endpoint
}
text_newtype! {
    /// An image registry with an optional port and path: `registry.example.com:5000/mirror`.
    Registry
}
text_newtype! {
    /// A base URL: `https://`, an [`Endpoint`], an optional port and an optional path.
    HttpsUrl
}
text_newtype! {
    /// A base URL: `http://` or `https://`, an [`Endpoint`], an optional port and an optional path. It has no password.
    HttpUrl
}
text_newtype! {
    /// What is reached without a proxy: an address, a network, or a DNS name with or without a dot before it.
    NoProxy
}
text_newtype! {
    /// Certificates as PEM.
    CaBundle
}
text_newtype! {
    /// The name of an account on a host: 1 to 32 of a-z, 0-9, `_` and `-`; the first is a letter or `_`.
    LoginName
}

fn malformed(expected: &'static str, value: &str) -> NameError {
    NameError::Malformed { expected, value: value.to_owned() }
}

fn is_dns_name(text: &str) -> bool {
    let last_has_letter =
        text.rsplit('.').next().is_some_and(|last| last.chars().any(|c| c.is_ascii_lowercase()));
    text.len() <= 253 && last_has_letter && text.split('.').all(is_label)
}

impl FromStr for DnsName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if is_dns_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("a DNS name such as apiserver.cluster.local", text))
    }
}

impl Endpoint {
    /// The address; `None` when it is a name.
    #[must_use]
    pub fn ip(&self) -> Option<Ipv4Addr> {
        self.0.parse().ok()
    }
}

impl From<Ipv4Addr> for Endpoint {
    fn from(ip: Ipv4Addr) -> Self {
        Self(ip.to_string())
    }
}

impl FromStr for Endpoint {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.parse::<Ipv4Addr>().is_ok() || is_dns_name(text) {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("an IPv4 address or a DNS name", text))
    }
}

impl FromStr for Registry {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let mut parts = text.split('/');
        let host = parts.next().unwrap_or_default();
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        let in_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let valid = text.len() <= 255
            && name.parse::<Endpoint>().is_ok()
            && port.is_none_or(is_port)
            && parts.all(|part| part.starts_with(edge) && part.ends_with(edge) && part.chars().all(in_path));
        if valid {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("an image registry such as registry.example.com:5000/mirror", text))
    }
}

impl FromStr for HttpsUrl {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.strip_prefix("https://").is_some_and(is_location) {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("a URL that begins with https://, such as https://gateway.example.com:8443", text))
    }
}

impl FromStr for HttpUrl {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let location = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        if text.len() <= 255 && location.is_some_and(is_location) {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("a URL without a password, such as https://mirror.example.com:8443", text))
    }
}

/// Whether the text is `HOST[:PORT][/PATH]`.
fn is_location(text: &str) -> bool {
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let in_path = |c: char| c.is_ascii_alphanumeric() || "/._~-".contains(c);
    name.parse::<Endpoint>().is_ok() && port.is_none_or(is_port) && path.chars().all(in_path)
}

impl FromStr for NoProxy {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let name = text.strip_prefix('.').unwrap_or(text);
        if text.parse::<Cidr>().is_ok() || name.parse::<Endpoint>().is_ok() {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("an address, a network or a DNS name, such as 10.0.0.0/8 or .example.com", text))
    }
}

impl FromStr for CaBundle {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
        let inside =
            |line: &str| line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        let mut open = false;
        let mut certificates = 0;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            open = match (open, line) {
                (false, line) if line == begin => true,
                (true, line) if line == end => {
                    certificates += 1;
                    false
                }
                (true, line) if inside(line) => true,
                (false, line) if line.starts_with('#') => false,
                _ => return Err(not_certificates(line)),
            };
        }
        if certificates == 0 || open { Err(not_certificates("")) } else { Ok(Self(text.to_owned())) }
    }
}

fn not_certificates(line: &str) -> NameError {
    malformed("certificates as PEM (-----BEGIN CERTIFICATE-----)", line)
}

fn is_port(text: &str) -> bool {
    !text.starts_with(['0', '+']) && text.parse::<u16>().is_ok()
}

impl FromStr for LoginName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        let rest = |c: char| first(c) || c.is_ascii_digit() || c == '-';
        if text.len() <= 32 && text.starts_with(first) && text.chars().all(rest) {
            return Ok(Self(text.to_owned()));
        }
        Err(malformed("an account name such as root or kube-admin", text))
    }
}

/// A range of ports, both ends included: `30000-32767`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The range from `first` to `last`, which may be equal.
    ///
    /// # Errors
    /// When `first` is 0 or above `last`.
    pub fn new(first: u16, last: u16) -> Result<Self, NameError> {
        if first == 0 || first > last {
            return Err(malformed(Self::EXPECTED, &format!("{first}-{last}")));
        }
        Ok(Self { first, last })
    }

    const EXPECTED: &str = "a port range such as 30000-32767, the lower port first";

    /// The lowest port.
    #[must_use]
    pub fn first(self) -> u16 {
        self.first
    }

    /// The highest port.
    #[must_use]
    pub fn last(self) -> u16 {
        self.last
    }
}

impl FromStr for PortRange {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = || malformed(Self::EXPECTED, text);
        let (first, last) = text.split_once('-').ok_or_else(refuse)?;
        if !is_port(first) || !is_port(last) {
            return Err(refuse());
        }
        let port = |text: &str| text.parse().map_err(|_| refuse());
        Self::new(port(first)?, port(last)?)
    }
}

impl TryFrom<String> for PortRange {
    type Error = NameError;
    fn try_from(value: String) -> Result<Self, NameError> {
        value.parse()
    }
}

impl From<PortRange> for String {
    fn from(value: PortRange) -> String {
        value.to_string()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.first, self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_addresses_and_names_and_refuses_shell_syntax() {
        for good in ["10.0.0.1", "api.prod", "a", "x1.example.com"] {
            assert!(good.parse::<Endpoint>().is_ok(), "{good}");
        }
        for bad in ["", "300.1.1.1", "1.2.3", "$(id)", "a b", "-x.com", "a..b", "A.b", "h:6443", "::1"] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn accepts_only_https_urls_without_user_and_query() {
        for good in ["https://gateway.example", "https://10.0.0.1:8443/kubeon/", "https://a"] {
            assert!(good.parse::<HttpsUrl>().is_ok(), "{good}");
        }
        for bad in [
            "",
            "https://",
            "http://a",
            "HTTPS://a",
            "https://a:0",
            "https://u@a",
            "https://a?b",
            "https://a/ b",
        ] {
            assert!(bad.parse::<HttpsUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn accepts_registries_with_port_and_path() {
        for good in ["registry.k8s.io", "10.0.0.9:5000", "r.example.com:5000/mirror/k8s", "localhost"] {
            assert!(good.parse::<Registry>().is_ok(), "{good}");
        }
        for bad in
            ["", "https://r.io", "r.io/", "r.io:0", "r.io:99999", "r.io/$(id)", "r.io//a", "r.io/../etc"]
        {
            assert!(bad.parse::<Registry>().is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_a_range_whose_first_port_is_above_its_last() {
        let range: PortRange = "10000-30000".parse().unwrap();
        assert_eq!((range.first(), range.last()), (10000, 30000));
        for bad in ["30000-10000", "0-5", "1", "1-", "-1", "1-65536", "+1-5", "01-5"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn refuses_logins_that_are_options_or_commands() {
        for bad in ["", "-oProxyCommand=x", "root;id", "Root", "a@b", &"x".repeat(33)] {
            assert!(bad.parse::<LoginName>().is_err(), "{bad}");
        }
        assert!("kube-admin_1".parse::<LoginName>().is_ok());
    }
}
