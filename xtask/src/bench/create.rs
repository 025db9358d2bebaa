//! Measures `kubeon create` in the lab and, in the same run, its lower bound (a script that starts the same processes with
//! every file in place) and its peer (the bundle's own kubeadm).

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::lab::{BenchLab, median};

const VERSION: &str = "v1.36.3";

/// Measures `runs` times; the medians are printed last.
pub(super) fn run(root: &Path, runs: usize) -> Result<()> {
    let bench = CreateBench { lab: BenchLab::new(root) };
    let measured = bench.create(runs);
    bench.lab.down()?;
    measured
}

struct CreateBench {
    lab: BenchLab,
}

/// Seconds from bare hosts to all nodes Ready, measured on the same machine within minutes.
struct Times {
    create: f64,
    floor: f64,
    kubeadm: f64,
}

impl CreateBench {
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
        let addresses = self.lab.hosts(masters + workers)?;
        let mut arguments = vec!["create", "bench", VERSION];
        for (index, address) in addresses.iter().enumerate() {
            arguments.extend([if index < masters { "-m" } else { "-w" }, address]);
        }
        let create = self.until_ready(&arguments)?;
        let (masters, workers) = addresses.split_at(masters);
        let floor = self.lab.script("floor", masters, workers, &[])?;
        self.lab.kubeon(&["destroy", "bench", "--yes"])?;
        self.lab.hosts(addresses.len())?;
        let bundle = self.lab.bundle(VERSION)?;
        let kubeadm = self.lab.script("kubeadm", masters, workers, &[&bundle, VERSION])?;
        Ok(Times { create, floor, kubeadm })
    }

    /// Runs `create` and returns the seconds until it reports the last node as Ready. Afterwards `create` also checks DNS, which
    /// the peers do not.
    fn until_ready(&self, arguments: &[&str]) -> Result<f64> {
        let begin = Instant::now();
        let mut create = self.lab.program(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
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
}
