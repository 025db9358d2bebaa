//! The keys whose bundles are accepted: a file in OpenSSH's format `allowed_signers`.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ssh_key::authorized_keys::ConfigOpts;
use ssh_key::{HashAlg, PublicKey};

use super::error::{NAMESPACE, SignatureError};

/// Keys that may sign bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedSigners(Vec<Signer>);

/// A key that may sign bundles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signer {
    /// The names of its owner.
    pub(super) name: String,
    pub(super) key: PublicKey,
    /// Limits of the trust.
    after: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl TrustedSigners {
    /// Reads a file in the format `allowed_signers`, or a public key.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is invalid.
    pub fn read(path: &Path) -> Result<Self, SignatureError> {
        Self::parse(&fs::read_to_string(path).map_err(SignatureError::file(path))?, path)
    }

    /// Parses the text of such a file. `path` is for errors.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SignatureError> {
        if let Ok(key) = PublicKey::from_openssh(text) {
            let comment: &str = key.comment().as_ref();
            let name = comment.to_owned();
            return Ok(Self(vec![Signer { name, key, after: None, before: None }]));
        }
        let lines = text.lines().map(str::trim).enumerate();
        let given = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let signer = |(index, line): (usize, &str)| {
            let wrong = |why| SignatureError::Signers { path: path.to_owned(), line: index + 1, why };
            Signer::parse(line).map_err(wrong).transpose()
        };
        given.filter_map(signer).collect::<Result<_, _>>().map(Self)
    }

    pub(super) fn signers(&self) -> impl Iterator<Item = &Signer> {
        self.0.iter()
    }
}

impl Signer {
    /// Parses a line: names, options, key. `None` if the key may not sign bundles.
    fn parse(line: &str) -> Result<Option<Self>, String> {
        let (name, rest) = line.split_once(char::is_whitespace).ok_or("a name and a key are needed")?;
        let (options, key) = options_and_key(rest.trim_start())?;
        let mut signer = Self { name: name.to_owned(), key, after: None, before: None };
        let mut namespaces = None;
        for option in options.iter() {
            let (option, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim_matches('"');
            match option.to_ascii_lowercase().as_str() {
                "namespaces" => namespaces = Some(value.to_owned()),
                "valid-after" => signer.after = Some(time(value)?),
                "valid-before" => signer.before = Some(time(value)?),
                // A key that signs certificates of other keys, not bundles.
                "cert-authority" => return Ok(None),
                other => return Err(format!("the option {other} is unknown")),
            }
        }
        let fits = namespaces.is_none_or(|all| all.split(',').any(|one| one == NAMESPACE || one == "*"));
        Ok(fits.then_some(signer))
    }

    pub(super) fn fingerprint(&self) -> String {
        self.key.fingerprint(HashAlg::Sha256).to_string()
    }

    /// Whether the key is trusted at this time.
    ///
    /// # Errors
    /// The limit that excludes it.
    pub(super) fn trusted_at(&self, now: Timestamp) -> Result<(), String> {
        match (self.after, self.before) {
            (Some(after), _) if now < after => Err(format!("it is trusted from {after}")),
            (_, Some(before)) if now >= before => Err(format!("it was trusted until {before}")),
            _ => Ok(()),
        }
    }
}

/// A key, and the options that may precede it.
fn options_and_key(text: &str) -> Result<(ConfigOpts, PublicKey), String> {
    if let Ok(key) = PublicKey::from_openssh(text) {
        return Ok((ConfigOpts::default(), key));
    }
    let (options, key) = text.split_once(char::is_whitespace).ok_or("there is no key")?;
    let options = ConfigOpts::new(options).map_err(|error| format!("the options: {error}"))?;
    let key = PublicKey::from_openssh(key.trim_start()).map_err(|error| format!("the key: {error}"))?;
    Ok((options, key))
}

/// A time of OpenSSH: `YYYYMMDD[HHMM[SS]][Z]`, in the time zone of this machine without `Z`.
fn time(text: &str) -> Result<Timestamp, String> {
    let (digits, zone) = match text.strip_suffix(['Z', 'z']) {
        Some(digits) => (digits, TimeZone::UTC),
        None => (text, TimeZone::system()),
    };
    let wrong = |_| format!("{text:?} is no time such as 20271231 or 202712312359Z");
    let complete = match digits.len() {
        8 => format!("{digits}000000"),
        12 => format!("{digits}00"),
        _ => digits.to_owned(),
    };
    let civil = DateTime::strptime("%Y%m%d%H%M%S", &complete).map_err(wrong)?;
    civil.to_zoned(zone).map(|zoned| zoned.timestamp()).map_err(wrong)
}
