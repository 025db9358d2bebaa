//! Measures `kubeon create` beside its floor in one run, in the lab: a committed script that starts the same
//! processes by hand, in order, with every file in place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

const VERSION: &str = "v1.36.3";
const LAB: &str = "bench";

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Bare lab hosts to all nodes Ready: `kubeon create` and the floor.
    Create {
        /// How often; the medians are printed last.
        #[arg(long, default_value_t = 3)]
        runs: usize,
    },
}

/// Measures.
pub(crate) fn run(root: &Path, bench: &Bench) -> Result<()> {
    let Bench::Create { runs } = bench;
    let bench = Ground { root: root.to_owned(), home: std::env::temp_dir().join("kubeon-bench") };
    let measured = bench.create(*runs);
    bench.kubeon(&["lab", "down", "--lab", LAB])?;
    measured
}

struct Ground {
    root: PathBuf,
    home: PathBuf,
}

impl Ground {
    fn create(&self, runs: usize) -> Result<()> {
        for (masters, workers) in [(1, 2), (3, 2)] {
            let (mut engine, mut floor) = (Vec::new(), Vec::new());
            for _ in 0..runs.max(1) {
                let (create, by_hand) = self.pair(masters, workers)?;
                crate::say(&format!(
                    "{masters} + {workers}: kubeon create {create:.2} s, floor {by_hand:.2} s"
                ));
                engine.push(create);
                floor.push(by_hand);
            }
            let (engine, floor) = (median(engine), median(floor));
            crate::say(&format!(
                "{masters} + {workers}: medians {engine:.2} s and {floor:.2} s, ratio {:.2}",
                engine / floor
            ));
        }
        Ok(())
    }

    /// One `create` on bare hosts, and the floor on the same hosts.
    fn pair(&self, masters: usize, workers: usize) -> Result<(f64, f64)> {
        self.kubeon(&["lab", "down", "--lab", LAB])?;
        self.kubeon(&["lab", "up", "--lab", LAB, "--hosts", &(masters + workers).to_string()])?;
        let listed: serde_json::Value =
            serde_json::from_str(&self.kubeon(&["lab", "ls", "--lab", LAB, "-o", "json"])?)?;
        let addresses = addresses(&listed);
        let mut arguments = vec!["create", "bench", VERSION];
        for (index, address) in addresses.iter().enumerate() {
            arguments.extend([if index < masters { "-m" } else { "-w" }, address]);
        }
        let begin = Instant::now();
        self.kubeon(&arguments)?;
        let create = begin.elapsed().as_secs_f64();
        let floor = self.floor(&addresses[..masters], &addresses[masters..])?;
        self.kubeon(&["destroy", "bench", "--yes"])?;
        Ok((create, floor))
    }

    fn floor(&self, masters: &[String], workers: &[String]) -> Result<f64> {
        let lab = self.home.join("lab").join(LAB);
        let (key, known) = (lab.join("id_ed25519"), self.home.join("floor-known-hosts"));
        // Every lab has host keys of its own at the same addresses.
        std::fs::write(&known, "")?;
        let output = Command::new(self.root.join("scripts/bench/floor"))
            .args([key.as_os_str(), known.as_os_str()])
            .args([masters.join(" "), workers.join(" ")])
            .output()?;
        if !output.status.success() {
            bail!("the floor failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }

    fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        let program = self.root.join("target/x86_64-unknown-linux-gnu/release/kubeon");
        let output =
            Command::new(&program).args(arguments).env("KUBEON_HOME", &self.home).output().with_context(
                || format!("cannot start {}; cargo build --release first", program.display()),
            )?;
        if !output.status.success() {
            bail!("kubeon {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn addresses(listed: &serde_json::Value) -> Vec<String> {
    match listed {
        serde_json::Value::Object(map) => {
            let own = map.get("address").and_then(|address| address.as_str()).map(str::to_owned);
            own.into_iter().chain(map.values().flat_map(addresses)).collect()
        }
        serde_json::Value::Array(list) => list.iter().flat_map(addresses).collect(),
        _ => Vec::new(),
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
