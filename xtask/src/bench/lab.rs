//! The lab of a benchmark: bare hosts, the published programs, and the scripts of the floor and of the peer.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

const LAB: &str = "bench";

/// A program `kubeon` with a home folder of its own.
pub(super) struct BenchProgram {
    file: PathBuf,
    home: PathBuf,
    /// The node program, if it is not the one that the program finds by itself.
    node: Option<PathBuf>,
    /// The folder of its bundles, if it is not that of the user.
    bundles: Option<PathBuf>,
    /// The processors that it may use, if not all: a list as in `taskset --cpu-list`.
    processors: Option<String>,
}

impl BenchProgram {
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = on_processors(self.processors.as_deref(), &self.file);
        command.args(arguments).env("KUBEON_HOME", &self.home);
        if let Some(node) = &self.node {
            command.env("KUBEON_NODE_PROGRAM", node);
        }
        if let Some(bundles) = &self.bundles {
            command.env("KUBEON_BUNDLES", bundles);
        }
        command
    }

    /// Runs the program, which must succeed. Returns its standard output.
    pub(super) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output();
        let output =
            output.with_context(|| format!("cannot start {}; build it first", self.file.display()))?;
        if !output.status.success() {
            let (file, why) = (self.file.display(), String::from_utf8_lossy(&output.stderr));
            bail!("{file} {}: {why}", arguments.join(" "));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a command that brings nodes into a cluster, which must succeed.
    pub(super) fn until_ready(&self, arguments: &[&str]) -> Result<CommandTimes> {
        let begin = Instant::now();
        let mut running = self.command(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let (mut ready, mut output) = (None, String::new());
        for line in BufReader::new(running.stderr.take().context("no standard error")?).lines() {
            let (line, time) = (line?, begin.elapsed().as_secs_f64());
            if line.contains(" is Ready (") {
                ready = Some(time);
            }
            output = format!("{output}{time:7.3}  {line}\n");
        }
        if !running.wait()?.success() {
            bail!("kubeon {}: {output}", arguments.join(" "));
        }
        let ready = ready.with_context(|| format!("no node was reported as Ready: {output}"))?;
        Ok(CommandTimes { ready, end: begin.elapsed().as_secs_f64(), output })
    }
}

/// Seconds of a command that brings nodes into a cluster.
pub(super) struct CommandTimes {
    /// Until it reports the last node as Ready.
    pub(super) ready: f64,
    pub(super) end: f64,
    /// The lines that it printed, each with the seconds since its begin.
    pub(super) output: String,
}

/// Hosts that a benchmark creates, and `kubeon` with a home folder of its own.
pub(super) struct BenchLab {
    root: PathBuf,
    own: BenchProgram,
}

impl BenchLab {
    pub(super) fn new(root: &Path) -> Self {
        let own = BenchProgram {
            file: root.join("target/x86_64-unknown-linux-gnu/release/kubeon"),
            home: std::env::temp_dir().join("kubeon-bench"),
            node: None,
            bundles: None,
            processors: None,
        };
        Self { root: root.to_owned(), own }
    }

    /// The program that was built from this source.
    pub(super) fn own(&self) -> &BenchProgram {
        &self.own
    }

    /// Another program, which logs in to the hosts of this lab and knows no cluster yet. `bundle` is the folder of its bundle.
    pub(super) fn peer(&self, number: usize, file: &Path, bundle: Option<&Path>) -> Result<BenchProgram> {
        let file = file.canonicalize().with_context(|| format!("no program {}", file.display()))?;
        let home = self.own.home.with_extension(format!("peer-{number}"));
        if home.exists() {
            std::fs::remove_dir_all(&home)?;
        }
        std::fs::create_dir_all(&home)?;
        let labs = self.own.home.join("lab");
        std::fs::create_dir_all(&labs)?;
        std::os::unix::fs::symlink(&labs, home.join("lab"))?;
        let node = Some(file.with_file_name("kubeon-node")).filter(|node| node.exists());
        let bundles = match bundle {
            Some(bundle) => {
                let bundle =
                    bundle.canonicalize().with_context(|| format!("no bundle {}", bundle.display()))?;
                Some(bundle.parent().context("the folder of a bundle is in another folder")?.to_owned())
            }
            None => None,
        };
        Ok(BenchProgram { file, home, node, bundles, processors: self.own.processors.clone() })
    }

    /// The folder with the state of all clusters of [`Self::own`].
    pub(super) fn home(&self) -> &Path {
        &self.own.home
    }

    /// Runs a shell command on a host, which must succeed. Returns its standard output.
    pub(super) fn on(&self, host: &str, command: &str) -> Result<String> {
        self.kubeon(&["lab", "ssh", "--lab", LAB, host, "--", command])
    }

    /// Ends a host as a power failure does.
    pub(super) fn kill(&self, host: &str) -> Result<()> {
        self.kubeon(&["lab", "kill", host, "--lab", LAB]).map(drop)
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

    /// Gives one half of the processors to the masters. The other half is for the other hosts, `kubeon` and the scripts. Machines do
    /// not share processors, so the work of a master does not slow the host that joins. The hosts are booted and have no cluster.
    ///
    /// # Errors
    /// When there is only one processor, or a host cannot be changed.
    pub(super) fn separate(&mut self, masters: &[&str], others: &[&str]) -> Result<()> {
        let count = std::thread::available_parallelism()?.get();
        if count < 2 {
            bail!("hosts cannot have processors of their own on a machine with one: use --shared");
        }
        let half = count / 2;
        let (of_masters, of_others) = (format!("0-{}", half - 1), format!("{half}-{}", count - 1));
        let hosts = masters.iter().map(|host| (host, &of_masters));
        for (host, processors) in hosts.chain(others.iter().map(|host| (host, &of_others))) {
            // Every process inherits the processors of process 1, which starts it, or of the server of its login.
            let set = format!("taskset --cpu-list --pid {processors} 1 >/dev/null && systemctl restart ssh");
            self.on(host, &set)?;
            let answer = self.on(host, "taskset --cpu-list --pid 1 && taskset --cpu-list --pid $$")?;
            if answer.lines().count() != 2 || !answer.lines().all(|line| has_processors(line, processors)) {
                bail!("{host} does not keep to the processors {processors}: {answer}");
            }
        }
        self.own.processors = Some(of_others);
        Ok(())
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
        let lab = self.own.home.join("lab").join(LAB);
        let (key, known) = (lab.join("id_ed25519"), self.own.home.join("bench-known-hosts"));
        // Every lab has new host keys at the same addresses.
        std::fs::write(&known, "")?;
        let script = self.root.join("scripts/bench").join(name);
        let output = on_processors(self.own.processors.as_deref(), &script)
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
        self.own.command(arguments)
    }

    pub(super) fn kubeon(&self, arguments: &[&str]) -> Result<String> {
        self.own.run(arguments)
    }
}

/// A command that may use these processors only.
fn on_processors(processors: Option<&str>, program: &Path) -> Command {
    let Some(processors) = processors else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processors]).arg(program);
    command
}

/// Whether `taskset` reports exactly these processors: it writes `0` for `0-0`.
fn has_processors(line: &str, processors: &str) -> bool {
    let (first, last) = processors.split_once('-').unwrap_or((processors, processors));
    let wanted = if first == last { first } else { processors };
    line.rsplit_once(": ").is_some_and(|(_, found)| found == wanted)
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

#[cfg(test)]
mod tests {
    use super::has_processors;

    #[test]
    fn the_report_of_taskset_is_compared_with_the_processors() {
        assert!(has_processors("pid 1's current affinity list: 0", "0-0"));
        assert!(has_processors("pid 70's current affinity list: 2-3", "2-3"));
        assert!(!has_processors("pid 1's current affinity list: 0-3", "2-3"));
        assert!(!has_processors("", "0-0"));
    }
}
