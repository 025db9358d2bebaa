//! The lab of a benchmark: bare hosts, the published programs, and the scripts of the floor and of the peer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

const LAB: &str = "bench";

/// Hosts that a benchmark creates, and `kubeon` with a home folder of its own.
pub(super) struct BenchLab {
    root: PathBuf,
    home: PathBuf,
}

impl BenchLab {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), home: std::env::temp_dir().join("kubeon-bench") }
    }

    /// Removes the hosts.
    pub(super) fn down(&self) -> Result<()> {
        self.kubeon(&["lab", "down", "--lab", LAB]).map(drop)
    }

    /// Creates bare hosts.
    pub(super) fn hosts(&self, count: usize) -> Result<Vec<String>> {
        self.down()?;
        self.kubeon(&["lab", "up", "--lab", LAB, "--hosts", &count.to_string()])?;
        self.settle(count)?;
        let listed: serde_json::Value =
            serde_json::from_str(&self.kubeon(&["lab", "ls", "--lab", LAB, "-o", "json"])?)?;
        Ok(texts(&listed, "address"))
    }

    /// Waits until the hosts have booted and all earlier writes are on the disk, so that the measurement does
    /// not include them. The hosts answer over SSH long before the end of their boot.
    fn settle(&self, count: usize) -> Result<()> {
        let booted = "timeout 60 systemctl is-system-running --wait";
        let commands = (1..=count).map(|host| {
            let mut command = self.program(&["lab", "ssh", "--lab", LAB, &format!("h{host}"), "--", booted]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        });
        for (host, command) in commands.collect::<Result<Vec<_>, _>>()?.into_iter().enumerate() {
            let answer = command.wait_with_output()?;
            let state = String::from_utf8_lossy(&answer.stdout);
            // The exit code only reports whether a unit failed; a host with a failed unit has also booted.
            if !["running", "degraded"].contains(&state.trim()) {
                bail!("h{} has not booted: {state}{}", host + 1, String::from_utf8_lossy(&answer.stderr));
            }
        }
        Command::new("sync").status().context("sync")?;
        Ok(())
    }

    /// The folder of the bundle of a version, which must be built.
    pub(super) fn bundle(&self, version: &str) -> Result<String> {
        let listed: serde_json::Value = serde_json::from_str(&self.kubeon(&["bundle", "ls", "-o", "json"])?)?;
        let all = texts(&listed, "folder");
        let found = all.into_iter().find(|path| path.contains(version));
        found.with_context(|| format!("the bundle is not built: kubeon bundle build {version}"))
    }

    /// Runs a script of `scripts/bench` and returns the seconds that it prints.
    pub(super) fn script(
        &self,
        name: &str,
        masters: &[String],
        workers: &[String],
        more: &[&str],
    ) -> Result<f64> {
        let lab = self.home.join("lab").join(LAB);
        let (key, known) = (lab.join("id_ed25519"), self.home.join("bench-known-hosts"));
        // Every lab has new host keys at the same addresses.
        std::fs::write(&known, "")?;
        let output = Command::new(self.root.join("scripts/bench").join(name))
            .args([key.as_os_str(), known.as_os_str()])
            .args([masters.join(" "), workers.join(" ")])
            .args(more)
            .output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{name} failed: {messages}");
        }
        if !messages.trim().is_empty() {
            crate::terminal::say(&format!("  {name}: {}", messages.trim()));
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    pub(super) fn program(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.root.join("target/x86_64-unknown-linux-gnu/release/kubeon"));
        program.args(arguments).env("KUBEON_HOME", &self.home);
        program
    }

    pub(super) fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        let output = self
            .program(arguments)
            .output()
            .context("cannot start kubeon; build it with: cargo build --release")?;
        if !output.status.success() {
            bail!("kubeon {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Every text under `key` at any depth of the document, in order.
fn texts(document: &serde_json::Value, key: &str) -> Vec<String> {
    match document {
        serde_json::Value::Object(map) => {
            let own = map.get(key).and_then(|text| text.as_str()).map(str::to_owned);
            own.into_iter().chain(map.values().flat_map(|value| texts(value, key))).collect()
        }
        serde_json::Value::Array(list) => list.iter().flat_map(|value| texts(value, key)).collect(),
        _ => Vec::new(),
    }
}

/// The median of some times.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
