//! The keys whose bundles this machine accepts. While there is none, every bundle is accepted.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kubeon_bundle::{Bundle, SignatureError, TrustedSigners};

use crate::environment::EngineEnvironment;
use crate::error::{EngineError, chain};
use crate::remedy::EngineRemedy;

/// The file of trusted keys in the state folder, in OpenSSH's format `allowed_signers`.
const SIGNERS: &str = "allowed_signers";

/// The name of the trusted key that signed the bundle; `None` while no key is trusted.
///
/// # Errors
/// Refuses a bundle that no trusted key signed.
pub fn signer(environment: &EngineEnvironment, bundle: &Bundle) -> Result<Option<String>, EngineError> {
    let Some(signers) = trusted_signers(environment).map_err(|error| EngineError::refused(chain(&error)))?
    else {
        return Ok(None);
    };
    let version = bundle.manifest().kubernetes;
    signers.check(bundle, Timestamp::now()).map(Some).map_err(|error| {
        EngineError::refused(format!("the bundle of {version} is not signed by a trusted key"))
            .row("cause", chain(&error))
            .remedy(EngineRemedy::SignBundle(version))
    })
}

/// The file of the trusted keys; `None` without a state folder.
pub fn signers_file(environment: &EngineEnvironment) -> Option<PathBuf> {
    environment.state_folder.as_ref().map(|folder| folder.join(SIGNERS))
}

fn trusted_signers(environment: &EngineEnvironment) -> Result<Option<TrustedSigners>, SignatureError> {
    if let Some(lines) = &environment.trusted_keys {
        return TrustedSigners::parse(lines, Path::new("$KUBEON_TRUSTED_KEYS")).map(Some);
    }
    let file = signers_file(environment).filter(|file| file.exists());
    file.map(|file| TrustedSigners::read(&file)).transpose()
}

/// The lines of a file of trusted keys; without a file, those of the keys that this machine trusts, if any.
///
/// # Errors
/// Refuses a file that cannot be read or has an invalid line.
pub fn lines(environment: &EngineEnvironment, file: Option<&Path>) -> Result<Vec<String>, EngineError> {
    let own = || signers_file(environment).filter(|file| file.exists());
    let Some(file) = file.map(Path::to_owned).or_else(own) else { return Ok(Vec::new()) };
    let text = fs::read_to_string(&file)
        .map_err(|error| EngineError::refused(format!("{}: {error}", file.display())))?;
    TrustedSigners::parse(&text, &file).map_err(|error| EngineError::refused(chain(&error)))?;
    let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
    Ok(text.lines().map(str::trim).filter(is_key).map(str::to_owned).collect())
}

/// Adds a line of the format `allowed_signers` to the trusted keys. Returns the file, and whether the line is new.
///
/// # Errors
/// Refuses an invalid line. Fails when the file cannot be read or written.
pub fn trust(environment: &EngineEnvironment, line: &str) -> Result<(PathBuf, bool), EngineError> {
    let file = signers_file(environment).ok_or_else(|| {
        EngineError::refused("HOME is not set: set KUBEON_HOME to a folder for trusted keys")
    })?;
    let failed = |error: io::Error| EngineError::failed(format!("{}: {error}", file.display()));
    let old = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let text = format!("{old}{line}\n");
    TrustedSigners::parse(&text, &file).map_err(|error| EngineError::refused(chain(&error)))?;
    if old.lines().any(|known| known == line) {
        return Ok((file, false));
    }
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    kubeon_atomic_file::write_atomically(&file, text.as_bytes(), 0o600).map_err(failed)?;
    Ok((file, true))
}
