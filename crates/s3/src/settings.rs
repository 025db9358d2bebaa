//! Where the store is, and who asks.

use std::path::PathBuf;

use secrecy::SecretString;

/// The region when none is set. Stores in private data centres ignore it.
pub const DEFAULT_REGION: &str = "us-east-1";

/// The keys of an account.
#[derive(Debug, Clone)]
pub struct S3Keys {
    /// The public name of the key.
    pub access_key: String,
    /// The secret.
    pub secret_key: SecretString,
    /// The token of a temporary key.
    pub session_token: Option<SecretString>,
}

/// The settings that the tools of S3 share.
#[derive(Debug, Clone, Default)]
pub struct S3Settings {
    /// `https://HOST[:PORT]`; without one, the servers of AWS in the region.
    pub endpoint: Option<String>,
    /// The region; without one [`DEFAULT_REGION`].
    pub region: Option<String>,
    /// A file of certificates (PEM) to trust instead of those of this machine.
    pub authorities: Option<PathBuf>,
    /// The keys; without them requests are refused before they are sent.
    pub keys: Option<S3Keys>,
}

/// The keys of a profile in the shared credentials file of the AWS tools. Other entries are ignored.
#[must_use]
pub fn keys_in_file(text: &str, profile: &str) -> Option<S3Keys> {
    let lines = text.lines().map(str::trim).skip_while(|line| *line != format!("[{profile}]"));
    let entries = lines.skip(1).take_while(|line| !line.starts_with('['));
    let entries: Vec<(&str, &str)> = entries
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let value = |key: &str| {
        let found = entries.iter().find(|(name, value)| *name == key && !value.is_empty());
        found.map(|(_, value)| (*value).to_owned())
    };
    Some(S3Keys {
        access_key: value("aws_access_key_id")?,
        secret_key: value("aws_secret_access_key")?.into(),
        session_token: value("aws_session_token").map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn keys_are_read_from_the_profile_that_is_named() {
        let text = "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key=two=\n\n[other]\nregion = x\n\
                    aws_access_key_id = three\naws_secret_access_key = four\naws_session_token = five\n";
        let keys = keys_in_file(text, "default").unwrap();
        assert_eq!((keys.access_key.as_str(), keys.secret_key.expose_secret()), ("one", "two="));
        assert!(keys.session_token.is_none());
        let keys = keys_in_file(text, "other").unwrap();
        assert_eq!(keys.session_token.unwrap().expose_secret(), "five");
        assert!(keys_in_file(text, "absent").is_none());
        assert!(keys_in_file("[default]\naws_access_key_id = one\n", "default").is_none());
    }
}
