//! Decides which hosts take part in a plan. It checks every host and reports all reasons at once.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostName, Refusal, RefusedField, Remedy};
use kubeon_wire::Facts;

use crate::context::{Leaving, ObservedHost, PlanContext};
use crate::desired::prepare::{NET_TOOLS, NODE_IMAGES, parts};
use crate::input::{HostSpec, Intent, Seen, Snapshot};
use crate::output::{Note, PlanRefused};
use crate::precheck::{self, CheckRule, rules};
use crate::proxy_mode::missing_tool;

/// The path of the node program on a host.
const NODE_PROGRAM: &str = "/var/lib/kubeon/node/current";

/// Checks whose warnings are also reported for hosts that are part of the cluster already.
const TOLD_ALWAYS: [&str; 3] = ["memory", "nftables", "clock"];

/// Checks the hosts of a cluster that is created or changed.
pub(crate) fn admit<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    // Names are judged below, together with those of hosts that leave.
    let rules: Vec<&CheckRule> = rules().filter(|rule| rule.name != "name").collect();
    let (mut site, mut notes) = judge(intent, snapshot, &rules, Purpose::Stay)?;
    notes.extend(unchecked(&site));
    bare_first(&mut site, &mut notes);
    bundle_is_whole(site, notes)
}

/// Workers that come back although their Node object is gone: their kubelet would not create it again. This plan resets
/// them, and the next one lets them join as new workers.
fn bare_first(site: &mut PlanContext<'_>, notes: &mut Vec<Note>) {
    let gone = |site: &PlanContext<'_>, host: &ObservedHost<'_>| {
        let ours = host.facts.claim.as_ref().is_some_and(|claim| claim.uid == site.intent.uid);
        let joined = ours && host.did(&crate::desired::join::kubelet_id(host));
        site.intent.returns(host.address()) && joined && matches!(site.node(&host.name), Some(None))
    };
    let half: Vec<HostAddress> =
        site.hosts.iter().filter(|host| gone(site, host)).map(ObservedHost::address).collect();
    for address in half {
        let Some(place) = site.hosts.iter().position(|host| host.address() == address) else { continue };
        let ObservedHost { spec, name, facts, .. } = site.hosts.remove(place);
        let text = format!(
            "{name} stays in the cluster, but its node was deleted already: the host is reset first, then it joins again"
        );
        notes.push(note(address, text));
        site.leaving.push(Leaving { spec, name, facts: Ok(facts) });
    }
}

/// Checks the hosts of a cluster that is destroyed. Only their claim matters: hosts of other clusters take no part. The
/// result may have no hosts.
pub(crate) fn recognize<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    // The generation is counted before the first effect, so 0 says that there was none.
    let ours = |facts: &Facts| facts.claim.as_ref().is_some_and(|claim| claim.uid == intent.uid);
    let written = intent.generation > 0 || snapshot.hosts.values().filter_map(Seen::fresh).any(ours);
    let (mut site, mut notes) = judge(intent, snapshot, &[], Purpose::Go { written })?;
    if written {
        site.hosts.retain(|host| {
            let others = of_others(intent, host);
            let is_ours = others.is_none();
            notes.extend(others);
            is_ours
        });
    } else {
        let text =
            format!("no host was ever written to: only what is known here of {} goes", intent.spec.name);
        notes.push(Note { host: None, text });
    }
    Ok((site, notes))
}

/// The note for a host that holds nothing of this cluster and something of another one.
fn of_others(intent: &Intent, host: &ObservedHost<'_>) -> Option<Note> {
    let text = match &host.facts.claim {
        Some(claim) if claim.uid != intent.uid => {
            format!("belongs to cluster {} (identity {}) and is left alone", claim.cluster, claim.uid)
        }
        None if !host.facts.foreign.is_empty() => {
            let found = host.facts.foreign.join(", ");
            format!(
                "has nothing of {}, but another cluster (found {found}), and is left alone",
                intent.spec.name
            )
        }
        _ => return None,
    };
    Some(note(host.address(), text))
}

/// The purpose of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// The cluster is created or changed.
    Stay,
    /// The cluster is destroyed.
    Go {
        /// Whether any host was ever written to.
        written: bool,
    },
}

fn judge<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    rules: &[&CheckRule],
    purpose: Purpose,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    let (mut refusals, mut notes, mut hosts) = (Vec::new(), Vec::new(), Vec::new());
    let masters = intent.spec.masters.len();
    for (index, spec) in intent.spec.hosts().enumerate() {
        let master = index < masters;
        match seen(intent, snapshot, spec, master, purpose) {
            Sight::Facts(facts) => match named(spec, facts) {
                Ok(name) => hosts.push(ObservedHost { spec, name, master, facts }),
                Err(refusal) => refusals.push(refusal),
            },
            Sight::LeftOut(text) => notes.push(note(spec.address, text)),
            Sight::Nothing => {}
            Sight::Missing(refusal) => refusals.push(refusal),
        }
    }
    check(intent, snapshot, rules, &mut refusals, &mut notes);
    let leaving = leave(intent, snapshot, purpose, &mut refusals, &mut notes);
    refusals.extend(same_names(&hosts, &leaving));
    if !refusals.is_empty() || hosts.is_empty() && purpose == Purpose::Stay {
        return Err(PlanRefused { cluster: intent.spec.name.to_string(), refusals, notes });
    }
    let going = leaving.iter().filter_map(|host| host.facts.as_ref().ok()).copied();
    let claims = hosts.iter().map(|host| host.facts).chain(going).filter_map(|facts| facts.claim.as_ref());
    let generation = claims.map(|claim| claim.generation).max().unwrap_or(0).max(intent.generation);
    Ok((PlanContext { intent, hosts, leaving, generation }, notes))
}

/// The leaving workers. One that cannot be reached is accepted only if the user named it to be skipped.
fn leave<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    purpose: Purpose,
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) -> Vec<Leaving<'a>> {
    let mut leaving = Vec::new();
    for spec in &intent.leaving {
        if purpose != Purpose::Stay && intent.skip_hosts.contains(&spec.address) {
            notes.push(note(spec.address, keeps(intent, false)));
            continue;
        }
        let facts = match look(snapshot, spec) {
            Ok(facts) => Ok(facts),
            Err(why) if intent.skip_hosts.contains(&spec.address) => Err(why),
            Err(why) => {
                let reason = format!("{why}; bring it back, or only take it out of the cluster");
                refusals.push(Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address)));
                continue;
            }
        };
        let name = match (&spec.name, &facts) {
            (Some(name), _) => Ok(name.clone()),
            (None, Ok(facts)) => named(spec, facts),
            (None, Err(why)) => {
                Err(Refusal::host(spec.address, format!("{why}; the name of its node is not known")))
            }
        };
        match name {
            Ok(name) => {
                notes.extend(stays_behind(intent, spec, facts.as_ref()));
                leaving.push(Leaving { spec, name, facts });
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    leaving
}

/// The warning for a leaving host that is not reset.
fn stays_behind(intent: &Intent, spec: &HostSpec, facts: Result<&&Facts, &String>) -> Option<Note> {
    let text = match facts {
        Err(why) => format!(
            "leaves the cluster and keeps what it has of it ({why}); before it is used again, have it reset: {}",
            reset(intent)
        ),
        Ok(facts) => match &facts.claim {
            Some(claim) if claim.uid != intent.uid => {
                format!("belongs to cluster {} by now and is left alone", claim.cluster)
            }
            _ => return None,
        },
    };
    Some(note(spec.address, text))
}

/// The command that resets a host by hand.
fn reset(intent: &Intent) -> String {
    format!("{NODE_PROGRAM} reset --cluster {}", intent.spec.name)
}

/// The warning for a host that is skipped while its cluster is destroyed.
fn keeps(intent: &Intent, master: bool) -> String {
    let (what, more) = if master {
        (
            "etcd's data, the cluster's keys and its services",
            "; it would go on serving the cluster that is gone",
        )
    } else {
        ("its services, images and pods", "")
    };
    format!(
        "is left out and keeps what it has of {}: {what}; before it is used again, have it reset: {}{more}",
        intent.spec.name,
        reset(intent)
    )
}

enum Sight<'a> {
    Facts(&'a Facts),
    /// The host takes no part, with a warning.
    LeftOut(String),
    /// The host takes no part; no warning is needed.
    Nothing,
    Missing(Refusal),
}

fn look<'a>(snapshot: &'a Snapshot, spec: &HostSpec) -> Result<&'a Facts, String> {
    match snapshot.hosts.get(&spec.address) {
        Some(Seen::Fresh(facts)) => Ok(facts),
        Some(Seen::Unknown { why, denied: _ }) => Err(why.clone()),
        None => Err("was not asked".to_owned()),
    }
}

fn seen<'a>(
    intent: &Intent,
    snapshot: &'a Snapshot,
    spec: &HostSpec,
    master: bool,
    purpose: Purpose,
) -> Sight<'a> {
    let without = intent.skip_hosts.contains(&spec.address);
    if without && purpose == (Purpose::Go { written: true }) {
        return Sight::LeftOut(keeps(intent, master));
    }
    let why = match look(snapshot, spec) {
        Ok(facts) => return Sight::Facts(facts),
        Err(why) => why,
    };
    let refusal = match purpose {
        Purpose::Stay if without && !master => return Sight::LeftOut(format!("is left out: {why}")),
        Purpose::Go { written: false } => return Sight::Nothing,
        Purpose::Stay => precheck::unreachable(spec, master, &why),
        Purpose::Go { written: true } => {
            let reason = format!("{why}; bring it back, or leave everything of the cluster on it");
            Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address))
        }
    };
    Sight::Missing(refusal)
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
        Refusal::host(spec.address, format!("has no usable name of its own ({error})"))
            .with(Remedy::NameHost(spec.address))
    })
}

fn same_names(hosts: &[ObservedHost<'_>], leaving: &[Leaving<'_>]) -> Vec<Refusal> {
    let mut first: BTreeMap<&HostName, HostAddress> = BTreeMap::new();
    let mut refusals = Vec::new();
    let staying = hosts.iter().map(|host| (&host.name, host.address()));
    for (name, address) in leaving.iter().map(|host| (&host.name, host.spec.address)).chain(staying) {
        if let Some(other) = first.insert(name, address) {
            let reason = format!("is named {name} like {other} (Cluster hostname is duplicate)");
            refusals.push(Refusal::host(address, reason).with(Remedy::NameHost(address)));
        }
    }
    refusals
}

/// The results of the check rules: refusals for errors, notes for warnings.
fn check(
    intent: &Intent,
    snapshot: &Snapshot,
    rules: &[&CheckRule],
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) {
    let mut warnings: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    precheck::subjects(intent, snapshot, |subject| {
        let host = subject.spec.address;
        for result in rules.iter().map(|rule| precheck::judge(rule, subject)).filter(|result| !result.ok) {
            if result.prevents() {
                refusals.push(result.refusal(host));
            } else if subject.facts.claim.is_none() || TOLD_ALWAYS.contains(&result.check.as_str()) {
                warnings.entry(result.message).or_default().push(host);
            }
        }
    });
    notes.extend(told_once(warnings));
}

/// One note for each message, for all hosts that it is about.
fn told_once(messages: BTreeMap<String, Vec<HostAddress>>) -> impl Iterator<Item = Note> {
    messages.into_iter().filter_map(|(message, hosts)| match hosts.as_slice() {
        [] => None,
        [host] => Some(note(*host, message)),
        [first, rest @ ..] => {
            Some(Note { host: None, text: format!("{first} and {} more: {message}", rest.len()) })
        }
    })
}

/// Warns of checks that did not finish in time: no step is planned because of them.
fn unchecked(site: &PlanContext<'_>) -> Vec<Note> {
    let mut messages: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    for host in &site.hosts {
        for text in &host.facts.unchecked {
            messages.entry(text.clone()).or_default().push(host.address());
        }
    }
    let mut notes: Vec<Note> = told_once(messages).collect();
    if site.hides_nodes() {
        let text =
            "the API server answers, but did not list the nodes in time: whether they are Ready is unknown";
        notes.push(Note { host: None, text: text.to_owned() });
    }
    notes
}

/// The refusal of a host that lacks a tool that the bundle does not hold either.
fn tools_are_whole(site: &PlanContext<'_>) -> Option<Refusal> {
    if site.intent.artifacts.parts.contains_key(NET_TOOLS) {
        return None;
    }
    let wanted = site.spec().settings.proxy_mode;
    let (host, tool) = site.hosts.iter().find_map(|host| Some((host, missing_tool(host.facts, wanted)?)))?;
    let version = site.spec().version;
    let reason =
        format!("has no {tool}, and the bundle of {version} does not hold {NET_TOOLS}: install {tool} there");
    Some(Refusal::host(host.address(), reason).with(Remedy::BuildBundle(version)))
}

fn bundle_is_whole(
    site: PlanContext<'_>,
    notes: Vec<Note>,
) -> Result<(PlanContext<'_>, Vec<Note>), PlanRefused> {
    let artifacts = &site.intent.artifacts;
    let programs = parts(true).chain(parts(false)).filter(|name| !artifacts.parts.contains_key(*name));
    let images = NODE_IMAGES.iter().copied().filter(|role| !artifacts.images.contains_key(*role));
    let version = site.spec().version;
    let incomplete = |name: &str| {
        let refusal = Refusal::new(RefusedField::Bundle, version, format!("does not hold {name}"));
        refusal.with(Remedy::BuildBundle(version))
    };
    let mut refusals: Vec<Refusal> = programs.chain(images).map(incomplete).collect();
    refusals.dedup();
    refusals.extend(tools_are_whole(&site));
    if refusals.is_empty() {
        return Ok((site, notes));
    }
    Err(PlanRefused { cluster: site.spec().name.to_string(), refusals, notes })
}
