//! Twenty hosts with slow links get the parts of a bundle in about the time of one, because they forward them to each other, and
//! the node program too.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::{folder, must};
use kubeon_e2e::running::Running;
use serde_json::Value;

/// A cluster has at most 15 masters, one of them from the beginning.
const MASTERS: usize = 14;
const WORKERS: usize = 6;
const LIMIT: Duration = Duration::from_secs(600);
/// Each host and this machine send no more than this.
const RATES: [&str; 2] = ["100mbit", "40mbit"];
const BUFFER: [&str; 4] = ["burst", "256kb", "latency", "100ms"];
/// Seconds for twenty hosts, for each second for one.
const MOST_RATIO: f64 = 1.5;

/// The parts of masters in container mode are almost the whole bundle. Nothing but the parts comes onto the hosts, so that the programs
/// of twenty hosts do not share the processors of one machine with their parts. At the first rate, twenty hosts that receive, check and
/// unpack on two processors are slower than their links; at the last one they are not.
#[test]
#[ignore = "about eight minutes, twenty hosts, 20 GiB of disk: ./test long"]
fn soak_parts_reach_twenty_hosts_over_slow_links() -> Result<()> {
    let _memory = DirtyMemory::raise()?;
    let ratios = RATES.iter().map(|rate| ratio_at(rate)).collect::<Result<Vec<f64>>>()?;
    let slowest = ratios.last().copied().context("no rate")?;
    ensure!(slowest <= MOST_RATIO, "received after {slowest:.2} times the time of one");
    Ok(())
}

/// How much longer twenty hosts than one wait until they have received all parts, over links of the rate.
fn ratio_at(rate: &str) -> Result<f64> {
    let lab = TestLab::up("e2e-parts", MASTERS + WORKERS + 2)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "--deploy-mode", "container", "-m", &hosts[0]])?;
    let limit = [&["root", "tbf", "rate", rate][..], &BUFFER].concat();
    for host in 1..=hosts.len() {
        let link = "$(ip -4 -o route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/')";
        lab.on(&format!("h{host}"), &format!("tc qdisc add dev {link} {}", limit.join(" ")))?;
    }
    let link = lab.link()?;
    must("tc", &[&["qdisc", "add", "dev", &link][..], &limit].concat(), &[])?;

    let _memory = FilledMemory::new()?;
    let other = format!("{cluster}-one");
    let one = times(&lab, &["create", &other, VERSION, "--deploy-mode", "container", "-m", &hosts[1]])?;
    lab.host("kill", "h2")?;
    let (masters, workers) = hosts[2..].split_at(MASTERS);
    let before = bytes_sent(&link)?;
    let many = times(&lab, &["addon", cluster, "-m", &masters.join(","), "-w", &workers.join(",")])?;
    let sent = bytes_sent(&link)? - before;

    let program = fs::metadata(folder().join("kubeon-node")).map_or(0, |program| program.len());
    let ratio = |of: fn(&PartTimes) -> f64| of(&many) / of(&one);
    let (received, unpacked) = (ratio(|times| times.received), ratio(|times| times.unpacked));
    println!(
        "  {rate}: one host, {} MiB: received after {:.1} s, unpacked after {:.1} s\n  \
         {} hosts, {} MiB: received after {:.1} s, unpacked after {:.1} s; {received:.2} and {unpacked:.2} times\n  \
         sent from here: {} MiB, the parts of a host and a node program of {} MiB {:.2} times",
        one.bytes >> 20,
        one.received,
        one.unpacked,
        hosts.len() - 2,
        many.bytes >> 20,
        many.received,
        many.unpacked,
        sent >> 20,
        program >> 20,
        sent as f64 / (one.bytes + program) as f64,
    );
    ensure!(sent <= 2 * (one.bytes + program), "{sent} bytes were sent from here, more than twice the parts");
    Ok(received)
}

/// The parts of a command.
struct PartTimes {
    /// Their bytes.
    bytes: u64,
    /// Seconds since the plan began until all of them were received and checked.
    received: f64,
    /// The same until all were unpacked and the command ended.
    unpacked: f64,
}

/// Runs the command for the parts alone.
fn times(lab: &TestLab, arguments: &[&str]) -> Result<PartTimes> {
    let mut run = Running::start(lab, &[arguments, &["--only-parts", "--progress", "json"]].concat())?;
    run.until("the state is saved", LIMIT, |run| run.output().contains(r#""event":"saved""#))?;
    let start = Instant::now();
    let answer = run.wait(LIMIT)?;
    let unpacked = start.elapsed().as_secs_f64();
    ensure!(answer.code == 0, "{answer:?}");
    let received = answer.err.lines().find(|line| line.contains(r#""event":"parts-received""#));
    let received: Value = serde_json::from_str(received.context("no parts were received")?)?;
    let number = |name: &str| received[name].as_u64().with_context(|| format!("no {name}: {received}"));
    let milliseconds = Duration::from_millis(number("milliseconds")?);
    Ok(PartTimes { bytes: number("bytes")?, received: milliseconds.as_secs_f64(), unpacked })
}

/// The bytes that this machine has sent over a link.
fn bytes_sent(link: &str) -> Result<u64> {
    let file = Path::new("/sys/class/net").join(link).join("statistics/tx_bytes");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    text.trim().parse().context("not a number of bytes")
}

/// Fills the free memory with the pages of a file. A virtual machine returns free memory to its host, from which each page that is used
/// again takes longer to get than to fill: twenty hosts on one machine would wait for it. Pages of a file are used again at once.
struct FilledMemory(PathBuf);

impl FilledMemory {
    fn new() -> Result<Self> {
        let text = fs::read_to_string("/proc/meminfo")?;
        let free = text.lines().find_map(|line| line.strip_prefix("MemFree:")?.strip_suffix(" kB"));
        let kibibytes: u64 = free.context("/proc/meminfo names no free memory")?.trim().parse()?;
        // A file without content, of which each page that is read is in memory.
        let file = Self(std::env::temp_dir().join(format!("kubeon-e2e-memory-{}", std::process::id())));
        File::create(&file.0)?.set_len(kibibytes << 10)?;
        io::copy(&mut File::open(&file.0)?, &mut io::sink())?;
        Ok(file)
    }
}

impl Drop for FilledMemory {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// The hosts of a lab have one disk. Until the kernel writes more than this share of the memory, a host that unpacks does not slow
/// down one that receives, as on machines. The value ends with the old one.
struct DirtyMemory(String);

impl DirtyMemory {
    const FILE: &'static str = "/proc/sys/vm/dirty_ratio";

    fn raise() -> Result<Self> {
        let before = fs::read_to_string(Self::FILE)?;
        fs::write(Self::FILE, "60")?;
        Ok(Self(before))
    }
}

impl Drop for DirtyMemory {
    fn drop(&mut self) {
        // A value of 0 stands for a number of bytes, which cannot be put back.
        if self.0.trim() != "0" {
            fs::write(Self::FILE, self.0.trim()).ok();
        }
    }
}
