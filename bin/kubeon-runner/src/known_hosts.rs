//! The SSH host keys of a cluster, in a ConfigMap in the cluster's namespace where users read and edit them.
//!
//! ```text
//!   ConfigMap ─► /known-hosts ─► the program's file ─► first contacts are pinned there ─► ConfigMap, condition
//! ```
//!
//! The ConfigMap takes precedence over the state. If a user removes a line, the host's key is pinned again at
//! the next contact. If a user adds a line, the key is compared from the first contact on. Until the first
//! write of the ConfigMap, the keys of the state apply.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};

use crate::args::RunnerSettings;
use crate::commands::KubeonProgram;
use crate::inputs;
use crate::meta::WrittenObject;
use crate::save_error::SaveError;

/// The key of the lines in the ConfigMap.
pub(crate) const KEY: &str = "known_hosts";

/// The keys of the hosts of one cluster.
pub(crate) struct KnownHosts {
    map: WrittenObject,
    file: PathBuf,
    before: String,
    /// The last known content of the ConfigMap; none before its first write.
    stored: Mutex<Option<String>>,
}

impl KnownHosts {
    /// Replaces the keys of the state by those of the ConfigMap. None when no ConfigMap is mounted.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(crate) fn load(
        settings: &RunnerSettings,
        engine: &KubeonProgram,
        cluster: &str,
    ) -> io::Result<Option<Self>> {
        let flags = &settings.flags;
        if !flags.kubeon.known_hosts.is_dir() {
            return Ok(None);
        }
        let stored = read(&flags.kubeon.known_hosts.join(KEY))?;
        let file = engine.known_hosts(cluster);
        if let Some(text) = &stored {
            write(&file, text)?;
        }
        let before = match &stored {
            Some(text) => text.clone(),
            None => read(&file)?.unwrap_or_default(),
        };
        let named = flags.meta.known_hosts_config_map.as_ref();
        let map = inputs::object_ref(settings, cluster, named, ("ConfigMap", "known-hosts"));
        Ok(Some(Self { map, file, before, stored: Mutex::new(stored) }))
    }

    /// The ConfigMap.
    #[must_use]
    pub(crate) fn map(&self) -> &WrittenObject {
        &self.map
    }

    /// The pinned keys, one line for each.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn pinned(&self) -> Result<String, SaveError> {
        let text =
            read(&self.file).map_err(|error| SaveError::Read(self.file.display().to_string(), error))?;
        Ok(text.unwrap_or_default())
    }

    /// Whether the ConfigMap has other content. Equal content is not written again, because a user may be
    /// editing it.
    #[must_use]
    pub(crate) fn differs(&self, text: &str) -> bool {
        self.stored().as_deref().unwrap_or_default() != text
    }

    /// Records the content that was written to the ConfigMap.
    pub(crate) fn written(&self, text: &str) {
        *self.stored() = Some(text.to_owned());
    }

    /// The keys of a text that were not pinned when the Job started, in its order: `10.0.0.1 SHA256:…`.
    #[must_use]
    pub(crate) fn new_in(&self, text: &str) -> Vec<String> {
        let before: BTreeSet<&str> = self.before.lines().map(str::trim).collect();
        text.lines().filter(|line| !before.contains(line.trim())).filter_map(fingerprint).collect()
    }

    fn stored(&self) -> MutexGuard<'_, Option<String>> {
        self.stored.lock()
    }
}

/// The host and the fingerprint of its key as `ssh-keygen -l` prints it. None for a line without a key.
fn fingerprint(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().filter(|word| !word.starts_with('@'));
    let host = words.next().filter(|word| !word.starts_with('#'))?;
    let key = STANDARD.decode(words.nth(1)?).ok()?;
    Some(format!("{host} SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key))))
}

/// Reads a file; none if it does not exist.
fn read(file: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(file) {
        Ok(mut open) => open.read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the file with mode 0600 in a folder with mode 0700, as the program does.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    open.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY_DATA: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn known(before: &str, stored: Option<&str>) -> KnownHosts {
        let map = WrittenObject {
            kind: "ConfigMap",
            namespace: "default".into(),
            name: "default-shop-known-hosts".into(),
        };
        let stored = Mutex::new(stored.map(str::to_owned));
        KnownHosts { map, file: PathBuf::new(), before: before.to_owned(), stored }
    }

    #[test]
    fn reports_new_keys_with_the_fingerprint_of_ssh_keygen() {
        let text = format!(
            "# by hand\n10.0.0.1 ssh-ed25519 {KEY_DATA}\n[10.0.0.2]:2222 ssh-ed25519 {KEY_DATA} comment\n"
        );
        let fingerprint = "SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE";
        let new = known(&format!("10.0.0.1 ssh-ed25519 {KEY_DATA}"), None).new_in(&text);
        assert_eq!(new, [format!("[10.0.0.2]:2222 {fingerprint}")]);
    }

    #[test]
    fn an_unchanged_config_map_is_not_written_again() {
        let shop = known("a", Some("a"));
        assert!(!shop.differs("a") && shop.differs("ab"));
        shop.written("ab");
        assert!(!shop.differs("ab"));
        assert!(!known("", None).differs(""), "no key is known and the ConfigMap was never written");
    }
}
