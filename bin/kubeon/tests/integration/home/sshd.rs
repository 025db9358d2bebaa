//! A real sshd on all loopback addresses, in its own namespaces: files in its `/var/lib` are deleted at its
//! end. Needs root and sshd, and fails without them.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) struct Sshd {
    child: Child,
    folder: tempfile::TempDir,
    pub port: u16,
}

pub(crate) fn sh(line: &str) -> String {
    let out = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

impl Sshd {
    pub(crate) fn start() -> Self {
        sh("[ \"$(id -u)\" = 0 ] || { echo 'this test needs root' >&2; exit 1; }
            [ -x /usr/sbin/sshd ] || { echo 'this test needs sshd: apt-get install openssh-server' >&2; exit 1; }");
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        sh(&format!("for key in host id; do ssh-keygen -q -t ed25519 -N '' -f '{at}'/$key; done"));
        let port = kubeon_envtest::free_port(Ipv4Addr::UNSPECIFIED).unwrap();
        let config = format!(
            "Port {port}\nListenAddress 0.0.0.0\nHostKey {at}/host\nAuthorizedKeysFile {at}/id.pub\nStrictModes no\n\
             UsePAM no\nPermitRootLogin yes\nPasswordAuthentication yes\nPidFile none\nLogLevel VERBOSE\nUseDNS no\n\
             MaxStartups 500\n"
        );
        fs::write(folder.path().join("config"), config).unwrap();
        let inner = format!(
            "mount -t tmpfs none /var/lib && mount -t tmpfs none /root && mount -t tmpfs none /run && mkdir -p /run/sshd && \
             exec /usr/sbin/sshd -D -f '{at}/config' -E '{at}/log'"
        );
        let child = Command::new("unshare")
            .args(["-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c", &inner])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let sshd = Self { child, folder, port };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(10), "sshd does not start: {}", sshd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Flags with its port and key.
    pub(crate) fn flags(&self) -> Vec<String> {
        let key = self.path("id").display().to_string();
        vec!["--default-port".to_owned(), self.port.to_string(), "--default-pk-file".to_owned(), key]
    }

    /// The fingerprint of its key, as `ssh-keygen` prints it.
    pub(crate) fn fingerprint(&self) -> String {
        sh(&format!("ssh-keygen -lf '{}' | cut -d' ' -f2", self.path("host.pub").display()))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
