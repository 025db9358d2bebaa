//! The cluster of the conformance tests: one master and two workers in a lab of its own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use kubeon_api::Version;
use kubeon_bundle::BundleStore;
use serde::Deserialize;

const NAME: &str = "conformance";
const HOSTS: &str = "3";

/// The cluster and its lab. Their state is in a folder of their own.
pub(super) struct ConformanceCluster {
    program: PathBuf,
    home: PathBuf,
    kind: String,
}

/// A row of `kubeon lab ls -o json`.
#[derive(Deserialize)]
struct HostRow {
    address: String,
}

impl ConformanceCluster {
    /// Uses the program that `cargo build` made.
    pub(super) fn new(root: &Path, kind: &str) -> Result<Self> {
        let program = root.join("target/x86_64-unknown-linux-gnu/debug/kubeon");
        if !program.is_file() {
            bail!("{} is missing; build it with: cargo build --workspace --bins", program.display());
        }
        Ok(Self { program, home: std::env::temp_dir().join("kubeon-conformance"), kind: kind.to_owned() })
    }

    /// Creates the cluster on new hosts.
    pub(super) fn create(&self, version: Version) -> Result<()> {
        self.remove()?;
        let begin = Instant::now();
        self.kubeon(&["lab", "up", "--lab", NAME, "--hosts", HOSTS, "--kind", &self.kind])?;
        let listed = self.kubeon(&["lab", "ls", "--lab", NAME, "-o", "json"])?;
        let hosts: Vec<HostRow> = serde_json::from_str(&listed)?;
        let [master, first, second] = hosts.as_slice() else { bail!("the lab has {} hosts", hosts.len()) };
        let (version, workers) = (version.to_string(), format!("{},{}", first.address, second.address));
        self.kubeon(&["create", NAME, &version, "-m", &master.address, "-w", &workers])?;
        // Installs kubectl, which the tests run.
        self.kubeon(&["use", NAME])?;
        crate::terminal::say(&format!("cluster of 1 + 2: {:.0} s", begin.elapsed().as_secs_f64()));
        Ok(())
    }

    /// Loads the images of an archive onto all nodes.
    pub(super) fn load(&self, archive: &Path) -> Result<()> {
        let begin = Instant::now();
        self.kubeon(&["image", "load", &archive.display().to_string(), NAME])?;
        crate::terminal::say(&format!("images loaded: {:.0} s", begin.elapsed().as_secs_f64()));
        Ok(())
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.home.join("conf/cluster").join(format!("{NAME}.yaml"))
    }

    /// The bundle's kubectl.
    pub(super) fn kubectl(&self) -> PathBuf {
        self.home.join("bin/kubectl")
    }

    /// Removes the hosts, and with them the cluster. Succeeds if there are none.
    pub(super) fn remove(&self) -> Result<()> {
        self.kubeon(&["lab", "down", "--lab", NAME])?;
        match std::fs::remove_dir_all(&self.home) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.home.display()))
            }
            _ => Ok(()),
        }
    }

    fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        let mut kubeon = Command::new(&self.program);
        // `use` writes ~/.kube/config, which must not be the user's.
        kubeon.args(arguments).env("KUBEON_HOME", &self.home).env("HOME", &self.home);
        kubeon.env("KUBEON_CACHE", BundleStore::from_env().context("cannot find the cache folder")?.cache());
        let output = kubeon.output()?;
        if !output.status.success() {
            bail!("kubeon {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}
