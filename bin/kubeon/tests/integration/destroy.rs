//! Clusters that are destroyed although some hosts cannot be reached.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Loopback addresses without an SSH server.
const HOSTS: [&str; 2] = ["127.0.2.1", "127.0.2.2"];

struct Home(tempfile::TempDir);

impl Home {
    /// Stores cluster `t` with one master and one worker; contacts no host.
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

    /// Like `with_cluster`, after its hosts were written to.
    fn with_cluster_on_hosts() -> Self {
        let home = Self::with_cluster();
        let state = std::fs::read_to_string(home.state()).unwrap();
        std::fs::write(home.state(), state.replace("\"generation\": 0", "\"generation\": 3")).unwrap();
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_cluster_that_was_only_stored_is_deleted() {
    let home = Home::with_cluster();
    let unconfirmed = home.kubeon(&["destroy", "t"]);
    assert_eq!(unconfirmed.status.code(), Some(2), "{unconfirmed:?}");
    let planned = home.kubeon(&["destroy", "t", "--dry-run"]);
    assert!(planned.status.success() && home.state().exists(), "{planned:?}");
    assert!(text(&planned.stderr).contains("no host was ever written to"), "{planned:?}");
    let destroyed = home.kubeon(&["destroy", "t", "--yes"]);
    assert!(destroyed.status.success(), "{destroyed:?}");
    assert!(text(&destroyed.stdout).starts_with("t is destroyed: no host was contacted"), "{destroyed:?}");
    assert!(!home.state().exists());
}

#[test]
fn a_cluster_with_only_skipped_hosts_is_deleted_with_notes_about_the_remaining_files() {
    let home = Home::with_cluster_on_hosts();
    let both = HOSTS.join(",");
    let destroyed = home.kubeon(&["destroy", "t", "--yes", "--without", &both]);
    assert!(destroyed.status.success(), "{destroyed:?}");
    let output = text(&destroyed.stderr);
    for part in
        ["127.0.2.1: is skipped and keeps", "the etcd data", "127.0.2.2: is skipped", "reset --cluster t"]
    {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    assert!(!home.state().exists());
}
