//! Compiles the programs for an architecture, reproducibly.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use kubeon_bundle::Arch;

use super::command::{must, output_of};

/// Compiles programs of the workspace.
pub(super) struct Compiler<'a> {
    root: &'a Path,
    profile: &'a str,
    cargo_home: PathBuf,
    commit: String,
    /// Seconds since 1970.
    commit_time: String,
}

/// The target of an architecture, in the words of rustc.
pub(super) fn target(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "x86_64-unknown-linux-gnu",
        Arch::Arm64 => "aarch64-unknown-linux-gnu",
    }
}

impl<'a> Compiler<'a> {
    pub(super) fn new(root: &'a Path, profile: &'a str) -> Result<Self> {
        let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
        let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
        let cargo_home = cargo_home.context("neither CARGO_HOME nor HOME is set")?;
        let commit_time = git(root, &["log", "-1", "--format=%ct"])?.trim().to_owned();
        Ok(Self { root, profile, cargo_home, commit: commit(root)?, commit_time })
    }

    /// Compiles the packages and returns the folder of their programs.
    pub(super) fn build(&self, arch: Arch, packages: &[&str]) -> Result<PathBuf> {
        let target = target(arch);
        // Flags and compiler differ from those of other builds, which would compile everything again in a shared folder.
        let folder = self.root.join("target/dist-build").join(arch.name());
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(self.root).args([
            "build",
            "--locked",
            "--profile",
            self.profile,
            "--target",
            target,
        ]);
        cargo.arg("--target-dir").arg(&folder);
        packages.iter().for_each(|package| {
            cargo.args(["-p", package]);
        });
        let variable = target.replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{}_RUSTFLAGS", variable.to_uppercase()), self.rust_flags(&folder)?);
        cargo.env(format!("CFLAGS_{variable}"), self.c_flags());
        // ./test lets clippy compile; published programs are not.
        cargo.env_remove("RUSTC_WORKSPACE_WRAPPER");
        cargo.env("CARGO_INCREMENTAL", "0").env("KUBEON_COMMIT", &self.commit);
        // C compilers take __DATE__ and __TIME__ from it.
        cargo.env("SOURCE_DATE_EPOCH", &self.commit_time);
        if arch != Arch::native() {
            let linker = format!("{}-gcc", arch.triplet());
            cargo.env(format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase()), linker);
            cargo.env("RUSTC", cross_compiler(self.root, arch)?);
        }
        must(&mut cargo)?;
        Ok(folder.join(target).join(self.profile_folder()))
    }

    /// The folder of the programs that an ordinary build of cargo made.
    pub(super) fn built_before(&self, arch: Arch) -> PathBuf {
        self.root.join("target").join(target(arch)).join(self.profile_folder())
    }

    fn profile_folder(&self) -> &str {
        if self.profile == "dev" { "debug" } else { self.profile }
    }

    /// The commit of the source.
    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// Static programs that contain no path of this machine.
    fn rust_flags(&self, folder: &Path) -> Result<String> {
        let mut flags = "-C target-feature=+crt-static".to_owned();
        // The last mapping that fits wins, so the more specific ones follow.
        for (from, to) in [(self.root, "/kubeon"), (folder, "/build"), (self.cargo_home.as_path(), "/cargo")]
        {
            let from = from.to_str().context("a path is not UTF-8")?;
            if from.contains(' ') {
                bail!("cargo cannot map the path {from:?}, which contains a space");
            }
            flags.push_str(&format!(" --remap-path-prefix={from}={to}"));
        }
        Ok(flags)
    }

    fn c_flags(&self) -> OsString {
        let mut flags = OsString::new();
        for (from, to) in [(self.root, "/kubeon"), (self.cargo_home.as_path(), "/cargo")] {
            flags.push(" -ffile-prefix-map=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        flags
    }
}

/// The commit of the source; `-modified` follows when files differ from it.
fn commit(root: &Path) -> Result<String> {
    let commit = git(root, &["rev-parse", "HEAD"])?.trim().to_owned();
    let is_modified = !git(root, &["status", "--porcelain"])?.trim().is_empty();
    Ok(if is_modified { commit + "-modified" } else { commit })
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    output_of(Command::new("git").current_dir(root).args(arguments))
}

/// A compiler whose standard library for the architecture is installed: that of cargo, else that of the distribution.
fn cross_compiler(root: &Path, arch: Arch) -> Result<PathBuf> {
    for rustc in ["rustc", "/usr/bin/rustc"] {
        let asked = output_of(Command::new(rustc).current_dir(root).args(["--print", "sysroot"]));
        let Ok(sysroot) = asked else { continue };
        if Path::new(sysroot.trim()).join("lib/rustlib").join(target(arch)).is_dir() {
            return Ok(PathBuf::from(rustc));
        }
    }
    let target = target(arch);
    bail!(
        "no compiler has the standard library of {target}: rustup target add {target}, or scripts/setup dist"
    )
}
