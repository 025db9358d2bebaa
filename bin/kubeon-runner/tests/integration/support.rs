//! Runs the program as a process with its own files, and reads its lines with deadlines.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// Longer than any wait on the slowest machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Files for one run.
pub(crate) struct Place {
    pub folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kubeon-runner-test-").tempdir().unwrap();
        for name in ["auth", "conf"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let file = self.file(name);
        fs::write(&file, content).unwrap();
        file
    }

    pub(crate) fn program(&self, name: &str, content: &str) -> PathBuf {
        let file = self.write(name, content);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
        file
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// The common arguments of all runs.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let named = [("--auth", "auth"), ("--conf", "conf"), ("--termination-log", "termination-log")];
        let more =
            [("--state", "state"), ("--bundle", "bundle"), ("--script", "script"), ("--kubeon", "kubeon")];
        let flags = named.iter().chain(&more).chain(&[("--known-hosts", "known-hosts")]);
        let flags =
            flags.flat_map(|(flag, name)| [(*flag).to_owned(), self.file(name).display().to_string()]);
        ["run".to_owned()].into_iter().chain(flags).collect()
    }

    /// `kubeon-runner run` with the common and these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubeon-runner"));
        command.args(self.arguments()).args(arguments).current_dir(self.folder.path());
        let variables =
            ["OPERATION", "CLUSTER_NAME", "CLUSTER_NAMESPACE", "MASTER_HOSTS", "NODE_HOSTS", "ETCD_HOSTS"];
        for name in variables.iter().chain(&["IGNORE_CHECKS", "WITHOUT", "KUBERNETES_SERVICE_HOST"]) {
            command.env_remove(name);
        }
        command
    }

    /// Runs a script to its end.
    pub(crate) fn script(&self, text: &str, arguments: &[&str]) -> Done {
        self.program("script", &format!("#!/bin/bash\n{text}\n"));
        Running::start(&mut self.command(arguments)).end()
    }

    /// Starts a script.
    pub(crate) fn begin(&self, text: &str, arguments: &[&str]) -> Running {
        self.program("script", &format!("#!/bin/bash\n{text}\n"));
        Running::start(&mut self.command(arguments))
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Done {
    pub code: Option<i32>,
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

impl Done {
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.stdout.iter().chain(&self.stderr).any(|line| line.contains(text))
    }
}

/// A running process.
pub(crate) struct Running {
    pub child: Child,
    pub stdout: Receiver<String>,
    pub stderr: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
        Self { child, stdout, stderr }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// The next line of standard output.
    pub(crate) fn line(&self) -> String {
        self.stdout.recv_timeout(TIMEOUT).expect("a line in time")
    }

    /// Waits for a line of standard error that contains a text.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.stderr.recv_timeout(left).unwrap_or_else(|_| panic!("no line contains {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Waits for its end, and collects the remaining lines.
    pub(crate) fn end(mut self) -> Done {
        let collect = |lines: &Receiver<String>| {
            std::iter::from_fn(|| lines.recv_timeout(TIMEOUT).ok()).collect::<Vec<String>>()
        };
        let (stdout, stderr) = (collect(&self.stdout), collect(&self.stderr));
        let code = self.child.wait().unwrap().code();
        Done { code, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// The number of children of a process, zombies included, read from /proc.
pub(crate) fn children(parent: Pid) -> usize {
    let stats = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        // The state comes before the parent.
        words.nth(1).map(str::to_owned)
    });
    stats.filter(|parent_of_process| *parent_of_process == parent.to_string()).count()
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "timeout; expected: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn alive(pid: &str) -> bool {
    let state = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}
