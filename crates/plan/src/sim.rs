//! A pure simulator: what a plan would leave behind is written into the next snapshot, turn by turn; with it an
//! example of a cluster, a bundle and bare hosts, the same for the tests of every crate. Its
//! log is the golden text of the stories in `tests/`; reviewers read there what an operation does and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kubeon_api::kubernetes_cluster::{ClusterSettings, DeclaredCluster};
use kubeon_api::{Arch, HostAddress};
use kubeon_render::paths::{KUBELET_BOOTSTRAP, PKI};
use kubeon_wire::{CertificateFact, Claim, Content, Facts, File, JournalEntry, Op, ResultState, SecretRef};
use sha2::{Digest as _, Sha256};

use crate::desired::prepare;
use crate::input::{Artifacts, DesiredCluster, HostSpec, ImageInfo, Intent, PartInfo, Seen, Snapshot};
use crate::output::{Plan, PlanError, Step};
use crate::step_id::StepId;

/// A host as bare as the lab's: Linux with systemd, root, room, nothing of Kubernetes.
#[must_use]
pub fn bare(hostname: &str) -> Facts {
    Facts {
        system: "Linux".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel: "6.1.0".to_owned(),
        hostname: hostname.to_owned(),
        os: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        machine_id: format!("machine-{hostname}"),
        cpus: 2,
        memory_bytes: 4 << 30,
        disk_free_bytes: 20 << 30,
        can_sys_resource: true,
        can_set_conntrack: true,
        has_nftables: true,
        is_root: true,
        has_systemd: true,
        package_manager: Some("apt".to_owned()),
        ..Facts::default()
    }
}

/// An example: cluster `demo`, version `v1.36.3`, with usual settings. Hosts are given by their addresses and have
/// no name of their own.
///
/// # Panics
/// When an address is none.
#[must_use]
#[allow(clippy::unwrap_used, reason = "literals, and addresses that a test wrote down")]
pub fn cluster(masters: &[&str], workers: &[&str]) -> DesiredCluster {
    let host = |at: &&str| HostSpec { address: at.parse().unwrap(), name: None, labels: BTreeMap::new() };
    let usual = DeclaredCluster::default().settings().unwrap();
    DesiredCluster {
        name: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        masters: masters.iter().map(host).collect(),
        workers: workers.iter().map(host).collect(),
        settings: ClusterSettings { max_pods: 110, node_ports: "30000-32767".parse().unwrap(), ..usual },
    }
}

/// A bundle of that version which holds every part and image that a cluster may need; no two versions share one.
///
/// # Panics
/// Never: a SHA-256 is a digest.
#[must_use]
#[allow(clippy::unwrap_used, reason = "64 hexadecimal digits are a digest")]
pub fn artifacts(version: &str) -> Artifacts {
    let part = |name: &str| PartInfo {
        digest: hex::encode(Sha256::digest(format!("{name} {version}"))).parse().unwrap(),
        size: 10 << 20,
        unpacked_size: 40 << 20,
        version: version.trim_start_matches('v').to_owned(),
    };
    let image = |name: &str| ImageInfo { name: format!("registry.k8s.io/{name}:1"), part: part(name) };
    let parts = [true, false].into_iter().flat_map(prepare::parts).chain([prepare::NET_TOOLS]);
    Artifacts {
        arch: Some(Arch::Amd64),
        parts: parts.map(|name| (name.to_owned(), part(name))).collect(),
        images: prepare::NODE_IMAGES.iter().map(|name| ((*name).to_owned(), image(name))).collect(),
    }
}

/// Writes into the snapshot what the first `count` steps of a plan leave behind.
pub fn apply(plan: &Plan, count: usize, snapshot: &mut Snapshot) {
    let now = snapshot.taken_at;
    for step in plan.steps.iter().take(count) {
        let Some(Seen::Fresh(facts)) = snapshot.hosts.get_mut(&step.host) else { continue };
        if let Op::Reset { .. } = step.op {
            *facts = bare(&facts.hostname);
            continue;
        }
        claim(plan, step.host, facts);
        leave(step, now, facts);
    }
}

fn claim(plan: &Plan, host: HostAddress, facts: &mut Facts) {
    let Some(planned) = plan.hosts.get(&host) else { return };
    let fence = planned.fence.clone();
    facts.claim = Some(Claim {
        cluster: fence.cluster,
        uid: fence.uid,
        generation: fence.generation,
        version: fence.version,
        role: fence.role,
    });
}

fn leave(step: &Step, now: i64, facts: &mut Facts) {
    match &step.op {
        Op::Part { digest, .. } if !facts.parts.contains(digest) => facts.parts.push(digest.clone()),
        Op::Drain { node } => cordon(facts, node.as_str(), true),
        Op::Uncordon { node } => cordon(facts, node.as_str(), false),
        Op::RemoveNode { node, forget } => {
            facts.journal.retain(|entry| !forget.contains(&entry.id));
            if let Some(nodes) = facts.cluster.as_mut().and_then(|cluster| cluster.nodes.as_mut()) {
                nodes.remove(node.as_str());
            }
        }
        Op::Files { files } => files.iter().for_each(|file| sign(file, now, facts)),
        Op::Service { name, .. } if name == "kubelet.service" => {
            facts.kubelet.own = Some(lives("/var/lib/kubelet/pki/kubelet-client-current.pem", now, 365 * 24));
        }
        _ => {}
    }
    if step.journal {
        facts.journal.retain(|entry| step.id != *entry.id);
        facts.journal.push(JournalEntry {
            id: step.id.to_string(),
            digest: step.digest.clone(),
            state: ResultState::UpToDate,
        });
    }
}

/// Tells of a certificate as a look would, which knows only some places.
fn sign(file: &File, now: i64, facts: &mut Facts) {
    let Content::Secret(SecretRef::LeafCertificate(leaf)) = &file.content else { return };
    let seen = lives(&file.path, now, leaf.hours);
    if file.path == KUBELET_BOOTSTRAP {
        facts.kubelet.bootstrap = Some(seen);
    } else if file.path.starts_with(PKI) {
        facts.certificates.retain(|seen| seen.path != file.path);
        facts.certificates.push(seen);
    }
}

fn lives(path: &str, now: i64, hours: u32) -> CertificateFact {
    CertificateFact { path: path.to_owned(), not_before: now, not_after: now + i64::from(hours) * 3600 }
}

fn cordon(facts: &mut Facts, node: &str, closed: bool) {
    let nodes = facts.cluster.as_mut().and_then(|cluster| cluster.nodes.as_mut());
    if let Some(node) = nodes.and_then(|nodes| nodes.get_mut(node)) {
        node.unschedulable = closed;
    }
}

/// Plans and applies, at most `turns` times, until nothing is left to do. Returns the log.
pub fn story(intent: &Intent, snapshot: &mut Snapshot, turns: usize) -> String {
    let mut log = String::new();
    for turn in 1..=turns {
        match crate::plan(intent, snapshot) {
            Ok(plan) => {
                let _ = writeln!(log, "turn {turn}: {}", describe(&plan));
                if plan.steps.is_empty() {
                    break;
                }
                apply(&plan, plan.steps.len(), snapshot);
            }
            Err(error) => {
                let _ = writeln!(log, "turn {turn}: {}", refused(&error));
                break;
            }
        }
    }
    log
}

/// A plan as text: one line per step.
#[must_use]
pub fn describe(plan: &Plan) -> String {
    let mut text = format!(
        "{} {} generation {}: {} steps, {} stand\n",
        plan.cluster,
        plan.version,
        plan.generation,
        plan.steps.len(),
        plan.up_to_date
    );
    for note in &plan.notes {
        let host = note.host.map(|host| format!("{host} ")).unwrap_or_default();
        let _ = writeln!(text, "  note: {host}{}", note.text);
    }
    for step in &plan.steps {
        let _ = writeln!(text, "  {:<28} {}, because {}", step.id, step.title, step.why);
        let needs: Vec<&str> = step.needs.iter().map(StepId::as_str).collect();
        if !needs.is_empty() {
            let _ = writeln!(text, "  {:<28}   after {}", "", needs.join(" "));
        }
    }
    text
}

/// A refusal as text.
#[must_use]
pub fn refused(error: &PlanError) -> String {
    let mut text = format!("refused: {error}\n");
    for refusal in error.refusals() {
        let remedy = refusal.remedy.as_ref().map(|remedy| format!(" [{remedy:?}]")).unwrap_or_default();
        let _ = writeln!(text, "  {} {} {}{remedy}", refusal.field, refusal.value, refusal.reason);
    }
    text
}
