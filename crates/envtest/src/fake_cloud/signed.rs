//! Checks signatures as the providers do: the request is signed again from what arrived.

use axum::body::Bytes;
use axum::http::request::Parts;
use ring::hmac::{HMAC_SHA256, Key, sign};
use sha2::{Digest as _, Sha256};

pub(super) const SECRET_ID: &str = "AKID-of-the-test";
pub(super) const SECRET_KEY: &str = "key-of-the-test";

/// A request as it arrived.
pub(super) struct SignedRequest<'a> {
    pub(super) head: &'a Parts,
    pub(super) body: &'a Bytes,
}

impl SignedRequest<'_> {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name)?.to_str().ok()
    }

    /// The parameters of the query, decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let query = self.head.uri.query()?;
        let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
        Some(percent_decoded(pair))
    }

    pub(super) fn check_tencent(&self) -> Result<(), String> {
        let given = self.header("authorization").ok_or("no authorization")?;
        let seconds = self.header("x-tc-timestamp").ok_or("no timestamp")?;
        let scope = between(given, "/", ", SignedHeaders=")?;
        let mut words = scope.split('/');
        let text = format!(
            "TC3-HMAC-SHA256\n{seconds}\n{scope}\n{}",
            hex(&Sha256::digest(self.canonical(between(given, "SignedHeaders=", ", Signature=")?)?))
        );
        let mut key = format!("TC3{}", SECRET_KEY).into_bytes();
        for word in words.by_ref() {
            key = mac(&key, word);
        }
        same(between(given, "Credential=", "/")?, SECRET_ID)?;
        same(after(given, "Signature=")?, &hex(&mac(&key, &text)))
    }

    pub(super) fn check_aliyun(&self) -> Result<(), String> {
        let given = self.header("authorization").ok_or("no authorization")?;
        let request = self.canonical(between(given, "SignedHeaders=", ",Signature=")?)?;
        let text = format!("ACS3-HMAC-SHA256\n{}", hex(&Sha256::digest(request)));
        same(between(given, "Credential=", ",")?, SECRET_ID)?;
        same(after(given, "Signature=")?, &hex(&mac(SECRET_KEY.as_bytes(), &text)))
    }

    fn canonical(&self, signed: &str) -> Result<String, String> {
        let uri = &self.head.uri;
        let mut text = format!("{}\n{}\n{}\n", self.head.method, uri.path(), uri.query().unwrap_or_default());
        for name in signed.split(';') {
            let value = self.header(name).ok_or_else(|| format!("no header {name}"))?;
            text.push_str(&format!("{name}:{value}\n"));
        }
        Ok(format!("{text}\n{signed}\n{}", hex(&Sha256::digest(self.body))))
    }
}

fn same(given: &str, expected: &str) -> Result<(), String> {
    if given == expected { Ok(()) } else { Err(format!("{given} is not {expected}")) }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Result<&'a str, String> {
    let rest = after(text, begin)?;
    rest.split_once(end).map(|(found, _)| found).ok_or_else(|| format!("no {end} in {text}"))
}

fn after<'a>(text: &'a str, begin: &str) -> Result<&'a str, String> {
    text.split_once(begin).map(|(_, rest)| rest).ok_or_else(|| format!("no {begin} in {text}"))
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digits = if byte == b'%' { rest.next().zip(rest.next()) } else { None };
        let decoded = digits
            .and_then(|(high, low)| u8::from_str_radix(&String::from_utf8_lossy(&[high, low]), 16).ok());
        bytes.push(decoded.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
