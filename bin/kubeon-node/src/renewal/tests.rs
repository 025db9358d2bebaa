use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use kubeon_api::ClusterKeys;
use kubeon_pki::ClusterPki;
use kubeon_ports::Secrets as _;
use kubeon_wire::{CertificateAuthority, Claim, Content, File, Leaf, ResultState, SecretRef, Usage};

use super::*;
use crate::facts::certificates;
use crate::fence::Lock;
use crate::journal::{self, Entry};
use crate::ops::files;
use crate::ops::service::{self, Service};
use crate::testing::Bench;
use crate::{drift, paths, units};

const DAY: i64 = 86_400;
const UNIT: &str = "[Service]\nType=notify\n[Install]\nWantedBy=multi-user.target\n";
const LEAF: &str = "/etc/kubernetes/pki/etcd/server.crt";

/// A master with one leaf of every authority, written by steps, and an etcd that reads one of them.
struct Master {
    bench: Bench,
    /// When the leaves were issued, in seconds since 1970.
    issued: i64,
    keys: tempfile::TempDir,
}

fn leaf(ca: CertificateAuthority, usage: Usage) -> Leaf {
    Leaf {
        ca,
        common_name: "h1".to_owned(),
        organizations: Vec::new(),
        dns_names: vec!["localhost".to_owned(), "h1".to_owned()],
        addresses: vec!["127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap()],
        usage,
        hours: 365 * 24,
    }
}

impl Master {
    fn new() -> Self {
        let (bench, keys) = (Bench::new(), tempfile::tempdir().unwrap());
        let pki = ClusterPki::load_or_create(keys.path(), 100).unwrap();
        let claim = Claim {
            cluster: "demo".parse().unwrap(),
            uid: "u1".to_owned(),
            generation: 3,
            version: "v1.36.3".parse().unwrap(),
            role: kubeon_api::HostRole::Master,
        };
        bench.write(paths::CLAIM, &serde_json::to_string(&claim).unwrap());
        let master = Self { bench, issued: 0, keys };
        let names = ["apiserver", "etcd/server", "front-proxy-client", "kubelet-serving"];
        let cas = [
            CertificateAuthority::Kubernetes,
            CertificateAuthority::Etcd,
            CertificateAuthority::FrontProxy,
            CertificateAuthority::KubeletServing,
        ];
        for (ca, (name, (certificate, key))) in cas.into_iter().zip(names.iter().zip(paths::AUTHORITIES)) {
            let issued = leaf(ca, Usage::Both);
            let (leaf_path, key_path) =
                (format!("{}/{name}.crt", paths::PKI), format!("{}/{name}.key", paths::PKI));
            master.write_step(
                ca.as_str(),
                &[
                    (certificate, 0o644, pki.resolve(&SecretRef::CaCertificate { ca }).unwrap()),
                    (key, 0o600, pki.resolve(&SecretRef::CaKey { ca }).unwrap()),
                    (&leaf_path, 0o644, pki.resolve(&SecretRef::LeafCertificate(issued.clone())).unwrap()),
                    (&key_path, 0o600, pki.resolve(&SecretRef::LeafKey(issued)).unwrap()),
                ],
            );
        }
        let watches = [LEAF.to_owned()];
        let etcd = Service { name: "etcd.service", unit: UNIT, watches: &watches, ready: &[] };
        let effect = service::run(&master.bench.job(), &etcd).unwrap();
        master.remember("etcd/member@h1", effect.marks);
        master.bench.calls();
        let issued = master.leaves().iter().map(|leaf| leaf.0).max().unwrap();
        Self { issued, ..master }
    }

    fn write_step(&self, id: &str, contents: &[(&str, u32, String)]) {
        let file = |(path, mode, text): &(&str, u32, String)| File {
            path: (*path).to_owned(),
            mode: *mode,
            content: Content::Sealed(text.clone()),
        };
        let contents: Vec<File> = contents.iter().map(file).collect();
        self.remember(id, files::run(&self.bench.job(), &contents).unwrap().marks);
    }

    fn remember(&self, id: &str, marks: Vec<journal::Mark>) {
        let entry = Entry { id: id.to_owned(), digest: "d".to_owned(), marks };
        journal::remember(&self.bench.host.root, &entry).unwrap();
    }

    /// Begin and end of every leaf.
    fn leaves(&self) -> Vec<(i64, i64)> {
        let all = certificates::all(&self.bench.host.root).unwrap();
        let leaves = all.iter().filter(|found| !paths::AUTHORITIES.iter().any(|(ca, _)| *ca == found.path));
        leaves.map(|found| (found.not_before, found.not_after)).collect()
    }

    fn renew(&self, now: i64) -> RenewalReport {
        run(&self.bench.host, now).unwrap()
    }

    /// The steps whose results are not up to date.
    fn drifted(&self) -> Vec<String> {
        let entries: Vec<Entry> =
            journal::all(&self.bench.host.root).unwrap().into_iter().flatten().collect();
        let read = drift::DriftCheck::read(&self.bench.host, &entries.iter().collect::<Vec<_>>());
        let state = |entry: &Entry| match read.state_of(entry) {
            ResultState::UpToDate => None,
            ResultState::Drifted(why) | ResultState::Stopped(why) => Some(format!("{}: {why}", entry.id)),
        };
        entries.iter().filter_map(state).collect()
    }
}

#[test]
fn a_master_alone_has_valid_certificates_for_ten_years() {
    let master = Master::new();
    let mut renewed = 0;
    for week in 0..=522 {
        let now = master.issued + 600 + week * 7 * DAY;
        let report = master.renew(now);
        assert!(report.failures.is_empty(), "week {week}: {:?}", report.failures);
        renewed += report.notes.len();
        for (begin, end) in master.leaves() {
            assert!(begin <= now && now + 90 * DAY < end, "week {week}: {begin}..{end}");
        }
        assert_eq!(master.drifted(), Vec::<String>::new(), "week {week}");
    }
    assert_eq!(renewed, 4 * 14, "four leaves, every eight months");
    assert_eq!(master.bench.calls(), Vec::<String>::new(), "no service is restarted");
}

#[test]
fn a_master_that_was_off_for_longer_than_a_life_recovers() {
    let master = Master::new();
    let now = master.issued + 3 * 365 * DAY;
    assert_eq!(master.renew(now).notes.len(), 4);
    assert!(master.leaves().iter().all(|&(begin, end)| begin <= now && now < end));
    assert_eq!(master.drifted(), Vec::<String>::new());
}

#[test]
fn the_kubelet_of_a_master_that_was_off_for_longer_than_a_life_gets_a_certificate() {
    let master = Master::new();
    let pki = ClusterPki::load(master.keys.path(), ClusterKeys::default(), false).unwrap();
    let own = Leaf {
        common_name: "system:node:h1".to_owned(),
        organizations: vec!["system:nodes".to_owned()],
        dns_names: Vec::new(),
        addresses: Vec::new(),
        ..leaf(CertificateAuthority::Kubernetes, Usage::Client)
    };
    let certificate = pki.resolve(&SecretRef::LeafCertificate(own.clone())).unwrap();
    let key = pki.resolve(&SecretRef::LeafKey(own)).unwrap();
    master.bench.write("/var/lib/kubelet/pki/kubelet-client-1.pem", &format!("{certificate}{key}"));
    let link = master.bench.host.root.at(paths::KUBELET_OWN);
    std::os::unix::fs::symlink("kubelet-client-1.pem", &link).unwrap();
    let own = || certificates::kubelet(&master.bench.host.root).own.unwrap();
    master.renew(master.issued + 300 * DAY);
    assert!(own().not_after < master.issued + 400 * DAY, "the kubelet renews a valid certificate itself");
    let now = master.issued + 3 * 365 * DAY;
    assert_eq!(master.renew(now).notes[0], format!("renewed {}", paths::KUBELET_OWN));
    assert!(own().not_before <= now && now < own().not_after && link.is_symlink());
    let text = master.bench.read(paths::KUBELET_OWN);
    let (certificate, key) = text.split_at(text.find("-----BEGIN PRIVATE KEY").unwrap());
    assert!(kubeon_pki::belong_together(certificate, key));
}

#[test]
fn a_renewal_that_was_killed_after_the_journal_is_completed_by_the_next() {
    let master = Master::new();
    let now = master.issued + 300 * DAY;
    let old = master.bench.read(LEAF);
    master.renew(now);
    // The state after a kill: the journal knows the new leaf, and the old leaf is in place.
    master.bench.write(LEAF, &old);
    assert_eq!(master.drifted().len(), 1);
    assert_eq!(master.renew(now + 600).notes, [format!("renewed {LEAF}")]);
    assert_eq!(master.drifted(), Vec::<String>::new());
}

#[test]
fn a_record_of_an_earlier_version_does_not_restart_its_unit() {
    let master = Master::new();
    let root = &master.bench.host.root;
    // The digest of earlier versions: over the bytes of the certificate.
    let digest = |text: &str| crate::durable::sha256(text.as_bytes());
    let lines = format!("{}\n{LEAF} file {}", digest(UNIT), digest(&master.bench.read(LEAF)));
    units::remember(root, "etcd.service", Some(&digest(&lines))).unwrap();
    assert_eq!(master.drifted(), Vec::<String>::new());
    master.renew(master.issued + 300 * DAY);
    assert_eq!(master.drifted(), Vec::<String>::new());
}

#[test]
fn a_new_key_restarts_the_unit() {
    let master = Master::new();
    let other = tempfile::tempdir().unwrap();
    let pki = ClusterPki::load_or_create(other.path(), 100).unwrap();
    let new = SecretRef::LeafCertificate(leaf(CertificateAuthority::Etcd, Usage::Both));
    master.write_step("etcd", &[(LEAF, 0o644, pki.resolve(&new).unwrap())]);
    assert_eq!(
        master.drifted(),
        ["etcd/member@h1: etcd.service was not restarted after a file that it reads changed"]
    );
}

#[test]
fn renews_nothing_while_another_program_changes_the_host() {
    let master = Master::new();
    let lock = Lock::take(&master.bench.host.root, "u1", 3, Duration::ZERO).unwrap();
    let report = master.renew(master.issued + 300 * DAY);
    assert!(report.notes[0].contains("not renewed now"), "{report:?}");
    drop(lock);
    assert_eq!(master.renew(master.issued + 300 * DAY).notes.len(), 4);
}

#[test]
fn nothing_is_written_while_no_leaf_is_due() {
    let master = Master::new();
    assert_eq!(master.renew(master.issued + 100 * DAY).notes, Vec::<String>::new());
    assert!(!master.bench.host.root.at(paths::LOCK).exists(), "the lock of the host was taken");
}

#[test]
fn files_that_kubeon_did_not_write_are_not_renewed() {
    let master = Master::new();
    let foreign = "/etc/kubernetes/pki/mine.crt";
    master.bench.write(foreign, &master.bench.read(LEAF));
    master
        .bench
        .write("/etc/kubernetes/pki/mine.key", &master.bench.read("/etc/kubernetes/pki/etcd/server.key"));
    let old = master.bench.read(foreign);
    assert_eq!(master.renew(master.issued + 300 * DAY).notes.len(), 4);
    assert_eq!(master.bench.read(foreign), old);
    let mode = fs::metadata(master.bench.host.root.at(LEAF)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[test]
fn a_leaf_from_the_future_is_issued_again() {
    let master = Master::new();
    master.renew(master.issued + 4000 * DAY);
    let now = master.issued + 600;
    assert_eq!(master.renew(now).notes.len(), 4);
    assert!(master.leaves().iter().all(|&(begin, end)| begin <= now && now < end));
}

#[test]
fn a_host_without_a_cluster_has_nothing_to_renew() {
    let bench = Bench::new();
    let report = run(&bench.host, 0).unwrap();
    assert!(report.failures.is_empty() && report.notes[0].contains("no cluster"), "{report:?}");
    assert_eq!(fs::read_dir(bench.folder()).unwrap().count(), 0, "nothing is written");
}
