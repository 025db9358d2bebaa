//! Snapshots in an object store: a cluster is lost together with its control machine's state, and comes back out of the store.

#![allow(clippy::print_stdout, reason = "prints measured times")]

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::Answer;
use kubeon_envtest::TestObjectStore;

const MINUTE: Duration = Duration::from_secs(60);
const FOLDER: &str = "s3://backups/shop/";

/// A lab, a store and the key of its snapshots.
struct Backups {
    lab: TestLab,
    store: TestObjectStore,
    key: String,
}

impl Backups {
    fn run(&self, arguments: &[&str], change: Option<(&str, &str)>) -> Result<Answer> {
        let mut environment = self.store.environment();
        environment.extend(change.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let environment: Vec<(&str, &str)> =
            environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.lab.kubeon_with(arguments, &environment)
    }

    fn must(&self, arguments: &[&str]) -> Result<String> {
        let answer = self.run(arguments, None)?;
        ensure!(answer.code == 0, "kubeon {arguments:?}: {answer:?}");
        Ok(answer.out + &answer.err)
    }

    /// Runs a command that must be refused with this text.
    fn refused(&self, arguments: &[&str], change: Option<(&str, &str)>, text: &str) -> Result<()> {
        let answer = self.run(arguments, change)?;
        ensure!(answer.code == 2 && answer.err.contains(text), "kubeon {arguments:?}: {answer:?}");
        Ok(())
    }

    /// The names of the objects in the folder of the snapshots, sorted.
    fn objects(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.store.data().join("backups/shop"))?;
        let mut names: Vec<String> = entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.sort();
        Ok(names)
    }
}

#[test]
#[ignore = "compiles an object store: ./test long"]
fn soak_a_cluster_comes_back_out_of_an_object_store() -> Result<()> {
    let (lab, store) =
        (TestLab::up("e2e-backup", 2)?, TestObjectStore::start("backups", Ipv4Addr::LOCALHOST)?);
    let key = lab.file("backup.key").display().to_string();
    let backups = Backups { lab, store, key };
    let (lab, cluster, key) = (&backups.lab, backups.lab.name(), backups.key.as_str());
    lab.must(&lab.create(cluster, 1))?;
    lab.must(&["use", cluster])?;
    lab.kubectl(cluster, &["create", "secret", "generic", "sealed", "--from-literal=word=kept"])?;

    backups.refused(&["etcd", "save", cluster, FOLDER], None, "unencrypted")?;
    backups.must(&["etcd", "new-key", key])?;
    backups.refused(&["etcd", "new-key", key], None, "exists")?;
    let save = ["etcd", "save", cluster, FOLDER, "--key", key, "--keep", "1"];
    backups.refused(&save, Some(("AWS_SECRET_ACCESS_KEY", "wrong")), "refuses s3://backups/shop/")?;
    let elsewhere = ["etcd", "save", cluster, "s3://elsewhere/", "--key", key];
    backups.refused(&elsewhere, None, "NoSuchBucket")?;
    backups.must(&save)?;
    // The names have the second.
    std::thread::sleep(Duration::from_secs(1));
    let said = backups.must(&save)?;
    ensure!(said.contains("1 old snapshot removed"), "{said}");
    let objects = backups.objects()?;
    ensure!(objects.len() == 2 && objects[1] == format!("{}.state", objects[0]), "{objects:?}");
    for object in &objects {
        let content = fs::read(backups.store.data().join("backups/shop").join(object))?;
        ensure!(content.starts_with(b"kubeon-encrypted-1\n"), "{object} is encrypted");
    }

    let snapshot = format!("{FOLDER}{}", objects[0]);
    damaged(&backups, &snapshot)?;
    backups.must(&["etcd", "check", cluster, &snapshot, "--key", key])?;
    lab.must(&["destroy", cluster, "--yes"])?;
    ensure!(lab.kubeon(&["display", cluster])?.code != 0, "this machine does not know the cluster any more");
    // A refused restore leaves nothing: its state names hosts that may serve another cluster by now.
    let nobody = lab.addresses[0].replace(".11", ".250");
    let elsewhere = ["etcd", "restore", cluster, &snapshot, "--key", key, "-m", &nobody, "--accept-new"];
    backups.refused(&elsewhere, None, &nobody)?;
    ensure!(lab.kubeon(&["display", cluster])?.code != 0, "the refused restore left the state");
    let start = Instant::now();
    backups.must(&["etcd", "restore", cluster, &snapshot, "--key", key])?;
    println!("  out of the object store on the same hosts: {:.1} s", start.elapsed().as_secs_f64());
    lab.must(&["use", cluster])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let word = lab.kubectl(cluster, &["get", "secret", "sealed", "-o", "jsonpath={.data.word}"])?;
    ensure!(word == "a2VwdA==", "the Secret can be read: {word}");
    lab.must(&["destroy", cluster, "--yes"]).map(drop)
}

/// A snapshot without its key, with another key, and one that somebody changed.
fn damaged(backups: &Backups, snapshot: &str) -> Result<()> {
    let cluster = backups.lab.name();
    backups.refused(&["etcd", "check", cluster, snapshot], None, "is encrypted")?;
    let other = backups.lab.file("other.key").display().to_string();
    backups.must(&["etcd", "new-key", &other])?;
    backups.refused(&["etcd", "check", cluster, snapshot, "--key", &other], None, "cannot be decrypted")?;
    let file = backups.store.data().join("backups/shop").join(snapshot.trim_start_matches(FOLDER));
    let whole = fs::read(&file)?;
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    // The store knows its objects, so that the file keeps its name and its size.
    fs::write(&file, changed)?;
    let check = ["etcd", "check", cluster, snapshot, "--key", &backups.key];
    backups.refused(&check, None, "another key, cut or changed")?;
    fs::write(&file, whole)?;
    let absent = format!("{FOLDER}absent.db");
    backups.refused(&["etcd", "check", cluster, &absent, "--key", &backups.key], None, "NoSuchKey")
}
