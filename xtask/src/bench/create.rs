//! Measures `kubeon create` in the lab and, in the same run, its lower bound (a script that starts the same processes with
//! every file in place) and its peer (the bundle's own kubeadm).

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

const VERSION: &str = "v1.36.3";
const LAB: &str = "bench";

/// Measures `runs` times; the medians are printed last.
pub(super) fn run(root: &Path, runs: usize) -> Result<()> {
    let lab = BenchLab { root: root.to_owned(), home: std::env::temp_dir().join("kubeon-bench") };
    let measured = lab.create(runs);
    lab.kubeon(&["lab", "down", "--lab", LAB])?;
    measured
}

struct BenchLab {
    root: PathBuf,
    home: PathBuf,
}

/// Seconds from bare hosts to all nodes Ready, measured on the same machine within minutes.
struct Times {
    create: f64,
    floor: f64,
    kubeadm: f64,
}

impl BenchLab {
    fn create(&self, runs: usize) -> Result<()> {
        for (masters, workers) in [(1, 2), (3, 2)] {
            let mut all = Vec::new();
            for _ in 0..runs.max(1) {
                let times = self.times(masters, workers)?;
                crate::terminal::say(&format!(
                    "{masters} + {workers}: kubeon create {:.2} s, floor {:.2} s, kubeadm {:.2} s",
                    times.create, times.floor, times.kubeadm
                ));
                all.push(times);
            }
            let median_of = |pick: fn(&Times) -> f64| median(all.iter().map(pick).collect());
            let (create, floor, kubeadm) = (
                median_of(|times| times.create),
                median_of(|times| times.floor),
                median_of(|times| times.kubeadm),
            );
            crate::terminal::say(&format!(
                "{masters} + {workers}: medians {create:.2} s, {floor:.2} s, {kubeadm:.2} s: {:.2} of the floor, {:.2} of kubeadm",
                create / floor,
                create / kubeadm
            ));
        }
        Ok(())
    }

    /// Measures `create` on bare hosts, the lower bound on the same hosts, and kubeadm on new bare hosts.
    fn times(&self, masters: usize, workers: usize) -> Result<Times> {
        let addresses = self.hosts(masters + workers)?;
        let mut arguments = vec!["create", "bench", VERSION];
        for (index, address) in addresses.iter().enumerate() {
            arguments.extend([if index < masters { "-m" } else { "-w" }, address]);
        }
        let create = self.until_ready(&arguments)?;
        let (masters, workers) = addresses.split_at(masters);
        let floor = self.script("floor", masters, workers, &[])?;
        self.kubeon(&["destroy", "bench", "--yes"])?;
        self.hosts(addresses.len())?;
        let bundle = self.bundle()?;
        let kubeadm = self.script("kubeadm", masters, workers, &[&bundle, VERSION])?;
        Ok(Times { create, floor, kubeadm })
    }

    /// Creates bare hosts.
    fn hosts(&self, count: usize) -> Result<Vec<String>> {
        self.kubeon(&["lab", "down", "--lab", LAB])?;
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

    fn bundle(&self) -> Result<String> {
        let listed: serde_json::Value = serde_json::from_str(&self.kubeon(&["bundle", "ls", "-o", "json"])?)?;
        let all = texts(&listed, "folder");
        all.into_iter().find(|path| path.contains(VERSION)).context("the bundle is not built")
    }

    /// Runs a script of `scripts/bench` and returns the seconds that it prints.
    fn script(&self, name: &str, masters: &[String], workers: &[String], more: &[&str]) -> Result<f64> {
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

    /// Runs `create` and returns the seconds until it reports the last node as Ready. Afterwards `create` also checks DNS, which
    /// the peers do not.
    fn until_ready(&self, arguments: &[&str]) -> Result<f64> {
        let begin = Instant::now();
        let mut create = self.program(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let (mut ready, mut output) = (None, String::new());
        for line in BufReader::new(create.stderr.take().context("no standard error")?).lines() {
            let line = line?;
            if line.contains(" is Ready (") {
                ready = Some(begin.elapsed().as_secs_f64());
            }
            output = format!("{output}{line}\n");
        }
        if !create.wait()?.success() {
            bail!("kubeon {}: {output}", arguments.join(" "));
        }
        crate::terminal::say(&format!("  create: {:.2} s until its end", begin.elapsed().as_secs_f64()));
        ready.context("create reported no node as Ready")
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.root.join("target/x86_64-unknown-linux-gnu/release/kubeon"));
        program.args(arguments).env("KUBEON_HOME", &self.home);
        program
    }

    fn kubeon(&self, arguments: &[&str]) -> Result<String> {
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
