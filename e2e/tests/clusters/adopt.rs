//! The control machine is lost: state and keys are rebuilt from a master, and the state before is refused after the next change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::{TestLab, VERSION};
use kubeon_e2e::program::eventually;

const MINUTE: Duration = Duration::from_secs(60);
const KUBECTL: &str = "/var/lib/kubeon/current/kubectl/bin/kubectl --kubeconfig /etc/kubernetes/admin.conf";

#[test]
fn a_cluster_whose_control_machine_was_lost_is_adopted() -> Result<()> {
    let lab = TestLab::up("e2e-adopt", 2)?;
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    lab.must(&["create", cluster, VERSION, "-m", &hosts[0], "-w", &hosts[1]])?;
    lab.must(&["config", "set", cluster, "network.maxPods=100"])?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    let settings = lab.must(&["config", "get", cluster, "-o", "json"])?;
    put_aside(&lab, "lost")?;

    refusals(&lab)?;
    let dry_run = lab.must(&["adopt", cluster, "-m", &hosts[0], "--dry-run"])?;
    ensure!(
        dry_run.contains("can be adopted") && !lab.file(&format!("{cluster}.json")).exists(),
        "{dry_run}"
    );
    let adopted = lab.must(&["adopt", cluster, "-m", &hosts[0]])?;
    ensure!(adopted.contains("is adopted"), "{adopted}");
    same_keys(&lab)?;
    ensure!(lab.must(&["config", "get", cluster, "-o", "json"])? == settings, "the settings are the same");
    ensure!(lab.plan(cluster)?.is_empty(), "the plan is empty: {:?}", lab.plan(cluster)?);
    let again = lab.kubeon(&["adopt", cluster, "-m", &hosts[0]])?;
    ensure!(again.code == 2 && again.err.contains("exists on this machine already"), "{again:?}");
    lab.must(&["config", "set", cluster, "network.maxPods=110"])?;
    lab.wait_up_to_date(cluster, MINUTE)?;

    put_aside(&lab, "adopted")?;
    put_back(&lab, "lost")?;
    for command in [&["plan", cluster][..], &["create", cluster], &["destroy", cluster, "--yes"]] {
        let older = lab.kubeon(command)?;
        let words = "another control machine adopted the cluster";
        ensure!(older.code == 2 && older.err.contains(words), "{command:?}: {older:?}");
    }
    put_aside(&lab, "lost")?;
    put_back(&lab, "adopted")?;
    exported(&lab)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    lab.must(&["destroy", cluster, "--yes"])?;
    ["h1", "h2"].iter().try_for_each(|host| lab.is_bare(host))
}

/// What prevents an adoption is named, and nothing is stored.
fn refusals(lab: &TestLab) -> Result<()> {
    let (cluster, hosts) = (lab.name(), &lab.addresses);
    let refused = |what: &str, arguments: &[&str], words: &str| -> Result<()> {
        let answer = lab.kubeon(arguments)?;
        ensure!(answer.code == 2 && answer.err.contains(words), "{what}: {words:?} is missing in {answer:?}");
        let state = lab.file(&format!("{}.json", arguments[1]));
        ensure!(!state.exists() && !lab.file(&format!("secret/{cluster}")).exists(), "{what}: it was stored");
        Ok(())
    };
    let create = ["create", cluster, VERSION, "-m", hosts[0].as_str(), "-w", hosts[1].as_str()];
    let how = format!(
        "which was created elsewhere; if its control machine was lost: kubeon adopt {cluster} -m MASTER"
    );
    refused("a second control machine", &create, &how)?;
    let adopt = ["adopt", cluster, "-m", hosts[0].as_str()];
    let silent = hosts[0].rsplit_once('.').context("no address")?.0.to_owned() + ".250";
    refused("a master that does not answer", &["adopt", cluster, "-m", &silent], &silent)?;
    refused("a worker", &["adopt", cluster, "-m", &hosts[1]], "is a worker: name a master")?;
    let other = format!("belongs to cluster {cluster}");
    refused("another cluster", &["adopt", "another", "-m", &hosts[0]], &other)?;

    lab.on("h1", "systemctl stop kube-apiserver")?;
    refused("no API server", &adopt, "its API server is not ready")?;
    lab.on("h1", "systemctl start kube-apiserver")?;
    eventually("the API server is ready", MINUTE, || {
        lab.on("h1", &format!("{KUBECTL} get --raw /readyz")).map(drop)
    })?;

    let key = "/etc/kubernetes/pki/etcd/ca.key";
    lab.on(
        "h1",
        &format!("cp -p {key} /root/kept.key && cat /etc/kubernetes/pki/front-proxy-ca.key >{key}"),
    )?;
    refused("a key of another authority", &adopt, "key and certificate do not belong together")?;
    lab.on("h1", &format!("mv /root/kept.key {key}"))?;

    let rename = |from: &str, to: &str| {
        let patch = format!(r#"[{{"op": "move", "from": "/data/{from}", "path": "/data/{to}"}}]"#);
        let object = "configmap kubeon-cluster --namespace=kube-system";
        lab.on("h1", &format!("{KUBECTL} patch {object} --type=json --patch='{patch}'"))
    };
    rename("cluster.json", "kept")?;
    refused("no declaration", &adopt, "kubeon state import")?;
    rename("kept", "cluster.json").map(drop)
}

/// The files of a state in the home folder.
fn files(cluster: &str) -> [String; 5] {
    [
        format!("{cluster}.json"),
        format!("{cluster}.json.bak"),
        format!("secret/{cluster}"),
        format!("conf/cluster/{cluster}.yaml"),
        format!("known_hosts/{cluster}"),
    ]
}

fn move_files(lab: &TestLab, from: &str, to: &str) -> Result<()> {
    for file in files(lab.name()) {
        let (source, target) = (lab.file(from).join(&file), lab.file(to).join(&file));
        if source.exists() {
            fs::create_dir_all(target.parent().context("no folder")?)?;
            fs::rename(&source, &target).with_context(|| format!("moving {}", source.display()))?;
        }
    }
    Ok(())
}

fn put_aside(lab: &TestLab, folder: &str) -> Result<()> {
    move_files(lab, "", folder)
}

fn put_back(lab: &TestLab, folder: &str) -> Result<()> {
    move_files(lab, folder, "")
}

/// The adopted keys are those that were lost, and only their owner can read them.
fn same_keys(lab: &TestLab) -> Result<()> {
    let folder = format!("secret/{}", lab.name());
    let (lost, adopted) = (lab.file("lost").join(&folder), lab.file(&folder));
    let mut count = 0;
    for entry in fs::read_dir(&lost)? {
        let name = entry?.file_name();
        let (before, now) = (fs::read(lost.join(&name))?, fs::read(adopted.join(&name))?);
        ensure!(before == now, "{} differs", name.display());
        let mode = fs::metadata(adopted.join(&name))?.permissions().mode();
        ensure!(mode & 0o777 == 0o600, "{} has mode {mode:o}", name.display());
        count += 1;
    }
    ensure!(count == fs::read_dir(&adopted)?.count() && count > 5, "{count} keys");
    Ok(())
}

/// An exported state is a private file that is never replaced, and is imported where the state is older or equal.
fn exported(lab: &TestLab) -> Result<()> {
    let path = lab.file("exported.tar.zst");
    let file = path.display().to_string();
    lab.must(&["state", "export", lab.name(), &file])?;
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o600, "the export is private");
    let again = lab.kubeon(&["state", "export", lab.name(), &file])?;
    ensure!(again.code == 2 && again.err.contains("cannot create"), "{again:?}");
    lab.must(&["state", "import", lab.name(), &file]).map(drop)
}
