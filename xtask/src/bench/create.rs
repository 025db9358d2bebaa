//! Measures `kubeon create` in the lab and, in the same run, its lower bound (a script that starts the same processes with
//! every file in place), its peer (the bundle's own kubeadm) and other programs `kubeon`, such as that of an earlier commit.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use super::lab::{BenchLab, BenchProgram, median};

const VERSION: &str = "v1.36.3";

/// The arguments of the benchmark.
#[derive(Args)]
pub(crate) struct CreateArguments {
    /// Number of runs; the medians are printed last.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Another program `kubeon`, with its own kubeon-node beside it, that creates the same clusters; repeat it or use commas.
    #[arg(long, value_name = "PROGRAM", value_delimiter = ',')]
    peer: Vec<PathBuf>,
    /// Folder of the bundle of the peers, if they cannot read the same bundle.
    #[arg(long, value_name = "DIR", requires = "peer")]
    peer_bundle: Option<PathBuf>,
}

/// Measures `runs` times; the medians are printed last.
pub(super) fn run(root: &Path, arguments: &CreateArguments) -> Result<()> {
    let lab = BenchLab::new(root);
    let peer = |(number, file): (usize, &PathBuf)| -> Result<Peer> {
        let program = lab.peer(number + 1, file, arguments.peer_bundle.as_deref())?;
        Ok(Peer { name: file.display().to_string(), program })
    };
    let peers = arguments.peer.iter().enumerate().map(peer).collect::<Result<Vec<_>>>()?;
    let bench = CreateBench { lab, peers };
    let measured = bench.create(arguments.runs);
    bench.lab.down()?;
    measured
}

struct CreateBench {
    lab: BenchLab,
    peers: Vec<Peer>,
}

/// Another program `kubeon`.
struct Peer {
    /// As the user wrote it.
    name: String,
    program: BenchProgram,
}

/// Seconds from bare hosts to all nodes Ready, measured on the same machine within minutes.
struct Times {
    create: f64,
    floor: f64,
    kubeadm: f64,
    peers: Vec<f64>,
}

impl CreateBench {
    fn create(&self, runs: usize) -> Result<()> {
        for (masters, workers) in [(1, 2), (3, 2)] {
            let mut all = Vec::new();
            for run in 0..runs.max(1) {
                let times = self.times(masters, workers, run)?;
                crate::terminal::say(&format!(
                    "{masters} + {workers}: kubeon create {:.2} s, floor {:.2} s, kubeadm {:.2} s{}",
                    times.create,
                    times.floor,
                    times.kubeadm,
                    self.of_peers(|number| format!("{:.2} s", times.peers[number]))
                ));
                all.push(times);
            }
            self.print_medians(&format!("{masters} + {workers}"), &all);
        }
        Ok(())
    }

    fn print_medians(&self, hosts: &str, all: &[Times]) {
        let median_of = |pick: fn(&Times) -> f64| median(all.iter().map(pick).collect());
        let (create, floor, kubeadm) = (
            median_of(|times| times.create),
            median_of(|times| times.floor),
            median_of(|times| times.kubeadm),
        );
        let peers = self.of_peers(|number| {
            let peer = median(all.iter().map(|times| times.peers[number]).collect());
            format!("{peer:.2} s: {:.2} of it", create / peer)
        });
        crate::terminal::say(&format!(
            "{hosts}: medians {create:.2} s, {floor:.2} s, {kubeadm:.2} s: {:.2} of the floor, {:.2} of kubeadm{peers}",
            create / floor,
            create / kubeadm
        ));
    }

    /// What a line says of each peer, by its number.
    fn of_peers(&self, describe: impl Fn(usize) -> String) -> String {
        let peers = self.peers.iter().enumerate();
        peers.map(|(number, peer)| format!(", {} {}", peer.name, describe(number))).collect()
    }

    /// Measures all programs, each on new bare hosts. The peers are first in every other run, so that none always has the faster
    /// hours of the machine.
    fn times(&self, masters: usize, workers: usize, run: usize) -> Result<Times> {
        let peers_first = run.is_multiple_of(2);
        let mut peers = if peers_first { self.peers(masters, workers)? } else { Vec::new() };
        let (create, floor, kubeadm) = self.own(masters, workers)?;
        if !peers_first {
            peers = self.peers(masters, workers)?;
        }
        Ok(Times { create, floor, kubeadm, peers })
    }

    /// Measures `create` on bare hosts, the lower bound on the same hosts, and kubeadm on new bare hosts.
    fn own(&self, masters: usize, workers: usize) -> Result<(f64, f64, f64)> {
        let addresses = self.lab.hosts(masters + workers)?;
        let create = until_ready(self.lab.own(), "create", &arguments(&addresses, masters))?;
        let (masters, workers) = addresses.split_at(masters);
        let floor = self.lab.script("floor", masters, workers, &[])?;
        self.lab.kubeon(&["destroy", "bench", "--yes"])?;
        self.lab.hosts(addresses.len())?;
        let bundle = self.lab.bundle(VERSION)?;
        let kubeadm = self.lab.script("kubeadm", masters, workers, &[&bundle, VERSION])?;
        Ok((create, floor, kubeadm))
    }

    /// Measures `create` of each peer on bare hosts.
    fn peers(&self, masters: usize, workers: usize) -> Result<Vec<f64>> {
        let measure = |peer: &Peer| -> Result<f64> {
            let addresses = self.lab.hosts(masters + workers)?;
            let time = until_ready(&peer.program, &peer.name, &arguments(&addresses, masters))
                .context("if the peer cannot read the bundle, name one of its own with --peer-bundle")?;
            peer.program.run(&["destroy", "bench", "--yes"])?;
            Ok(time)
        };
        self.peers.iter().map(measure).collect()
    }
}

fn arguments(addresses: &[String], masters: usize) -> Vec<&str> {
    let mut arguments = vec!["create", "bench", VERSION];
    for (index, address) in addresses.iter().enumerate() {
        arguments.extend([if index < masters { "-m" } else { "-w" }, address]);
    }
    arguments
}

/// The seconds until `create` reports the last node as Ready. Afterwards `create` also checks DNS, which floor and kubeadm do not.
fn until_ready(program: &BenchProgram, name: &str, arguments: &[&str]) -> Result<f64> {
    let times = program.until_ready(arguments).with_context(|| name.to_owned())?;
    crate::terminal::say(&format!("  {name}: {:.2} s until its end", times.end));
    Ok(times.ready)
}
