//! Tests the renewal as a process: killed at many moments, and on a disk that is full.
#![allow(clippy::unwrap_used, reason = "a failed test reports the line")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use kubeon_node::journal::{self, Entry, Mark};
use kubeon_node::root::Root;
use kubeon_node::{durable, facts, paths};
use kubeon_wire::{Claim, ResultState};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

const LEAF: &str = "/etc/kubernetes/pki/etcd/server.crt";
const KEY: &str = "/etc/kubernetes/pki/etcd/server.key";

/// A master whose etcd certificate has expired.
struct Master(tempfile::TempDir);

impl Master {
    fn new() -> Self {
        let master = Self(tempfile::tempdir().unwrap());
        let named = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
            params
        };
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut ca = named("kubeon-etcd-ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.not_after = rcgen::date_time_ymd(2120, 1, 1);
        let mut leaf = named("h1");
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let issued = leaf.signed_by(&key, &Issuer::from_params(&ca, &ca_key)).unwrap().pem();
        let claim = Claim {
            cluster: "demo".parse().unwrap(),
            uid: "u1".to_owned(),
            generation: 1,
            version: "v1.36.3".parse().unwrap(),
            role: kubeon_api::HostRole::Master,
        };
        master.write(paths::CLAIM, &serde_json::to_string(&claim).unwrap());
        master.write(paths::ETCD_CA, &ca.self_signed(&ca_key).unwrap().pem());
        master.write("/etc/kubernetes/pki/etcd/ca.key", &ca_key.serialize_pem());
        master.write(LEAF, &issued);
        master.write(KEY, &key.serialize_pem());
        let sha256 = durable::sha256(issued.as_bytes());
        let marks = vec![Mark::File { path: LEAF.to_owned(), sha256, mode: 0o644 }];
        let entry = Entry { id: "etcd/keys@h1".to_owned(), digest: "d".to_owned(), marks };
        journal::remember(&master.root(), &entry).unwrap();
        master
    }

    fn root(&self) -> Root {
        Root::new(self.0.path())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root().at(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), text).unwrap();
    }

    fn leaf(&self) -> String {
        fs::read_to_string(self.at(LEAF)).unwrap()
    }

    /// The public key of the certificate, as openssl prints it.
    fn key_of_leaf(&self) -> Vec<u8> {
        openssl(&["x509", "-noout", "-pubkey", "-in"], &self.at(LEAF))
    }

    fn key(&self) -> Vec<u8> {
        openssl(&["pkey", "-pubout", "-in"], &self.at(KEY))
    }

    fn is_up_to_date(&self) -> bool {
        let host = kubeon_node::host::HostSystem::new(self.root());
        let facts = facts::collect(&std::sync::Arc::new(host)).unwrap();
        facts.journal.iter().all(|entry| entry.state == ResultState::UpToDate)
    }

    /// The shell command `before`, then the program.
    fn renew(&self, before: &str) -> Command {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_kubeon-node");
        command.args(["-c", &format!("{before} exec \"$1\" --root \"$2\" renew"), "sh", program]);
        command.arg(self.0.path()).stderr(Stdio::piped());
        command
    }
}

fn openssl(arguments: &[&str], file: &Path) -> Vec<u8> {
    let answer = Command::new("openssl").args(arguments).arg(file).output().unwrap();
    assert!(answer.status.success());
    answer.stdout
}

#[test]
fn a_full_disk_keeps_the_old_leaf() {
    let master = Master::new();
    let old = master.leaf();
    // No process may write a byte to a file, and the signal for it is ignored.
    let answer = master.renew("trap '' XFSZ; ulimit -f 0;").output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.code() == Some(1) && said.starts_with("<3>error: cannot write"), "{said}");
    assert_eq!(master.leaf(), old);
    let answer = master.renew("").output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!((answer.status.code(), said.trim()), (Some(0), &*format!("<5>renewed {LEAF}")));
    assert!(master.leaf() != old && master.is_up_to_date());
}

#[test]
fn a_renewal_can_be_killed_at_any_moment() {
    for delay in 0..40 {
        let master = Master::new();
        let old = master.leaf();
        let mut child = master.renew("").spawn().unwrap();
        std::thread::sleep(Duration::from_micros(delay * 500));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(master.key_of_leaf(), master.key(), "certificate and key always belong together");
        assert!(master.renew("").output().unwrap().status.success());
        assert!(master.leaf() != old && master.is_up_to_date());
        assert_eq!(master.key_of_leaf(), master.key());
        let folder = master.at("/etc/kubernetes/pki/etcd");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 4, "no temporary file is left");
    }
}
