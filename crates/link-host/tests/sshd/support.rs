//! A real sshd on loopback, in its own namespaces: files in its `/var/lib` disappear when it ends.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kubeon_api::HostAddress;
use kubeon_link_host::{
    HostKeyPolicy, HostKeys, Limits, Login, LoginMethod, NodeProgram, SshHosts, SshSettings, Stream,
};

/// The starts of sshd: another program may take the port before it does.
const ATTEMPTS: u8 = 3;

/// Ends with its sessions when it is dropped.
struct SshdProcess(Child);

pub(crate) struct Sshd {
    process: SshdProcess,
    pub folder: tempfile::TempDir,
    pub port: u16,
}

pub(crate) fn host() -> HostAddress {
    "127.0.0.1".parse().unwrap()
}

/// The log of the sshd with its files in this folder.
fn log(at: &Path) -> String {
    fs::read_to_string(at.join("log")).unwrap_or_default()
}

fn free_port() -> u16 {
    TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port()
}

pub(crate) fn sh(line: &str) -> String {
    let out = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Creates a key pair.
pub(crate) fn key(path: &Path, kind: &str, passphrase: &str) {
    sh(&format!("ssh-keygen -q {kind} -N '{passphrase}' -f '{}'", path.display()));
}

fn fake_node() -> NodeProgram {
    let program = std::env::current_exe().unwrap();
    NodeProgram::read(&program.parent().unwrap().parent().unwrap().join("examples/fake_node")).unwrap()
}

impl Sshd {
    /// Fails without sshd or without the right to start it: a test that checks nothing must not pass.
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    pub(crate) fn with(options: &str) -> Self {
        let able =
            sh("[ -x /usr/sbin/sshd ] && [ \"$(id -u)\" = 0 ] && unshare -m true && echo able || echo");
        assert_eq!(able, "able", "this test needs root, unshare and sshd (package openssh-server)");
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        key(&at.join("host"), "-t ed25519", "");
        key(&at.join("id"), "-t ed25519", "");
        fs::copy(at.join("id.pub"), at.join("authorized")).unwrap();
        let started = (0..ATTEMPTS).find_map(|_| SshdProcess::start(at, options));
        let (process, port) = started.unwrap_or_else(|| panic!("sshd does not start: {}", log(at)));
        Self { process, folder, port }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        log(self.folder.path())
    }

    /// Number of logins that sshd has accepted.
    pub(crate) fn logins(&self) -> usize {
        self.log().matches("Accepted publickey ").count()
    }

    pub(crate) fn login(&self) -> Login {
        self.login_with("id", None)
    }

    pub(crate) fn login_with(&self, key: &str, passphrase: Option<&str>) -> Login {
        let passphrase = passphrase.map(kubeon_api::Secret::new);
        Login::new("root").at_port(self.port).with(LoginMethod::KeyFile { path: self.path(key), passphrase })
    }

    pub(crate) fn hosts(&self) -> SshHosts {
        self.hosts_with(self.login(), Limits::default())
    }

    pub(crate) fn hosts_with(&self, login: Login, limits: Limits) -> SshHosts {
        let node_programs = vec![fake_node()];
        let settings = SshSettings { node_programs, limits, ..SshSettings::new(login) };
        SshHosts::new(settings, Arc::new(HostKeys::new(HostKeyPolicy::AcceptNew)))
    }

    /// The address of the host of number `number` in [`Sshd::many`].
    pub(crate) fn address(number: u8) -> std::net::Ipv4Addr {
        std::net::Ipv4Addr::new(127, 0, 0, number)
    }

    /// Several hosts, each at an address of its own, and a pool that knows their logins.
    pub(crate) fn many(count: u8) -> (Vec<Self>, Vec<HostAddress>, SshHosts) {
        let sshds: Vec<Self> = (0..count).map(|_| Self::start()).collect();
        let hosts: Vec<HostAddress> = (1..=count).map(|number| Self::address(number).into()).collect();
        let logins = hosts.iter().copied().zip(sshds.iter().map(Self::login)).collect();
        let node_programs = vec![fake_node()];
        let settings = SshSettings { node_programs, logins, ..SshSettings::new(Login::new("root")) };
        let pool = SshHosts::new(settings, Arc::new(HostKeys::new(HostKeyPolicy::AcceptNew)));
        (sshds, hosts, pool)
    }

    /// Ends sshd and every process of its sessions.
    pub(crate) fn kill(&mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

impl SshdProcess {
    /// Starts sshd on a free port; `None` when it ends before it listens.
    fn start(at: &Path, options: &str) -> Option<(Self, u16)> {
        let port = free_port();
        let config = format!(
            "Port {port}\nListenAddress 0.0.0.0\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPidFile none\nLogLevel VERBOSE\nMaxStartups 1000\nUseDNS no\n{options}\n",
            at = at.display()
        );
        fs::write(at.join("config"), config).unwrap();
        let inner = format!(
            "mount -t tmpfs none /var/lib && mount -t tmpfs none /root && mount -t tmpfs none /run && mkdir -p /run/sshd && \
             exec /usr/sbin/sshd -D -f '{at}/config' -E '{at}/log'",
            at = at.display()
        );
        let child = Command::new("unshare")
            .args(["-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", &inner])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut process = Self(child);
        let start = Instant::now();
        // A connection could be answered by the program that took the port.
        while !log(at).contains("Server listening on ") {
            if process.0.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "sshd does not start: {}", log(at));
            std::thread::sleep(Duration::from_millis(20));
        }
        Some((process, port))
    }
}

impl Drop for SshdProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The output of a command, by stream.
#[derive(Default)]
pub(crate) struct CollectedOutput(parking_lot::Mutex<(Vec<u8>, Vec<u8>)>);

impl CollectedOutput {
    pub(crate) fn collect(&self, stream: Stream, bytes: &[u8]) {
        let mut collected = self.0.lock();
        match stream {
            Stream::Out => collected.0.extend_from_slice(bytes),
            Stream::Err => collected.1.extend_from_slice(bytes),
        }
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8(self.0.lock().0.clone()).unwrap()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8(self.0.lock().1.clone()).unwrap()
    }
}
