//! A pure simulator for tests and for the plans of an upgrade that follow the first: it writes the results of a plan into the next
//! snapshot, once per reconcile. It
//! also holds the example cluster, bundle and bare hosts that the tests of all crates share. Its log is the
//! golden text of the stories in `tests/`, where reviewers read what an operation does and why.

use std::fmt::Write as _;

use kubeon_api::kubernetes_cluster::{ClusterSettings, DeclaredCluster, DeployMode};
use kubeon_api::{Arch, HostAddress, HostRole};
use kubeon_render::config::KERNEL_DEFAULTS;
use kubeon_render::paths::{KUBELET_BOOTSTRAP, KUBELET_CLIENT, PKI};
use kubeon_wire::{
    CertificateFact, Claim, Content, EtcdFact, Facts, File, JournalEntry, NodeFact, Op, ResultState,
    SecretRef, program_of_unit, renewal_due,
};
use sha2::{Digest as _, Sha256};

use crate::desired::prepare;
use crate::input::{Artifacts, DesiredCluster, HostSpec, ImageInfo, Intent, Observation, PartInfo, Snapshot};
use crate::output::{Plan, PlanError, Step};

/// The facts of a bare host that passes all checks: Linux with systemd, a root login, enough disk space, no
/// Kubernetes.
#[must_use]
pub fn bare(hostname: &str) -> Facts {
    let kernel_defaults = KERNEL_DEFAULTS.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
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
        parameters: kernel_defaults.collect(),
        ..Facts::default()
    }
}

/// The facts of a host that kubeadm made a node of a cluster.
#[must_use]
pub fn made_by_kubeadm(hostname: &str, role: &HostRole) -> Facts {
    const OF_MASTER: [&str; 3] = [
        "/etc/kubernetes/admin.conf",
        "/etc/kubernetes/manifests/kube-apiserver.yaml",
        "/var/lib/etcd/member",
    ];
    let of_master = OF_MASTER.into_iter().filter(|_| role.is_master());
    Facts {
        foreign: ["/etc/kubernetes/kubelet.conf"].into_iter().chain(of_master).map(str::to_owned).collect(),
        own_services: ["containerd", "kubelet"].map(str::to_owned).into(),
        ..bare(hostname)
    }
}

/// The example cluster `demo`, version `v1.36.3`, with default settings. The arguments are the addresses of
/// its hosts; the nodes are named after the hostnames.
///
/// # Panics
/// When an address is not valid.
#[must_use]
#[allow(clippy::unwrap_used, reason = "literals, and addresses that a test wrote down")]
pub fn cluster(masters: &[&str], workers: &[&str]) -> DesiredCluster {
    let host = |at: &&str| HostSpec::at(at.parse().unwrap());
    let defaults = DeclaredCluster::default().settings().unwrap();
    DesiredCluster {
        name: "demo".parse().unwrap(),
        version: "v1.36.3".parse().unwrap(),
        masters: masters.iter().map(host).collect(),
        workers: workers.iter().map(host).collect(),
        etcd_hosts: Vec::new(),
        settings: ClusterSettings { max_pods: 110, node_ports: "30000-32767".parse().unwrap(), ..defaults },
    }
}

/// A bundle of the version with every part and image that a cluster may need. Different versions share no
/// part.
///
/// # Panics
/// Never: a SHA-256 is a valid digest.
#[must_use]
#[allow(clippy::unwrap_used, reason = "64 hexadecimal digits are a valid digest")]
pub fn artifacts(version: &str) -> Artifacts {
    let part = |name: &str| PartInfo {
        digest: hex::encode(Sha256::digest(format!("{name} {version}"))).parse().unwrap(),
        size: 10 << 20,
        unpacked_size: 40 << 20,
        version: version.trim_start_matches('v').to_owned(),
    };
    // The blob of an image of a static pod is another one than that of its program.
    let image = |name: &str| {
        let is_of_pod = !prepare::NODE_IMAGES.contains(&name);
        let stored = if is_of_pod { format!("{name}-image") } else { name.to_owned() };
        ImageInfo { name: format!("registry.k8s.io/{name}:1"), part: part(&stored) }
    };
    let all = [DeployMode::Binary, DeployMode::Container]
        .into_iter()
        .flat_map(|mode| [(HostRole::Master, mode), (HostRole::Worker, mode)]);
    let parts = all.clone().flat_map(|(role, mode)| prepare::parts(&role, mode)).chain([prepare::NET_TOOLS]);
    let images = all.flat_map(|(role, mode)| prepare::images(&role, mode));
    Artifacts {
        arch: Some(Arch::Amd64),
        parts: parts.map(|name| (name.to_owned(), part(name))).collect(),
        images: images.map(|name| (name.to_owned(), image(name))).collect(),
    }
}

/// Writes the results of the first `count` steps of a plan into the snapshot.
pub fn apply(plan: &Plan, count: usize, snapshot: &mut Snapshot) {
    let now = snapshot.taken_at;
    let masters: Vec<HostAddress> = plan
        .hosts
        .iter()
        .filter(|(_, planned)| planned.fence.role.is_master())
        .map(|(address, _)| *address)
        .collect();
    let reports_cluster =
        |facts: &Observation<Facts>| matches!(facts, Observation::Fresh(facts) if facts.cluster.is_some());
    let reporting: Vec<HostAddress> = snapshot
        .hosts
        .iter()
        .filter(|(_, facts)| reports_cluster(facts))
        .map(|(address, _)| *address)
        .collect();
    for step in plan.steps.iter().take(count) {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&step.host) else { continue };
        if let Op::Reset { .. } = step.op {
            *facts = bare(&facts.hostname);
            continue;
        }
        claim(plan, step.host, facts);
        apply_step(step, now, facts);
        change_members(plan, step, &reporting, snapshot);
        if step.journal {
            record(step, &masters, snapshot);
        }
    }
}

/// Records the step in the journal of its host, or, for a step that the cluster records, in the reports of all
/// masters.
fn record(step: &Step, masters: &[HostAddress], snapshot: &mut Snapshot) {
    let id = step.id.to_string();
    let entry = JournalEntry { id, digest: step.digest.clone(), state: ResultState::UpToDate };
    let recorded_by = if step.record_in.is_some() { masters } else { std::slice::from_ref(&step.host) };
    for address in recorded_by {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(address) else { continue };
        let entries = match step.record_in {
            Some(_) => facts.cluster_steps.get_or_insert_default(),
            None => &mut facts.journal,
        };
        entries.retain(|recorded| recorded.id != entry.id);
        entries.push(entry.clone());
    }
}

/// Adds or removes a member or a node in the reports of the hosts that report the cluster.
fn change_members(plan: &Plan, step: &Step, reporting: &[HostAddress], snapshot: &mut Snapshot) {
    let own = plan.hosts.get(&step.host).map(|planned| planned.name.to_string());
    let starts_kubelet = matches!(&step.op, Op::Service { name, .. } if name == "kubelet.service");
    for address in reporting {
        let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(address) else { continue };
        let Some(report) = facts.cluster.as_mut() else { continue };
        if starts_kubelet && let (Some(nodes), Some(name)) = (&mut report.nodes, own.clone()) {
            let node = nodes.entry(name).or_insert_with(|| NodeFact { ready: true, ..NodeFact::default() });
            node.kubelet = plan.node_version().to_string();
        }
        if let Op::MoveMember { name, address } = &step.op {
            report.member_addresses.insert(name.to_string(), *address);
        }
        let EtcdFact::Members(members) = &mut report.etcd else { continue };
        match &step.op {
            Op::PromoteMember { .. } => members.extend(own.clone().map(|name| (name, Some(true)))),
            Op::RemoveMember { name, .. } => drop(members.remove(name.as_str())),
            _ => {}
        }
    }
}

/// Removes a node and what it records from the report of a master.
fn remove_node(facts: &mut Facts, node: &str) {
    if let Some(nodes) = facts.cluster.as_mut().and_then(|cluster| cluster.nodes.as_mut()) {
        nodes.remove(node);
    }
    let suffix = format!("-{node}");
    facts.cluster_steps.iter_mut().for_each(|steps| steps.retain(|entry| !entry.id.ends_with(&suffix)));
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

fn apply_step(step: &Step, now: i64, facts: &mut Facts) {
    match &step.op {
        Op::Part { digest, .. } if !facts.parts.contains(digest) => facts.parts.push(digest.clone()),
        Op::Drain { node } => cordon(facts, node.as_str(), true),
        Op::Uncordon { node } => cordon(facts, node.as_str(), false),
        Op::RemoveNode { node } => remove_node(facts, node.as_str()),
        Op::RemoveObjects { step, .. } => {
            facts.cluster_steps.iter_mut().for_each(|steps| steps.retain(|entry| entry.id != *step));
        }
        Op::ForgetChecks { steps } => facts.journal.retain(|entry| !steps.contains(&entry.id)),
        Op::ForgetIdentity { .. } => facts.kubelet.own = None,
        Op::RemoveService { name, .. } => {
            // The ids of the steps of a service begin with its name.
            let service = program_of_unit(name);
            facts
                .journal
                .retain(|entry| entry.id.split('/').nth(1).is_none_or(|id| !id.starts_with(service)));
        }
        Op::Files { files } => files.iter().for_each(|file| add_certificate(file, now, facts)),
        Op::Service { name, .. } if name == "kubelet.service" => {
            facts.kubelet.own = Some(certificate(KUBELET_CLIENT, now, 365 * 24));
        }
        _ => {}
    }
}

/// Adds a certificate to the facts, as the probe does: only certificates in known folders are reported.
fn add_certificate(file: &File, now: i64, facts: &mut Facts) {
    let Content::Secret(SecretRef::LeafCertificate(leaf)) = &file.content else { return };
    let certificate = certificate(&file.path, now, leaf.hours);
    if file.path == KUBELET_BOOTSTRAP {
        facts.kubelet.bootstrap = Some(certificate);
    } else if file.path.starts_with(PKI) {
        facts.certificates.retain(|known| known.path != file.path);
        facts.certificates.push(certificate);
    }
}

fn certificate(path: &str, now: i64, hours: u32) -> CertificateFact {
    CertificateFact { path: path.to_owned(), not_before: now, not_after: now + i64::from(hours) * 3600 }
}

/// The timer of a host runs: it renews the due certificates, and the kubelet renews its own.
pub fn renew(host: HostAddress, snapshot: &mut Snapshot) {
    let now = snapshot.taken_at;
    let Some(Observation::Fresh(facts)) = snapshot.hosts.get_mut(&host) else { return };
    for certificate in facts.certificates.iter_mut().chain(&mut facts.kubelet.own) {
        if now >= renewal_due(certificate.not_before, certificate.not_after) {
            let life = certificate.not_after - certificate.not_before;
            (certificate.not_before, certificate.not_after) = (now, now + life);
        }
    }
}

fn cordon(facts: &mut Facts, node: &str, unschedulable: bool) {
    let nodes = facts.cluster.as_mut().and_then(|cluster| cluster.nodes.as_mut());
    if let Some(node) = nodes.and_then(|nodes| nodes.get_mut(node)) {
        node.unschedulable = unschedulable;
    }
}

/// Plans and applies until no step is left, at most `attempts` times. Returns the log.
pub fn run_to_completion(intent: &Intent, snapshot: &mut Snapshot, attempts: usize) -> String {
    let mut log = String::new();
    for attempt in 1..=attempts {
        match crate::plan(intent, snapshot) {
            Ok(plan) => {
                let _ = writeln!(log, "reconcile {attempt}: {}", describe(&plan));
                if plan.steps.is_empty() {
                    break;
                }
                apply(&plan, plan.steps.len(), snapshot);
            }
            Err(error) => {
                let _ = writeln!(log, "reconcile {attempt}: {}", refused(&error));
                break;
            }
        }
    }
    log
}

/// A plan as text: one line per step.
#[must_use]
pub fn describe(plan: &Plan) -> String {
    let nodes = plan.nodes_at.map(|version| format!(", nodes {version},")).unwrap_or_default();
    let mut text = format!(
        "{} {}{nodes} generation {}: {} steps, {} up to date\n",
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
    for step in &plan.waiting {
        let hosts: Vec<String> = step.hosts.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "  waits for {}: {} {}, because {}",
            hosts.join(" "),
            step.id,
            step.title,
            step.why
        );
        let _ = writeln!(text, "    {}", step.risk);
    }
    for step in &plan.steps {
        let _ = writeln!(text, "  {:<28} {}, because {}", step.id, step.title, step.why);
        let needs: Vec<String> = step.needs.iter().map(ToString::to_string).collect();
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
