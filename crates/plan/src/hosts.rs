//! Which hosts may take part. Every host is judged, and all reasons are told at once.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::Facts;

use crate::desired::prepare::{NODE_IMAGES, parts};
use crate::input::{HostSpec, Intent, Seen, Snapshot};
use crate::output::{Note, PlanError, Refusal};
use crate::precheck::{self, RULES, Rule};
use crate::site::{Host, Leaving, Site};

/// Checks whose warnings are told of hosts that are part of the cluster already.
const TOLD_ALWAYS: [&str; 3] = ["memory", "nftables", "clock"];

/// Judges hosts for a cluster that is to be or to stay.
pub(crate) fn admit<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
    // Names are judged below, together with those of hosts that leave.
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| rule.name != "name").collect();
    judge(intent, snapshot, &rules).and_then(|(site, notes)| bundle_is_whole(site, notes))
}

/// Judges hosts for a cluster that is to go: only whose they are matters.
pub(crate) fn recognize<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
    let rules: Vec<&Rule> = RULES.iter().filter(|rule| ["claim", "leftover"].contains(&rule.name)).collect();
    judge(intent, snapshot, &rules)
}

fn judge<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    rules: &[&Rule],
) -> Result<(Site<'a>, Vec<Note>), PlanError> {
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
    check(intent, snapshot, rules, &mut refusals, &mut notes);
    let leaving = leave(intent, snapshot, &mut refusals, &mut notes);
    refusals.extend(same_names(&hosts, &leaving));
    if !refusals.is_empty() || hosts.is_empty() {
        return Err(PlanError { cluster: intent.spec.name.to_string(), refusals, notes });
    }
    let going = leaving.iter().filter_map(|host| host.facts.as_ref().ok()).copied();
    let claims = hosts.iter().map(|host| host.facts).chain(going).filter_map(|facts| facts.claim.as_ref());
    let generation = claims.map(|claim| claim.generation).max().unwrap_or(0).max(intent.generation);
    Ok((Site { intent, hosts, leaving, generation }, notes))
}

/// Workers that are to leave, those that cannot be reached only where a person said so.
fn leave<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) -> Vec<Leaving<'a>> {
    let mut leaving = Vec::new();
    for spec in &intent.leaving {
        let facts = match look(snapshot, spec) {
            Ok(facts) => Ok(facts),
            Err(why) if intent.without.contains(&spec.address) => Err(why),
            Err(why) => {
                let out = format!("only take it out of the cluster: --without {}", spec.address);
                refusals.push(refuse(spec.address, format!("{why}; bring it back, or {out}")));
                continue;
            }
        };
        let name = match (&spec.name, &facts) {
            (Some(name), _) => Ok(name.clone()),
            (None, Ok(facts)) => named(spec, facts),
            (None, Err(why)) => {
                Err(refuse(spec.address, format!("{why}; how its node is named is not known")))
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

/// What a host that leaves keeps.
fn stays_behind(intent: &Intent, spec: &HostSpec, facts: Result<&&Facts, &String>) -> Option<Note> {
    let text = match facts {
        Err(why) => format!(
            "leaves the cluster and keeps what it has of it ({why}); before it is started again, have it reset: \
             kubeon-node reset --cluster {}",
            intent.spec.name
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

enum Sight<'a> {
    Facts(&'a Facts),
    LeftOut(String),
    Missing(Refusal),
}

fn look<'a>(snapshot: &'a Snapshot, spec: &HostSpec) -> Result<&'a Facts, String> {
    match snapshot.hosts.get(&spec.address) {
        Some(Seen::Fresh(facts)) => Ok(facts),
        Some(Seen::Unknown { why, denied: _ }) => Err(why.clone()),
        None => Err("was not asked".to_owned()),
    }
}

fn seen<'a>(intent: &Intent, snapshot: &'a Snapshot, spec: &HostSpec, master: bool) -> Sight<'a> {
    let why = match look(snapshot, spec) {
        Ok(facts) => return Sight::Facts(facts),
        Err(why) => why,
    };
    if !master && intent.without.contains(&spec.address) {
        return Sight::LeftOut(why);
    }
    Sight::Missing(refuse(spec.address, format!("{why}; {}", precheck::way_out(spec, master))))
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

fn same_names(hosts: &[Host<'_>], leaving: &[Leaving<'_>]) -> Vec<Refusal> {
    let mut first: BTreeMap<&HostName, HostAddress> = BTreeMap::new();
    let mut refusals = Vec::new();
    let staying = hosts.iter().map(|host| (&host.name, host.address()));
    for (name, address) in leaving.iter().map(|host| (&host.name, host.spec.address)).chain(staying) {
        if let Some(other) = first.insert(name, address) {
            let reason = format!(
                "is named {name} like {other} (Cluster hostname is duplicate); give names with -M or -W"
            );
            refusals.push(refuse(address, reason));
        }
    }
    refusals
}

/// What the rules say: refusals where something stands in the way, notes for the rest.
fn check(
    intent: &Intent,
    snapshot: &Snapshot,
    rules: &[&Rule],
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) {
    let mut warnings: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    precheck::subjects(intent, snapshot, |subject| {
        let host = subject.spec.address;
        for result in rules.iter().map(|rule| precheck::judge(rule, subject)).filter(|result| !result.ok) {
            if precheck::stands_in_the_way(&result) {
                refusals.push(refuse(host, result.message));
            } else if subject.facts.claim.is_none() || TOLD_ALWAYS.contains(&result.check.as_str()) {
                warnings.entry(result.message).or_default().push(host);
            }
        }
    });
    for (message, hosts) in warnings {
        match hosts.as_slice() {
            [] => {}
            [host] => notes.push(note(*host, message)),
            [first, rest @ ..] => {
                notes.push(Note { host: None, text: format!("{first} and {} more: {message}", rest.len()) });
            }
        }
    }
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
