//! The text of OpenSSH's `known_hosts`: plain and hashed names, patterns, ports, `@revoked`.
//!
//! The parser of the crate `ssh-key` is not used. It refuses lines that OpenSSH accepts (a test shows them), has no line
//! numbers for errors, and does not match a host with wildcards (`*`, `?`), negation (`!`) or hashed names.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use russh::keys::{PublicKey, parse_public_key_base64};

/// A line with a key.
#[derive(Debug, Clone)]
pub(crate) struct KnownHostsEntry {
    patterns: String,
    /// Whether the key is marked as revoked.
    pub(crate) revoked: bool,
    pub(crate) key: PublicKey,
    /// Counted from 1.
    pub(crate) line: usize,
}

impl KnownHostsEntry {
    /// The same key as that of another host.
    pub(crate) fn renamed(&self, name: &str) -> Self {
        Self { patterns: name.to_owned(), ..self.clone() }
    }

    /// Whether the line is about `name`, such as `10.0.0.1` or `[10.0.0.1]:2222`.
    pub(crate) fn names(&self, name: &str) -> bool {
        let mut found = false;
        for pattern in self.patterns.split(',') {
            match pattern.strip_prefix('!') {
                Some(pattern) if matches(pattern, name) => return false,
                Some(_) => {}
                None => found |= matches(pattern, name),
            }
        }
        found
    }
}

/// The place of known keys, as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file of this machine.
    File(PathBuf),
    /// Another place, of which a file of this machine is a copy, with the name that messages use.
    Elsewhere(String),
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Elsewhere(name) => f.write_str(name),
        }
    }
}

/// The name of a host in the file.
pub(crate) fn host_name(address: &str, port: u16) -> String {
    if port == 22 { address.to_owned() } else { format!("[{address}]:{port}") }
}

/// Parses the text. Lines of certificate authorities and of unsupported key types are skipped.
///
/// # Errors
/// The number of a line that cannot be parsed.
pub(crate) fn parse(text: &str) -> Result<Vec<KnownHostsEntry>, usize> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace().peekable();
        let marker = words.next_if(|word| word.starts_with('@'));
        let Some(patterns) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        if marker == Some("@cert-authority") {
            continue;
        }
        let (Some(kind), Some(key)) = (words.next(), words.next()) else { return Err(index + 1) };
        match parse_public_key_base64(key) {
            Ok(key) => entries.push(KnownHostsEntry {
                patterns: patterns.to_owned(),
                revoked: marker == Some("@revoked"),
                key,
                line: index + 1,
            }),
            Err(_) if !is_supported(kind) => {}
            Err(_) => return Err(index + 1),
        }
    }
    Ok(entries)
}

fn is_supported(kind: &str) -> bool {
    kind == "ssh-ed25519" || kind == "ssh-rsa" || kind.starts_with("ecdsa-sha2-nistp")
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("|1|") {
        Some(hashed) => matches_hash(hashed, name).unwrap_or(false),
        None => matches_glob(pattern.as_bytes(), name.as_bytes()),
    }
}

fn matches_hash(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &STANDARD.decode(salt).ok()?);
    Some(hmac::verify(&key, name.as_bytes(), &STANDARD.decode(hash).ok()?).is_ok())
}

/// `*` matches any text, `?` one character.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == b'?' || c.eq_ignore_ascii_case(&name[n]) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    p = after;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn entry(line: &str) -> KnownHostsEntry {
        parse(line).unwrap().remove(0)
    }

    #[test]
    fn knows_hosts_by_name_port_pattern_and_hash() {
        assert!(entry(&format!("10.0.0.1 ssh-ed25519 {KEY} me@x")).names("10.0.0.1"));
        assert!(!entry(&format!("10.0.0.1 ssh-ed25519 {KEY}")).names("[10.0.0.1]:2222"));
        assert!(entry(&format!("a,[10.0.0.1]:2222\tssh-ed25519 {KEY}")).names(&host_name("10.0.0.1", 2222)));
        assert!(entry(&format!("10.0.0.* ssh-ed25519 {KEY}")).names("10.0.0.77"));
        assert!(!entry(&format!("10.0.0.*,!10.0.0.7 ssh-ed25519 {KEY}")).names("10.0.0.7"));
        assert!(!entry(&format!("10.0.0.? ssh-ed25519 {KEY}")).names("10.0.0.77"));
        let hashed = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=";
        assert!(entry(&format!("{hashed} ssh-ed25519 {KEY}")).names("example.com"));
        assert!(!entry(&format!("{hashed} ssh-ed25519 {KEY}")).names("example.org"));
    }

    #[test]
    fn skips_comments_authorities_and_unsupported_keys() {
        let text = format!(
            "# a comment\n\n@cert-authority * ssh-ed25519 {KEY}\nh sk-ssh-ed25519@openssh.com AAAA\n@revoked h ssh-ed25519 {KEY}\n"
        );
        let entries = parse(&text).unwrap();
        assert_eq!(entries.len(), 1);
        assert!(entries[0].revoked && entries[0].line == 5);
    }

    /// The reason why `ssh-key` does not parse these files. When this test fails, its parser may replace this one.
    #[test]
    fn accepts_lines_of_openssh_that_the_parser_of_ssh_key_refuses() {
        use russh::keys::ssh_key::KnownHosts;
        for line in [
            format!("h\tssh-ed25519\t{KEY}"),
            format!("  h ssh-ed25519 {KEY}"),
            format!("@revoked  h ssh-ed25519 {KEY}"),
        ] {
            assert!(entry(&line).names("h"), "{line:?}");
            assert!(KnownHosts::new(&line).any(|entry| entry.is_err()), "{line:?}");
        }
    }

    #[test]
    fn reports_the_number_of_an_invalid_line() {
        assert_eq!(parse(&format!("h ssh-ed25519 {KEY}\nh ssh-ed25519 AAAA\n")).unwrap_err(), 2);
        assert_eq!(parse("h\n").unwrap_err(), 1);
    }
}
