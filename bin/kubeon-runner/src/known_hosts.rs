//! The SSH keys of a cluster's hosts where people see and mend them: a ConfigMap beside the cluster's object.
//!
//! ```text
//!   ConfigMap ─► /known-hosts ─► the program's file ─► first contacts are pinned there ─► ConfigMap, condition
//! ```
//!
//! What stands in it when the Job begins is what is pinned, whatever the state says: the host of a line that a person
//! took out is pinned anew, one that a person put in is compared from the first contact on. Until somebody wrote there,
//! the state's keys hold.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};

use crate::args::Settings;
use crate::commands::Engine;
use crate::keep::{SaveError, place};
use crate::meta::Place;

/// The key of the lines in the ConfigMap.
pub const KEY: &str = "known_hosts";

/// The keys of the hosts of one cluster.
pub struct KnownHosts {
    map: Place,
    file: PathBuf,
    before: String,
    /// What stands in the ConfigMap, as far as is known here; none until somebody wrote there.
    there: Mutex<Option<String>>,
}

impl KnownHosts {
    /// Puts what stands in the ConfigMap in place of what the state brought. None where no ConfigMap is mounted.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn begin(settings: &Settings, engine: &Engine, cluster: &str) -> io::Result<Option<Self>> {
        let flags = &settings.flags;
        if !flags.kubeon.known_hosts.is_dir() {
            return Ok(None);
        }
        let there = read(&flags.kubeon.known_hosts.join(KEY))?;
        let file = engine.known_hosts(cluster);
        if let Some(text) = &there {
            write(&file, text)?;
        }
        let before = match &there {
            Some(text) => text.clone(),
            None => read(&file)?.unwrap_or_default(),
        };
        let named = flags.meta.known_hosts_config_map.as_ref();
        let map = place(settings, cluster, named, ("ConfigMap", "known-hosts"));
        Ok(Some(Self { map, file, before, there: Mutex::new(there) }))
    }

    /// The ConfigMap.
    #[must_use]
    pub fn map(&self) -> &Place {
        &self.map
    }

    /// What is pinned now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn now(&self) -> Result<String, SaveError> {
        let text =
            read(&self.file).map_err(|error| SaveError::Read(self.file.display().to_string(), error))?;
        Ok(text.unwrap_or_default())
    }

    /// Whether something else stands in the ConfigMap. What is the same there is not written again: somebody may be
    /// mending it.
    #[must_use]
    pub fn differs(&self, text: &str) -> bool {
        self.there().as_deref().unwrap_or_default() != text
    }

    /// Remembers what was written there.
    pub fn written(&self, text: &str) {
        *self.there() = Some(text.to_owned());
    }

    /// Keys of a text that were not pinned when the Job began, in its order: `10.0.0.1 SHA256:…`.
    #[must_use]
    pub fn new_in(&self, text: &str) -> Vec<String> {
        let before: BTreeSet<&str> = self.before.lines().map(str::trim).collect();
        text.lines().filter(|line| !before.contains(line.trim())).filter_map(shown).collect()
    }

    fn there(&self) -> MutexGuard<'_, Option<String>> {
        self.there.lock()
    }
}

/// A line for a person: the host, and its key as `ssh-keygen -l` shows it. None for a line that gives no key.
fn shown(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().filter(|word| !word.starts_with('@'));
    let host = words.next().filter(|word| !word.starts_with('#'))?;
    let key = STANDARD.decode(words.nth(1)?).ok()?;
    Some(format!("{host} SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key))))
}

/// None when there is no such file.
fn read(file: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(file) {
        Ok(mut open) => open.read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// As the program keeps it: for nobody else to write.
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

    const ONE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn known(before: &str, there: Option<&str>) -> KnownHosts {
        let map =
            Place { kind: "ConfigMap", namespace: "default".into(), name: "default-shop-known-hosts".into() };
        let there = Mutex::new(there.map(str::to_owned));
        KnownHosts { map, file: PathBuf::new(), before: before.to_owned(), there }
    }

    #[test]
    fn tells_what_is_new_as_ssh_keygen_does() {
        let text =
            format!("# by hand\n10.0.0.1 ssh-ed25519 {ONE}\n[10.0.0.2]:2222 ssh-ed25519 {ONE} comment\n");
        let print = "SHA256:T7SvZ2cslqpPj6nKzitCBHHlpVF3r3MvLwmFL0fk0IE";
        let new = known(&format!("10.0.0.1 ssh-ed25519 {ONE}"), None).new_in(&text);
        assert_eq!(new, [format!("[10.0.0.2]:2222 {print}")]);
    }

    #[test]
    fn what_stands_there_is_not_written_again() {
        let shop = known("a", Some("a"));
        assert!(!shop.differs("a") && shop.differs("ab"));
        shop.written("ab");
        assert!(!shop.differs("ab"));
        assert!(!known("", None).differs(""), "nothing is known and nothing stands there");
    }
}
