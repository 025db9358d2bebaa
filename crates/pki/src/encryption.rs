//! The keys with which API servers encrypt Secrets in etcd.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kubeon_api::{ClusterKeys, KeyNumber};
use rand::RngExt;
use serde_json::{Value, json};

use crate::error::{KeyFileError, PkiError};
use crate::keyfile;

/// The file of the keys: one line for each, `NAME BASE64`.
pub(crate) const FILE: &str = "encryption.keys";
/// The length of a key in bytes, as XSalsa20 and Poly1305 (`secretbox`) need it.
const KEY_BYTES: usize = 32;

/// The keys by name. A rotation adds a line, and removes the old line when no Secret needs it any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EncryptionKeys(Vec<(String, String)>);

impl EncryptionKeys {
    /// Reads the keys with `read`.
    pub(crate) fn load(folder: &Path, read: fn(&Path) -> std::io::Result<String>) -> Result<Self, PkiError> {
        let path = file(folder);
        let text = read(&path).map_err(|error| KeyFileError::Io(error).at(&path))?;
        parse(&text).ok_or_else(|| unreadable(path))
    }

    /// Reads the keys, and makes one when there is none.
    pub(crate) fn load_or_create(folder: &Path) -> Result<Self, PkiError> {
        let path = file(folder);
        let text =
            keyfile::read_or_create(&path, || Ok::<_, KeyFileError>(line(KeyNumber::FIRST, &random_key())))
                .map_err(|error| error.at(&path))?;
        parse(&text).ok_or_else(|| unreadable(path))
    }

    /// Adds the key, unless it is there.
    pub(crate) fn add(folder: &Path, number: KeyNumber) -> Result<(), PkiError> {
        let mut keys = Self::load(folder, keyfile::read)?;
        if keys.get(number).is_none() {
            keys.0.push((name(number), random_key()));
            keys.save(folder)?;
        }
        Ok(())
    }

    /// Removes the keys before the key.
    pub(crate) fn remove_before(folder: &Path, number: KeyNumber) -> Result<(), PkiError> {
        let mut keys = Self::load(folder, keyfile::read)?;
        let Some(kept) = keys.get(number).cloned() else { return Ok(()) };
        if keys.0.len() > 1 {
            keys.0 = vec![kept];
            keys.save(folder)?;
        }
        Ok(())
    }

    fn get(&self, number: KeyNumber) -> Option<&(String, String)> {
        self.0.iter().find(|(known, _)| *known == name(number))
    }

    fn save(&self, folder: &Path) -> Result<(), PkiError> {
        let text: String = self.0.iter().map(|(name, secret)| format!("{name} {secret}\n")).collect();
        let path = file(folder);
        kubeon_atomic_file::write_atomically(&path, text.as_bytes(), 0o600)
            .map_err(|source| PkiError::File { path, source })
    }

    /// The `EncryptionConfiguration`: the key that encrypts now, then another one that decrypts. The first provider
    /// encrypts, all decrypt. `None` if a key is missing.
    pub(crate) fn configuration(&self, encrypts: bool, used: ClusterKeys) -> Option<String> {
        let numbers = [used.signing()].into_iter().chain(used.also_trusted());
        let key = |number| self.get(number).map(|(name, secret)| json!({ "name": name, "secret": secret }));
        let keys: Vec<Value> = numbers.map(key).collect::<Option<_>>()?;
        let mut providers = [json!({ "secretbox": { "keys": keys } }), json!({ "identity": {} })];
        if !encrypts {
            providers.reverse();
        }
        let config = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [{ "resources": ["secrets"], "providers": providers }],
        });
        Some(format!("{config:#}\n"))
    }
}

/// The file of the keys that an `EncryptionConfiguration` holds, among them the keys with the number.
pub(crate) fn lines(configuration: &str, number: KeyNumber) -> Result<String, &'static str> {
    let config: Value = serde_json::from_str(configuration).map_err(|_| "the configuration is damaged")?;
    let providers = config["resources"][0]["providers"].as_array();
    let mut providers = providers.into_iter().flatten();
    let keys = providers.find_map(|provider| provider["secretbox"]["keys"].as_array());
    let line = |key: &Value| Some(format!("{} {}\n", key["name"].as_str()?, key["secret"].as_str()?));
    let text: Option<String> = keys.and_then(|keys| keys.iter().map(line).collect());
    let text = text.ok_or("the configuration holds none")?;
    let keys = parse(&text).ok_or("the configuration holds a damaged one")?;
    if keys.get(number).is_some() { Ok(text) } else { Err("the configuration does not hold the one in use") }
}

/// The name of a key.
fn name(number: KeyNumber) -> String {
    format!("key{number}")
}

fn line(number: KeyNumber, secret: &str) -> String {
    format!("{} {secret}\n", name(number))
}

/// The file of the keys in the folder of a cluster.
pub(crate) fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn random_key() -> String {
    let bytes: [u8; KEY_BYTES] = rand::rng().random();
    STANDARD.encode(bytes)
}

fn unreadable(path: PathBuf) -> PkiError {
    PkiError::Unreadable { path, reason: "a line is not a name and a key of 32 bytes".to_owned() }
}

/// The keys in the text; `None` if a line is damaged or there is no line.
fn parse(text: &str) -> Option<EncryptionKeys> {
    let key = |line: &str| {
        let (name, secret) = line.split_once(' ')?;
        let named = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let whole = STANDARD.decode(secret).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
        (named && whole).then(|| (name.to_owned(), secret.to_owned()))
    };
    let keys: Vec<_> = text.lines().map(key).collect::<Option<_>>()?;
    (!keys.is_empty()).then_some(EncryptionKeys(keys))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_key_in_use_encrypts_and_both_decrypt() {
        let [new, old] = [random_key(), random_key()];
        let keys = parse(&format!("key1 {old}\nkey2 {new}\n")).unwrap();
        let reissue = ClusterKeys::default().advanced().advanced();
        let providers = |encrypts| {
            let config: Value =
                serde_json::from_str(&keys.configuration(encrypts, reissue).unwrap()).unwrap();
            config["resources"][0]["providers"].clone()
        };
        let secretbox = json!({ "secretbox": { "keys": [
            { "name": "key2", "secret": new }, { "name": "key1", "secret": old },
        ] } });
        assert_eq!(providers(true), json!([secretbox, { "identity": {} }]));
        assert_eq!(
            providers(false),
            json!([{ "identity": {} }, secretbox]),
            "Secrets are written as they are"
        );
        let first = keys.configuration(true, ClusterKeys::default()).unwrap();
        assert!(first.contains(&old) && !first.contains(&new), "no rotation is open");
    }

    #[test]
    fn a_rotation_adds_a_key_once_and_removes_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let first = EncryptionKeys::load_or_create(folder.path()).unwrap();
        let second = KeyNumber::FIRST.next();
        EncryptionKeys::add(folder.path(), second).unwrap();
        let both = EncryptionKeys::load(folder.path(), keyfile::read).unwrap();
        assert_eq!((&both.0[0], both.0.len()), (&first.0[0], 2));
        EncryptionKeys::add(folder.path(), second).unwrap();
        assert_eq!(EncryptionKeys::load(folder.path(), keyfile::read).unwrap(), both);
        EncryptionKeys::remove_before(folder.path(), second.next()).unwrap();
        assert_eq!(EncryptionKeys::load(folder.path(), keyfile::read).unwrap(), both, "no such key");
        EncryptionKeys::remove_before(folder.path(), second).unwrap();
        assert_eq!(EncryptionKeys::load(folder.path(), keyfile::read).unwrap().0, both.0[1..]);
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in ["", "key1\n", "key1 AAAA\n", "key1 !\n", "a\"b AAAA\n"] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn a_key_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let made = EncryptionKeys::load_or_create(folder.path()).unwrap().0;
        assert_eq!(EncryptionKeys::load_or_create(folder.path()).unwrap().0, made);
        assert_eq!(EncryptionKeys::load(folder.path(), keyfile::read).unwrap().0, made);
        let mode = std::fs::metadata(file(folder.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
