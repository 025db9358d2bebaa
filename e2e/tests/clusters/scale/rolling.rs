//! A setting of every kubelet changes: the nodes restart one after another, each after the one before works again. Another build
//! of the bundle is asked about.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kubeon_e2e::lab::TestLab;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::refusals::copy_of_the_bundle;

const MINUTE: Duration = Duration::from_secs(60);
const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

/// On a cluster of these hosts with one master.
pub(super) fn kubelets_restart_one_after_another(lab: &TestLab, cluster: &str) -> Result<()> {
    lab.wait_up_to_date(cluster, MINUTE)?;
    let before = starts(lab)?;
    let set = ["config", "set", cluster, "network.maxPods=100"];
    let planned = lab.must(&[&set[..], &["--dry-run"]].concat())?;
    let control: Vec<&str> =
        planned.lines().map(str::trim).filter(|line| line.starts_with("control ")).collect();
    let is_declaration = |line: &&str| line.contains("store the declaration of the cluster");
    ensure!(planned.contains("join     3 hosts") && control.iter().all(is_declaration), "{planned}");
    lab.must(&set)?;
    let pods = lab.must(&["config", "get", cluster, "network.maxPods"])?;
    ensure!(pods.trim() == "100", "{pods}");
    for host in HOSTS {
        let pods = lab.kubectl(cluster, &["get", "node", host, "-o", "jsonpath={.status.capacity.pods}"])?;
        ensure!(pods == "100", "{host}: {pods}");
    }
    restarted_in_order(lab, &before)?;
    lab.wait_up_to_date(cluster, MINUTE)?;
    stops_at_the_first_broken_node(lab, cluster)
}

/// Since these starts the kubelet of each host restarted, each after the one before had registered its node.
pub(crate) fn restarted_in_order(lab: &TestLab, before: &[i64]) -> Result<()> {
    let (after, worked) = (starts(lab)?, first_requests(lab)?);
    for (index, host) in HOSTS.iter().enumerate() {
        ensure!(restarted(before[index], after[index]), "the kubelet of {host} was not restarted");
    }
    for index in 1..HOSTS.len() {
        let (node, next) = (HOSTS[index - 1], HOSTS[index]);
        ensure!(
            after[index] > worked[index - 1],
            "{next} restarted at {} before the kubelet of {node} was registered at {}",
            after[index],
            worked[index - 1]
        );
    }
    Ok(())
}

/// A kubelet that cannot start stops the nodes after it.
fn stops_at_the_first_broken_node(lab: &TestLab, cluster: &str) -> Result<()> {
    let before = starts(lab)?;
    let broken = "mkdir -p /run/systemd/system/kubelet.service.d && \
                  printf '[Service]\\nExecStartPre=/bin/false\\n' > /run/systemd/system/kubelet.service.d/broken.conf && \
                  systemctl daemon-reload";
    lab.on("h2", broken)?;
    let failed = lab.kubeon(&["config", "set", cluster, "network.maxPods=90"])?;
    ensure!(failed.code == 1, "{failed:?}");
    let after = starts(lab)?;
    ensure!(
        restarted(before[0], after[0]) && !restarted(before[2], after[2]),
        "h3 was restarted: {before:?} {after:?}"
    );
    lab.on("h2", "rm -r /run/systemd/system/kubelet.service.d && systemctl daemon-reload")?;
    lab.must(&["create", cluster])?;
    ensure!(restarted(before[2], starts(lab)?[2]), "the next run continues");
    lab.wait_up_to_date(cluster, MINUTE)
}

/// With `--max-unavailable 100%` the kubelets of both workers started before one of them had registered its node.
pub(super) fn workers_restarted_together(lab: &TestLab) -> Result<()> {
    let (started, worked) = (starts(lab)?, first_requests(lab)?);
    ensure!(
        started[1..].iter().max() < worked[1..].iter().min(),
        "the workers restarted one after another: started at {started:?}, registered at {worked:?}"
    );
    Ok(())
}

/// Another build of the same version is shown by `plan`, refused by a change, and accepted by a person. The cluster has it from
/// then on.
pub(super) fn another_build_is_asked_about(lab: &TestLab, cluster: &str) -> Result<()> {
    const CURRENT: &str = "readlink /var/lib/kubeon/current/haproxy";
    let folder = lab.file("another-build");
    pack_haproxy_again(&copy_of_the_bundle(lab, "another-build")?)?;
    let bundles = folder.to_string_lossy().into_owned();
    let kubeon = |arguments: &[&str]| lab.kubeon_with(arguments, &[("KUBEON_BUNDLES", bundles.as_str())]);
    let asks = "is another build than the one in use (haproxy changed)";
    let shown = kubeon(&["plan", cluster])?;
    ensure!(shown.code == 0 && shown.out.contains("choose haproxy") && shown.err.contains(asks), "{shown:?}");
    let before = lab.on("h2", CURRENT)?;
    let refused = kubeon(&["create", cluster])?;
    ensure!(refused.code == 2 && refused.err.contains(asks), "{refused:?}");
    ensure!(refused.err.contains("--ignore bundle"), "{refused:?}");
    ensure!(lab.on("h2", CURRENT)? == before, "a refused change changes nothing");
    let accepted = kubeon(&["create", cluster, "--ignore", "bundle"])?;
    ensure!(accepted.code == 0, "{accepted:?}");
    ensure!(lab.on("h2", CURRENT)? != before, "h2 has the haproxy of the build before");
    Ok(fs::remove_dir_all(&folder)?)
}

/// Packs the haproxy of a bundle again: its content is the same, its digest is another one.
fn pack_haproxy_again(bundle: &Path) -> Result<()> {
    let (blobs, index_file) = (bundle.join("blobs/sha256"), bundle.join("index.json"));
    let store = |bytes: &[u8]| -> Result<(String, usize)> {
        let digest = hex::encode(Sha256::digest(bytes));
        fs::write(blobs.join(&digest), bytes)?;
        Ok((digest, bytes.len()))
    };
    let stored = |descriptor: &Value| -> Result<Value> {
        let digest = descriptor["digest"].as_str().and_then(|digest| digest.strip_prefix("sha256:"));
        Ok(serde_json::from_slice(&fs::read(blobs.join(digest.context("no digest")?))?)?)
    };
    let mut index: Value = serde_json::from_slice(&fs::read(&index_file)?)?;
    let mut manifest = stored(&index["manifests"][0])?;
    let mut config = stored(&manifest["config"])?;
    let mut parts = config["parts"].as_array_mut().context("no parts")?.iter_mut();
    let part = parts.find(|part| part["name"] == "haproxy").context("no haproxy")?;
    let before = part["digest"].as_str().context("no digest")?.to_owned();
    let packed = zstd::encode_all(&zstd::decode_all(&fs::read(blobs.join(&before))?[..])?[..], 1)?;
    let (digest, size) = store(&packed)?;
    ensure!(digest != before, "the build is the same");
    part["digest"] = json!(digest);
    part["size"] = json!(size);
    let mut layers = manifest["layers"].as_array_mut().context("no layers")?.iter_mut();
    let layer = layers.find(|layer| layer["digest"] == format!("sha256:{before}")).context("no layer")?;
    refer(layer, (digest, size));
    refer(&mut manifest["config"], store(&serde_json::to_vec(&config)?)?);
    refer(&mut index["manifests"][0], store(&serde_json::to_vec(&manifest)?)?);
    Ok(fs::write(index_file, serde_json::to_vec(&index)?)?)
}

/// Lets a descriptor refer to a blob.
fn refer(descriptor: &mut Value, (digest, size): (String, usize)) {
    descriptor["digest"] = json!(format!("sha256:{digest}"));
    descriptor["size"] = json!(size);
}

/// The times are computed from two clocks, so one start differs by some microseconds each time.
fn restarted(before: i64, after: i64) -> bool {
    after > before + 100_000
}

/// When the kubelet of each host was started, in microseconds since 1970. The hosts share the clock of this machine.
pub(crate) fn starts(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "started=$(systemctl show -P ExecMainStartTimestampMonotonic kubelet); \
                   python3 -c \"import time; print(int((time.time() - time.monotonic()) * 1e6) + $started)\"";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

/// When each kubelet registered its node after its last start, in microseconds since 1970.
fn first_requests(lab: &TestLab) -> Result<Vec<i64>> {
    let command = "id=$(systemctl show -P InvocationID kubelet); \
                   journalctl _SYSTEMD_INVOCATION_ID=$id -o json -g 'Successfully registered node' -n 1 | \
                   grep -o '\"__REALTIME_TIMESTAMP\":\"[0-9]*' | grep -o '[0-9]*$'";
    HOSTS.iter().map(|host| number(&lab.on(host, command)?)).collect()
}

fn number(text: &str) -> Result<i64> {
    text.trim().parse().with_context(|| format!("{text:?} is no time"))
}
