//! Which hosts may take part. Every host is judged, and all reasons are told at once.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::Facts;

use crate::desired::prepare::{NODE_IMAGES, parts};
use crate::input::{HostSpec, Intent, Seen, Snapshot};
use crate::output::{Note, PlanError, Refusal};
use crate::site::{Host, Site};

/// Room that must stay free beyond the parts: images, logs, etcd.
const SPARE_BYTES: u64 = 1 << 30;
/// More than this and certificates look expired or not yet valid, and leases flap.
const CLOCK_LIMIT_SECONDS: i64 = 120;
const LOW_MEMORY_BYTES: u64 = 1_500 << 20;

/// Judges hosts for a cluster that is to be or to stay.
pub(crate) fn admit<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
    judge(intent, snapshot, |host, refusals, notes| {
        belongs(intent, host, refusals);
        capable(intent, host, refusals, notes);
    })
    .and_then(|(site, notes)| bundle_is_whole(site, notes))
}

/// Judges hosts for a cluster that is to go: only whose they are matters.
pub(crate) fn recognize<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
    judge(intent, snapshot, |host, refusals, _| belongs(intent, host, refusals))
}

type Verdict<'v> = dyn Fn(&Host<'_>, &mut Vec<Refusal>, &mut Vec<Note>) + 'v;

fn judge<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    verdict: impl Fn(&Host<'_>, &mut Vec<Refusal>, &mut Vec<Note>),
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
    let verdict: &Verdict<'_> = &verdict;
    let (mut refusals, mut notes, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    let masters = intent.spec.masters.len();
    for (index, spec) in intent.spec.hosts().enumerate() {
        let master = index < masters;
        match seen(intent, snapshot, spec, master) {
            Sight::Facts(facts) => match named(spec, facts) {
                Ok(name) => hosts.push(Host { spec, name, master, facts }),
                Err(refusal) => refusals.push(refusal),
            },
            Sight::LeftOut(why) => notes.push(note(spec.address, format!("is left out: {why}"))),
            Sight::Missing(refusal) => refusals.push(refusal),
        }
    }
    for host in &hosts {
        verdict(host, &mut refusals, &mut notes);
    }
    refusals.extend(same_names(&hosts));
    if !refusals.is_empty() || hosts.is_empty() {
        return Err(PlanError { cluster: intent.spec.name.to_string(), refusals, notes });
    }
    let claims = hosts.iter().filter_map(|host| host.facts.claim.as_ref()).map(|claim| claim.generation);
    let generation = claims.max().unwrap_or(0).max(intent.generation);
    Ok((Site { intent, hosts, generation }, notes))
}

enum Sight<'a> {
    Facts(&'a Facts),
    LeftOut(String),
    Missing(Refusal),
}

fn seen<'a>(intent: &Intent, snapshot: &'a Snapshot, spec: &HostSpec, master: bool) -> Sight<'a> {
    let why = match snapshot.hosts.get(&spec.address) {
        Some(Seen::Fresh(facts)) => return Sight::Facts(facts),
        Some(Seen::Unknown { why }) => why.clone(),
        None => "was not asked".to_owned(),
    };
    if !master && intent.without.contains(&spec.address) {
        return Sight::LeftOut(why);
    }
    let out = if master {
        "a master cannot be left out: bring it back or name another".to_owned()
    } else {
        format!("bring it back, or go on without it: --without {}", spec.address)
    };
    Sight::Missing(refuse(spec.address, format!("{why}; {out}")))
}

fn refuse(host: HostAddress, reason: String) -> Refusal {
    Refusal { subject: host.to_string(), reason }
}

fn note(host: HostAddress, text: String) -> Note {
    Note { host: Some(host), text }
}

fn named(spec: &HostSpec, facts: &Facts) -> Result<HostName, Refusal> {
    if let Some(name) = &spec.name {
        return Ok(name.clone());
    }
    let own = facts.hostname.to_ascii_lowercase();
    let short = own.split('.').next().unwrap_or_default();
    short.parse().map_err(|error| {
        refuse(spec.address, format!("has no usable name of its own ({error}); give one with -M or -W"))
    })
}

fn same_names(hosts: &[Host<'_>]) -> Vec<Refusal> {
    let mut first: BTreeMap<&HostName, HostAddress> = BTreeMap::new();
    let mut refusals = Vec::new();
    for host in hosts {
        if let Some(other) = first.insert(&host.name, host.address()) {
            let reason = format!(
                "is named {} like {other} (Cluster hostname is duplicate); give names with -M or -W",
                host.name
            );
            refusals.push(refuse(host.address(), reason));
        }
    }
    refusals
}

fn belongs(intent: &Intent, host: &Host<'_>, refusals: &mut Vec<Refusal>) {
    let mut no = |reason: String| refusals.push(refuse(host.address(), reason));
    match &host.facts.claim {
        Some(claim) if claim.cluster != intent.spec.name => no(format!(
            "belongs to cluster {}; destroy that cluster first, or name another host",
            claim.cluster
        )),
        Some(claim) if claim.uid != intent.uid => no(format!(
            "belongs to another cluster named {} (identity {}); destroy it from where it was created",
            claim.cluster, claim.uid
        )),
        Some(_) => {}
        None if !host.facts.foreign.is_empty() => no(format!(
            "carries another cluster (found {}); remove that cluster first, or name another host",
            host.facts.foreign.join(", ")
        )),
        None => {}
    }
}

fn capable(intent: &Intent, host: &Host<'_>, refusals: &mut Vec<Refusal>, notes: &mut Vec<Note>) {
    let facts = host.facts;
    let mut no = |reason: String| refusals.push(refuse(host.address(), reason));
    if facts.system != "Linux" {
        return no(format!("runs {}, not Linux", facts.system));
    }
    if facts.architecture != "x86_64" {
        no(format!("is {}; the bundle of {} is for x86_64", facts.architecture, intent.spec.version));
    }
    if !facts.has_systemd {
        no("is not run by systemd".to_owned());
    }
    if !facts.is_root {
        no("the login is not root and cannot become root by sudo".to_owned());
    }
    if facts.clock_offset_seconds.abs() > CLOCK_LIMIT_SECONDS {
        no(format!(
            "its clock is off by {}; set the time (chrony, timesyncd)",
            span(facts.clock_offset_seconds)
        ));
    }
    let missing = missing_bytes(intent, host);
    if facts.disk_free_bytes < missing + SPARE_BYTES {
        no(format!(
            "has {} MiB free for /var/lib/kubeon, {} MiB needed",
            facts.disk_free_bytes >> 20,
            (missing + SPARE_BYTES) >> 20
        ));
    }
    if facts.claim.is_none() && !facts.busy_ports.is_empty() {
        let ports: Vec<String> = facts.busy_ports.iter().map(u16::to_string).collect();
        no(format!("somebody listens on port {}; free it (ss -ltnp)", ports.join(", ")));
    }
    if facts.memory_bytes < LOW_MEMORY_BYTES {
        notes.push(note(host.address(), format!("has only {} MiB of memory", facts.memory_bytes >> 20)));
    }
    if !facts.has_nftables {
        notes.push(note(
            host.address(),
            "its kernel has no nftables: kube-proxy uses iptables here".to_owned(),
        ));
    }
}

fn span(seconds: i64) -> String {
    let (size, way) = (seconds.unsigned_abs(), if seconds > 0 { "ahead" } else { "behind" });
    if size >= 3600 {
        format!("{} h {} min, {way}", size / 3600, size % 3600 / 60)
    } else {
        format!("{size} s, {way}")
    }
}

fn missing_bytes(intent: &Intent, host: &Host<'_>) -> u64 {
    let programs = parts(host.master).filter_map(|name| intent.artifacts.parts.get(name));
    let images =
        NODE_IMAGES.iter().filter_map(|role| intent.artifacts.images.get(*role)).map(|image| &image.part);
    programs
        .chain(images)
        .filter(|part| !host.facts.parts.contains(&part.digest))
        .map(|part| part.unpacked_size)
        .sum()
}

fn bundle_is_whole(site: Site<'_>, notes: Vec<Note>) -> Result<(Site<'_>, Vec<Note>), PlanError> {
    let artifacts = &site.intent.artifacts;
    let programs = parts(true).chain(parts(false)).filter(|name| !artifacts.parts.contains_key(*name));
    let images = NODE_IMAGES.iter().copied().filter(|role| !artifacts.images.contains_key(*role));
    let mut refusals: Vec<Refusal> = programs
        .chain(images)
        .map(|name| Refusal {
            subject: format!("bundle {}", site.spec().version),
            reason: format!(
                "does not hold {name}; build it again: kubeon bundle build {}",
                site.spec().version
            ),
        })
        .collect();
    refusals.dedup();
    if refusals.is_empty() {
        return Ok((site, notes));
    }
    Err(PlanError { cluster: site.spec().name.to_string(), refusals, notes })
}
