//! The program is replaced over an existing cluster: the program of the previous commit makes it, this one takes it over.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Result, anyhow, ensure};
use kubeon_e2e::lab::TestLab;
use kubeon_e2e::program::{must, run};
use kubeon_envtest::previous_commit;

use crate::scale::rolling;

/// Where cargo puts programs.
const TARGET: &str = "x86_64-unknown-linux-gnu/debug";

#[test]
#[ignore = "minutes: compiles the previous commit"]
fn soak_a_cluster_of_the_previous_program_is_taken_over() -> Result<()> {
    let previous = programs()?;
    let lab = TestLab::up("e2e-previous", 3)?;
    let own = lab.environment();
    let environment: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    must(previous.join("kubeon"), &lab.create(lab.name(), 1), &environment)?;
    must(previous.join("kubeon"), &["use", lab.name()], &environment)?;
    lab.load_client(lab.name())?;
    lab.apply(lab.name(), &kubeon_e2e::image::pod("old", None))?;
    lab.kubectl(lab.name(), &["wait", "pod/old", "--for=condition=Ready", "--timeout=60s"])?;

    // Reading commands work before anything was changed, and the next change, here of a setting of every kubelet, brings
    // the cluster over, one host after another.
    for arguments in [&["ls"][..], &["display", lab.name()], &["plan", lab.name()]] {
        lab.must(arguments)?;
    }
    let before = rolling::starts(&lab)?;
    lab.must(&["config", "set", lab.name(), "network.maxPods=100"])?;
    rolling::restarted_in_order(&lab, &before)?;
    let plan = lab.kubeon(&["plan", lab.name()])?;
    ensure!(plan.code == 0 && (plan.out.clone() + &plan.err).contains("nothing to do"), "{plan:?}");
    let restarts = "jsonpath={.status.phase} {.status.containerStatuses[0].restartCount}";
    let pod = lab.kubectl(lab.name(), &["get", "pod", "old", "-o", restarts])?;
    ensure!(pod == "Running 0", "the pod lives on: {pod}");
    // The older program must not damage what it does not know.
    let older = run(previous.join("kubeon"), &["display", lab.name()], &environment)?;
    ensure!(older.code == 0 || older.err.contains("newer kubeon"), "{older:?}");
    lab.must(&["destroy", lab.name(), "--yes"]).map(drop)
}

/// The folder with the programs of the previous commit, which are compiled once.
pub(crate) fn programs() -> Result<&'static Path> {
    static COMPILED: LazyLock<Result<PathBuf, String>> =
        LazyLock::new(|| compile().map_err(|error| format!("{error:#}")));
    COMPILED.as_deref().map_err(|error| anyhow!("{error}"))
}

/// Compiles the programs of the previous commit in a folder of their own and returns it.
#[allow(clippy::print_stderr, reason = "says which commit it is")]
fn compile() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let (source, target) = (root.join("target/previous/source"), root.join("target/previous/target"));
    let git = |arguments: &[&str]| {
        must("git", &[&["-C", &root.to_string_lossy()], arguments].concat(), &[])
            .map(|out| out.trim().to_owned())
    };
    if source.exists() {
        git(&["worktree", "remove", "--force", &source.to_string_lossy()])?;
    }
    let commit = previous_commit()?;
    git(&["worktree", "add", "--detach", &source.to_string_lossy(), &commit])?;
    eprintln!("  the previous commit: {commit}");
    let built = Command::new("cargo")
        .args([
            "build",
            "--locked",
            "-p",
            "kubeon",
            "-p",
            "kubeon-node",
            "-p",
            "kubeon-operator",
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(&source)
        .status()?;
    ensure!(built.success(), "the previous commit does not compile");
    Ok(target.join(TARGET))
}
