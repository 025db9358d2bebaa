//! SHA256SUMS, and its signature in the format of OpenSSH.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use sha2::{Digest as _, Sha256};

use super::command::must;

/// The file of the sums.
pub(super) const SUMS: &str = "SHA256SUMS";
/// What the signature is for; `ssh-keygen -Y verify -n` must name it.
const NAMESPACE: &str = "kubeon-dist";

/// Writes the sums of all files of the folder, in the format of `sha256sum`.
pub(super) fn write(out: &Path) -> Result<()> {
    let mut files = fs::read_dir(out)?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    let mut sums = String::new();
    for file in files {
        let digest = hex::encode(Sha256::digest(fs::read(file.path())?));
        sums.push_str(&format!("{digest}  {}\n", file.file_name().to_string_lossy()));
    }
    Ok(fs::write(out.join(SUMS), sums)?)
}

/// Signs the sums; ssh-keygen asks for the passphrase of a protected key.
pub(super) fn sign(out: &Path, key: &Path) -> Result<()> {
    let mut ssh_keygen = Command::new("ssh-keygen");
    ssh_keygen.args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"]).arg(key).arg(out.join(SUMS));
    must(&mut ssh_keygen)
}
