//! Clusters that are taken away although hosts of theirs cannot be reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Hosts on the loopback where nobody listens.
const HOSTS: [&str; 2] = ["127.0.2.1", "127.0.2.2"];

struct Home(tempfile::TempDir);

impl Home {
    /// Cluster `t` of one master and one worker is written down; no host was talked to.
    fn with_cluster() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        let made = home.kubeon(&[
            "create",
            "t",
            "v1.36.3",
            "-C",
            "-m",
            HOSTS[0],
            "-w",
            HOSTS[1],
            "--default-port",
            "1",
        ]);
        assert!(made.status.success(), "{made:?}");
        home
    }

    /// The same, after something was put on its hosts.
    fn with_cluster_on_hosts() -> Self {
        let home = Self::with_cluster();
        let text = std::fs::read_to_string(home.state()).unwrap();
        std::fs::write(home.state(), text.replace("\"generation\": 0", "\"generation\": 3")).unwrap();
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn state(&self) -> PathBuf {
        self.path().join(".kubeon/t.json")
    }

    fn kubeon(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_kubeon"))
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap()
    }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_was_only_written_down_is_forgotten() {
    let home = Home::with_cluster();
    let unsure = home.kubeon(&["destroy", "t"]);
    assert_eq!(unsure.status.code(), Some(2), "{unsure:?}");
    let planned = home.kubeon(&["destroy", "t", "--dry-run"]);
    assert!(planned.status.success() && home.state().exists(), "{planned:?}");
    assert!(words(&planned.stderr).contains("no host was ever written to"), "{planned:?}");
    let gone = home.kubeon(&["destroy", "t", "--yes"]);
    assert!(gone.status.success(), "{gone:?}");
    assert!(words(&gone.stdout).starts_with("t is gone: no host was touched"), "{gone:?}");
    assert!(!home.state().exists());
}

#[test]
fn a_cluster_whose_hosts_are_all_gone_is_forgotten_and_it_is_said_what_they_keep() {
    let home = Home::with_cluster_on_hosts();
    let both = HOSTS.join(",");
    let gone = home.kubeon(&["destroy", "t", "--yes", "--without", &both]);
    assert!(gone.status.success(), "{gone:?}");
    let said = words(&gone.stderr);
    for part in
        ["127.0.2.1: is left out and keeps", "etcd's data", "127.0.2.2: is left out", "reset --cluster t"]
    {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    assert!(!home.state().exists());
}
