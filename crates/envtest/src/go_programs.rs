//! Programs in Go that tests need.
//!
//! - `gitops` does what tools that install from Git do: it renders and lints charts with the packages of Helm, and says what
//!   kstatus (Flux, `helm --wait`) and Argo CD see in an object.
//! - `s3` is an object store.
//! - `oidc` is a provider of OpenID Connect.
//! - `history` writes to and reads from etcd, and says whether the answers are linearizable.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use crate::EnvtestError;
use crate::programs::store;

/// Time limit of a test that waits for another process to compile the same program.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The pause between two attempts to take the lock.
const POLL: Duration = Duration::from_millis(200);

/// The program from `gitops/`. Its first comment describes its arguments.
///
/// # Errors
/// There is no home folder, a file cannot be read or written, or the program cannot be compiled.
pub fn gitops_program() -> Result<PathBuf, EnvtestError> {
    built("gitops")
}

/// The program from `s3/`: an object store.
///
/// # Errors
/// As for [`gitops_program`].
pub(crate) fn s3_program() -> Result<PathBuf, EnvtestError> {
    built("s3")
}

/// The program from `oidc/`: a provider of OpenID Connect.
///
/// # Errors
/// As for [`gitops_program`].
pub(crate) fn oidc_program() -> Result<PathBuf, EnvtestError> {
    built("oidc")
}

/// The program from `history/`: a client of etcd with a checker. Its first comment describes its arguments.
///
/// # Errors
/// As for [`gitops_program`].
pub fn history_program() -> Result<PathBuf, EnvtestError> {
    built("history")
}

/// The program with these sources, which is built once for each content of them and kept in the user's cache folder.
fn built(name: &str) -> Result<PathBuf, EnvtestError> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let folder = store()?.cache().join("tools");
    let built = folder.join(format!("{name}-{}", digest(&sources)?));
    if !built.exists() {
        fs::create_dir_all(&folder).map_err(EnvtestError::file(&folder))?;
        // Tests of other programs need it too: they wait instead of compiling it once more. The lock ends with the file.
        let lock = folder.join(format!("{name}.lock"));
        let _locked = locked(&lock, LOCK_TIMEOUT).map_err(EnvtestError::file(&lock))?;
        if !built.exists() {
            build(&sources, &folder, &built)?;
        }
    }
    Ok(built)
}

/// Takes the lock; waits up to `limit` for another process.
fn locked(lock: &Path, limit: Duration) -> io::Result<File> {
    let file = File::create(lock)?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        if start.elapsed() >= limit {
            let text = format!("another process that compiles has had this lock for {} s", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(POLL);
    }
}

fn digest(sources: &Path) -> Result<String, EnvtestError> {
    let mut digest = Sha256::new();
    for file in ["main.go", "go.mod", "go.sum"] {
        let path = sources.join(file);
        digest.update(fs::read(&path).map_err(EnvtestError::file(&path))?);
    }
    Ok(digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

/// The finished program is renamed into place.
fn build(sources: &Path, folder: &Path, built: &Path) -> Result<(), EnvtestError> {
    let scratch = tempfile::tempdir_in(folder).map_err(EnvtestError::file(folder))?;
    let program = scratch.path().join("program");
    // Without debugging information and garbage collection, which take most of the time.
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags=-s -w", "-gcflags=all=-dwarf=false", "-o"]).arg(&program);
    go.arg(".").current_dir(sources).env("GOFLAGS", "-mod=readonly").env("CGO_ENABLED", "0");
    // What `./test` compiled for the bundle. The flags above are those of bundles.
    let compiled = folder.with_file_name("go-build");
    if compiled.is_dir() {
        go.env("GOCACHE", compiled);
    }
    let output = go.env("GOGC", "off").env("GOMEMLIMIT", "2GiB").output();
    let output = output.map_err(|source| EnvtestError::Start { program: "go build", source })?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(EnvtestError::Ended { program: "go build", status: output.status.to_string(), log });
    }
    fs::rename(&program, built).map_err(EnvtestError::file(built))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_waiting_for_a_lock_and_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("gitops.lock");
        let held = locked(&lock, Duration::ZERO).unwrap();
        let error = locked(&lock, Duration::from_millis(1)).map_err(EnvtestError::file(&lock)).unwrap_err();
        assert!(error.to_string().contains("gitops.lock: another process that compiles"), "{error}");
        drop(held);
        // A child that another test starts owns a copy of the lock until its exec.
        locked(&lock, Duration::from_secs(10)).unwrap();
    }
}
