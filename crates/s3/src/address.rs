//! Addresses of objects.

use std::fmt;
use std::str::FromStr;

/// The scheme of an address.
const SCHEME: &str = "s3://";

/// An object, or all objects whose keys begin with a prefix: `s3://BUCKET/KEY`, `s3://BUCKET/PREFIX/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Address {
    bucket: String,
    key: String,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has another scheme.
    #[error("an address of an object store begins with {SCHEME}")]
    Scheme,
    /// The name of the bucket is not one.
    #[error("the bucket needs 3 to 63 of: lower-case letters, digits, dots, hyphens")]
    Bucket,
    /// The key would name something else, because stores and clients resolve such parts.
    #[error("a key has no empty parts and no parts . or ..")]
    Key,
}

impl S3Address {
    /// Whether the text has the scheme of an address.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The name of the bucket.
    #[must_use]
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key of the object, or the prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it names all objects below it instead of one: it ends with `/`, or is a whole bucket.
    #[must_use]
    pub fn is_prefix(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The last part of the key.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// The object with this name below the prefix.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        Self { bucket: self.bucket.clone(), key: format!("{}{name}", self.key) }
    }

    /// The object with this key in the same bucket.
    #[must_use]
    pub fn with_key(&self, key: String) -> Self {
        Self { bucket: self.bucket.clone(), key }
    }
}

impl FromStr for S3Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(SCHEME).ok_or(AddressError::Scheme)?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        let fits =
            |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ".-".contains(letter);
        let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
        let has_ends = ends(bucket.chars().next()) && ends(bucket.chars().last());
        if !(3..=63).contains(&bucket.len())
            || !bucket.chars().all(fits)
            || !has_ends
            || bucket.contains("..")
        {
            return Err(AddressError::Bucket);
        }
        let parts = key.strip_suffix('/').unwrap_or(key);
        if !key.is_empty() && parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(AddressError::Key);
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_an_object_or_a_prefix() {
        let address: S3Address = "s3://backups/shop/demo.db".parse().unwrap();
        assert_eq!((address.bucket(), address.key()), ("backups", "shop/demo.db"));
        assert_eq!((address.is_prefix(), address.file_name()), (false, "demo.db"));
        assert_eq!(address.to_string(), "s3://backups/shop/demo.db");
        for prefix in ["s3://backups", "s3://backups/", "s3://backups/shop/"] {
            let prefix: S3Address = prefix.parse().unwrap();
            assert!(prefix.is_prefix());
            assert!(prefix.join("a.db").to_string().ends_with("/a.db"));
        }
    }

    #[test]
    fn refuses_what_names_something_else() {
        let refused = |text: &str| text.parse::<S3Address>().unwrap_err();
        assert_eq!(refused("/backups/demo.db"), AddressError::Scheme);
        for text in
            ["s3:///demo.db", "s3://Backups/a", "s3://ab/a", "s3://a..b/a", "s3://-abc/a", "s3://a_bc/a"]
        {
            assert_eq!(refused(text), AddressError::Bucket, "{text}");
        }
        for text in ["s3://backups/../a", "s3://backups/a//b", "s3://backups/./a", "s3://backups//"] {
            assert_eq!(refused(text), AddressError::Key, "{text}");
        }
    }
}
