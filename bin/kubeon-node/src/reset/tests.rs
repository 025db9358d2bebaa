use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::journal::{Entry, Mark, remember};
use crate::testing::Bench;
use crate::units;

const CLAIM: &str = r#"{"cluster":"demo","uid":"u1","generation":3,"version":"v1.36.3","role":"master"}"#;

fn demo() -> ClusterName {
    "demo".parse().unwrap()
}

/// A host with files of kubeon and of other programs.
fn node() -> Bench {
    let bench = Bench::new();
    let root = &bench.host.root;
    bench.write(paths::CLAIM, CLAIM);
    bench.write(paths::TOUCHED, "");
    bench.write("/var/lib/kubeon/parts/x/kubelet", "program");
    bench.write("/var/lib/kubelet/config.yaml", "x");
    bench.write("/etc/kubernetes/pki/ca.crt", "x");
    bench.write("/etc/containerd/config.toml", "x");
    bench.write("/etc/hosts", "127.0.0.1 localhost\n# kubeon begin\n10.0.0.1\th1\n# kubeon end\n");
    bench.write("/usr/local/bin/theirs", "x");
    bench.write(paths::SYSCTL, "x");
    bench.write("/etc/systemd/system/theirs.service", "x");
    bench.write("/etc/systemd/system/dev-zram0.swap.d/kubeon.conf", "x");
    symlink("/var/lib/kubeon/parts/x/kubelet", root.at("/usr/local/bin/kubelet")).unwrap();
    symlink("/opt/theirs", root.at("/usr/local/bin/other")).unwrap();
    let unit = "[Install]\nWantedBy=multi-user.target\n";
    bench.write("/etc/systemd/system/kubelet.service", unit);
    units::enable(root, "kubelet.service", unit).unwrap();
    units::remember(root, "kubelet.service", Some("c")).unwrap();
    bench.services.running.lock().insert("kubelet.service".into());
    let path = "/etc/containerd/config.toml".to_owned();
    let marks = vec![Mark::File { path, sha256: "s".into(), mode: 0o644 }];
    remember(root, &Entry { id: "h1/containerd".into(), digest: "d".into(), marks }).unwrap();
    bench
}

fn files(bench: &Bench) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![bench.folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(bench.folder()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

const THEIRS: [&str; 4] =
    ["etc/hosts", "etc/systemd/system/theirs.service", "usr/local/bin/other", "usr/local/bin/theirs"];

#[test]
fn removes_all_files_except_those_of_other_programs() {
    let bench = node();
    assert!(run(&bench.job(), &demo()).unwrap().changed);
    assert_eq!(files(&bench), THEIRS);
    assert_eq!(bench.read("/etc/hosts"), "127.0.0.1 localhost\n");
    assert_eq!(bench.calls(), ["stop kubelet.service", "reload", "stop kubepods.slice"]);
    assert!(!bench.host.root.at(paths::STATE).exists());
    assert!(!run(&bench.job(), &demo()).unwrap().changed, "the second reset has nothing to remove");
}

#[test]
fn restores_the_kernel_parameters_of_the_owner() {
    let bench = node();
    bench.write("/proc/sys/kernel/panic", "0\n");
    original::remember(&bench.job(), &[("kernel.panic".to_owned(), "10".to_owned())].into()).unwrap();
    bench.write("/proc/sys/kernel/panic", "10\n");
    run(&bench.job(), &demo()).unwrap();
    assert_eq!(bench.read("/proc/sys/kernel/panic"), "0");
    assert!(!bench.host.root.at(paths::STATE).exists());
}

#[test]
fn refuses_the_host_of_another_cluster() {
    let bench = node();
    let before = files(&bench);
    let refused = run(&bench.job(), &"other".parse().unwrap()).unwrap_err();
    assert_eq!(refused.category, Category::Fenced);
    assert_eq!(files(&bench), before);
}

#[test]
fn a_host_that_was_only_claimed_keeps_its_files() {
    let bench = node();
    fs::remove_file(bench.host.root.at(paths::TOUCHED)).unwrap();
    run(&bench.job(), &demo()).unwrap();
    assert!(bench.host.root.at("/etc/kubernetes/pki/ca.crt").exists());
    assert!(!bench.host.root.at(paths::STATE).exists());
}

#[test]
fn a_failed_reset_keeps_the_claim_and_can_continue() {
    let bench = node();
    let root = &bench.host.root;
    // A folder at the path of a file cannot be removed as a file.
    fs::remove_file(root.at("/etc/containerd/config.toml")).unwrap();
    bench.write("/etc/containerd/config.toml/x", "x");
    let failure = run(&bench.job(), &demo()).unwrap_err();
    assert!(failure.cause.contains("/etc/containerd/config.toml"), "{failure}");
    assert_eq!(failure.log.len(), 1, "{:?}", failure.log);
    assert!(!root.at("/var/lib/kubelet").exists(), "the other parts of the reset were executed");
    assert!(fence::claim(root).unwrap().is_some());
    fs::remove_dir_all(root.at("/etc/containerd")).unwrap();
    run(&bench.job(), &demo()).unwrap();
    assert_eq!(files(&bench), THEIRS);
}

#[test]
fn can_continue_after_an_interruption_at_any_point() {
    for missing in
        ["/var/lib/kubeon/journal", "/var/lib/kubeon/units", "/var/lib/kubelet", "/etc/systemd/system"]
    {
        let bench = node();
        fs::remove_dir_all(bench.host.root.at(missing)).unwrap();
        run(&bench.job(), &demo()).unwrap();
        assert!(!bench.host.root.at(paths::STATE).exists(), "{missing}");
    }
}

#[test]
fn a_reset_by_hand_of_a_bare_host_changes_nothing() {
    let bench = Bench::new();
    assert!(!by_hand(&bench.host, &demo()).unwrap());
    assert_eq!(files(&bench), Vec::<String>::new(), "no lock file is left");
}
