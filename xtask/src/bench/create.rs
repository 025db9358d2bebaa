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
    let ground = Ground { root: root.to_owned(), home: std::env::temp_dir().join("kubeon-bench") };
    let measured = ground.create(runs);
    ground.kubeon(&["lab", "down", "--lab", LAB])?;
    measured
}

struct Ground {
    root: PathBuf,
    home: PathBuf,
}

/// Seconds from bare hosts to all nodes Ready, measured on the same machine within minutes.
struct Times {
    create: f64,
    floor: f64,
    kubeadm: f64,
}

impl Ground {
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
            let of = |pick: fn(&Times) -> f64| median(all.iter().map(pick).collect());
            let (create, floor, kubeadm) = (of(|it| it.create), of(|it| it.floor), of(|it| it.kubeadm));
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

    /// Makes bare hosts.
    fn hosts(&self, count: usize) -> Result<Vec<String>> {
        self.kubeon(&["lab", "down", "--lab", LAB])?;
        self.kubeon(&["lab", "up", "--lab", LAB, "--hosts", &count.to_string()])?;
        self.settle(count)?;
        let listed: serde_json::Value =
            serde_json::from_str(&self.kubeon(&["lab", "ls", "--lab", LAB, "-o", "json"])?)?;
        Ok(texts(&listed, "address"))
    }

    /// Waits until the hosts have finished booting and the disk has all earlier writes, so that neither is measured. They
    /// answer by SSH long before.
    fn settle(&self, count: usize) -> Result<()> {
        let booted = "timeout 60 systemctl is-system-running --wait";
        let asked = (1..=count).map(|host| {
            let mut ask = self.program(&["lab", "ssh", "--lab", LAB, &format!("h{host}"), "--", booted]);
            ask.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
        });
        for (host, asked) in asked.collect::<Result<Vec<_>, _>>()?.into_iter().enumerate() {
            let answer = asked.wait_with_output()?;
            let word = String::from_utf8_lossy(&answer.stdout);
            // The exit code says whether a unit failed; a host with a failed unit has booted too.
            if !["running", "degraded"].contains(&word.trim()) {
                bail!("h{} has not booted: {word}{}", host + 1, String::from_utf8_lossy(&answer.stderr));
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

    /// A script of `scripts/bench`, which prints seconds.
    fn script(&self, name: &str, masters: &[String], workers: &[String], more: &[&str]) -> Result<f64> {
        let lab = self.home.join("lab").join(LAB);
        let (key, known) = (lab.join("id_ed25519"), self.home.join("bench-known-hosts"));
        // Every lab has other host keys at the same addresses.
        std::fs::write(&known, "")?;
        let output = Command::new(self.root.join("scripts/bench").join(name))
            .args([key.as_os_str(), known.as_os_str()])
            .args([masters.join(" "), workers.join(" ")])
            .args(more)
            .output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{name} failed: {words}");
        }
        if !words.trim().is_empty() {
            crate::terminal::say(&format!("  {name}: {}", words.trim()));
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    /// Runs `create` and returns the seconds until it reports the last node as Ready. Afterwards `create` also checks DNS, which
    /// the peers do not.
    fn until_ready(&self, arguments: &[&str]) -> Result<f64> {
        let begin = Instant::now();
        let mut create = self.program(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let (mut ready, mut said) = (None, String::new());
        for line in BufReader::new(create.stderr.take().context("no standard error")?).lines() {
            let line = line?;
            if line.contains(" is Ready (") {
                ready = Some(begin.elapsed().as_secs_f64());
            }
            said = format!("{said}{line}\n");
        }
        if !create.wait()?.success() {
            bail!("kubeon {}: {said}", arguments.join(" "));
        }
        crate::terminal::say(&format!("  create: all of it {:.2} s", begin.elapsed().as_secs_f64()));
        ready.context("create never said that a node is Ready")
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.root.join("target/x86_64-unknown-linux-gnu/release/kubeon"));
        program.args(arguments).env("KUBEON_HOME", &self.home);
        program
    }

    fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        let output =
            self.program(arguments).output().context("cannot start kubeon; cargo build --release first")?;
        if !output.status.success() {
            bail!("kubeon {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Every text under `key` in the document, in order: the list may be wrapped.
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
