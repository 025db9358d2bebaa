//! Secret text. `Debug` hides it and `Display` is not implemented; serializing writes it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// A password or passphrase.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A private SSH key: PEM, or the base64 of a PEM. It is serialized as it was written; [`Self::pem`] is the same for both.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrivateKey {
    given: String,
    pem: String,
}

/// Why a text is not a private key. It never contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PrivateKeyError {
    /// Neither PEM nor the base64 of a PEM.
    #[error(
        "this is not a private key: it must be PEM (-----BEGIN … PRIVATE KEY-----) or the base64 of a PEM"
    )]
    NotPem,
    /// A public key instead of a private key.
    #[error("this is a public key; the private key is in the file of that name without .pub")]
    Public,
    /// PEM with a damaged body or without its END line.
    #[error("this private key is damaged: its PEM body is not base64, or its END line is missing")]
    Damaged,
}

impl PrivateKey {
    /// The key as PEM with `\n` line ends: the exact content of a key file.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

fn to_pem(text: &str) -> Result<String, PrivateKeyError> {
    let text = text.trim();
    if text.starts_with("ssh-") || text.starts_with("ecdsa-") {
        return Err(PrivateKeyError::Public);
    }
    let pem = if text.starts_with("-----BEGIN ") { text.to_owned() } else { from_base64(text)? };
    let lines: Vec<&str> = pem.trim().lines().map(str::trim).collect();
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return Err(PrivateKeyError::NotPem);
    };
    let label = first.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
    let label = label.filter(|label| label.ends_with("PRIVATE KEY")).ok_or(PrivateKeyError::NotPem)?;
    let body = lines.get(1..lines.len() - 1).unwrap_or_default();
    if *last != format!("-----END {label}-----") || !is_body(body) {
        return Err(PrivateKeyError::Damaged);
    }
    Ok(lines.join("\n") + "\n")
}

/// Base64 lines, after the headers (`Proc-Type: …`) and blank line of old encrypted keys.
fn is_body(lines: &[&str]) -> bool {
    let encoded: String = lines.iter().filter(|line| !line.contains(':')).copied().collect();
    !encoded.is_empty() && STANDARD.decode(encoded).is_ok()
}

fn from_base64(text: &str) -> Result<String, PrivateKeyError> {
    let packed: String = text.split_whitespace().collect();
    let bytes = STANDARD.decode(packed).map_err(|_| PrivateKeyError::NotPem)?;
    String::from_utf8(bytes).map_err(|_| PrivateKeyError::NotPem)
}

impl FromStr for PrivateKey {
    type Err = PrivateKeyError;
    fn from_str(text: &str) -> Result<Self, PrivateKeyError> {
        Ok(Self { given: text.to_owned(), pem: to_pem(text)? })
    }
}

impl TryFrom<String> for PrivateKey {
    type Error = PrivateKeyError;
    fn try_from(text: String) -> Result<Self, PrivateKeyError> {
        text.parse()
    }
}

impl From<PrivateKey> for String {
    fn from(key: PrivateKey) -> String {
        key.given
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> String {
        format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
            STANDARD.encode("no real key")
        )
    }

    /// Contract B, case 14.
    #[test]
    fn pem_and_its_base64_give_the_same_file() {
        let pem = sample();
        let direct: PrivateKey = pem.parse().unwrap();
        let encoded: PrivateKey = STANDARD.encode(&pem).parse().unwrap();
        let windows: PrivateKey = pem.replace('\n', "\r\n").parse().unwrap();
        assert_eq!(direct.pem(), pem);
        assert_eq!(encoded.pem(), pem);
        assert_eq!(windows.pem(), pem);
    }

    #[test]
    fn keeps_the_text_as_written() {
        let encoded = STANDARD.encode(sample());
        let key: PrivateKey = encoded.parse().unwrap();
        assert_eq!(String::from(key), encoded);
    }

    /// Contract B, case 14: an invalid key is refused.
    #[test]
    fn refuses_text_that_is_not_a_private_key() {
        let refused = |text: &str| text.parse::<PrivateKey>().unwrap_err();
        assert_eq!(refused("ssh-ed25519 AAAA me@home"), PrivateKeyError::Public);
        assert_eq!(refused("hello"), PrivateKeyError::NotPem);
        assert_eq!(refused(&sample().replace("OPENSSH PRIVATE KEY", "CERTIFICATE")), PrivateKeyError::NotPem);
        assert_eq!(refused(sample().split("-----END").next().unwrap()), PrivateKeyError::Damaged);
        assert_eq!(refused(&sample().replace("KEY-----\n", "KEY-----\n!")), PrivateKeyError::Damaged);
        assert_eq!(refused(""), PrivateKeyError::NotPem);
    }

    #[test]
    fn hides_itself_in_debug_output() {
        let shown = format!("{:?} {:?}", Secret::new("hunter2"), sample().parse::<PrivateKey>().unwrap());
        assert_eq!(shown, "(hidden) (hidden)");
    }
}
