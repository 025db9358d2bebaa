//! Checks the hosts of a plan and decides which of them take part. All reasons for a refusal are reported at
//! once.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostName, HostRole, Refusal, Remedy};
use kubeon_wire::Facts;

use crate::complete_bundle::require_complete_bundle;
use crate::context::{Leaving, NODE_PROGRAM, ObservedHost, PlanContext};
use crate::desired::{encryption, restore};
use crate::generation;
use crate::input::{HostSpec, Intent, Observation, ObservationFailure, Snapshot};
use crate::kernel_defaults;
use crate::known_masters;
use crate::membership;
use crate::node_name::node_name;
use crate::output::{Note, PlanRefused, UnreachableHost};
use crate::precheck::{self, CheckRule, rules};
use crate::unreachable;

/// Checks whose warnings are also reported for hosts that are part of the cluster already.
const ALWAYS_REPORTED: [&str; 4] = ["memory", "nftables", "clock", "firewall"];

/// Checks the hosts of a cluster that is created or changed.
pub(crate) fn admit<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    // Names are checked below, together with the names of leaving hosts.
    let rules: Vec<&CheckRule> = rules().filter(|rule| rule.name != "name").collect();
    let (mut context, mut notes) = check_hosts(intent, snapshot, &rules, Purpose::Apply)?;
    notes.extend(unchecked_notes(&context));
    notes.extend(kernel_notes(&context));
    notes.extend(encryption_note(&context));
    notes.extend(address_notes(&context));
    notes.extend(context.network_note());
    reset_deleted_nodes(&mut context, &mut notes);
    let mut refusals: Vec<Refusal> = other_machines(&context).collect();
    refusals.extend(membership::refusals(&context));
    refusals.extend(restore::refusals(&context));
    if !refusals.is_empty() {
        return Err(PlanRefused { cluster: intent.spec.name.to_string(), refusals, notes });
    }
    require_complete_bundle(context, notes)
}

/// Refuses machines that answer at the new address of a host and belong to no cluster.
fn other_machines<'c>(context: &'c PlanContext<'_>) -> impl Iterator<Item = Refusal> + 'c {
    let moved = |host: &&ObservedHost<'_>| context.intent.moved_hosts.contains(&host.address());
    let other = context.all_hosts().filter(moved).filter(|host| host.facts.claim.is_none());
    other.map(|host| {
        let reason = format!("is another machine than {}: it belongs to no cluster", host.name);
        Refusal::host(host.address(), reason)
    })
}

/// Moves returning workers whose Node object was deleted to the leaving workers: their kubelet would not
/// create the object again. This plan resets them. The next plan joins them as new workers.
fn reset_deleted_nodes(context: &mut PlanContext<'_>, notes: &mut Vec<Note>) {
    let deleted = |context: &PlanContext<'_>, host: &ObservedHost<'_>| {
        let claimed = host.facts.claim.as_ref().is_some_and(|claim| claim.uid == context.intent.uid);
        let joined = claimed && host.has_executed(&crate::desired::join::kubelet_id(host));
        context.intent.returns(host.address()) && joined && matches!(context.node(&host.name), Some(None))
    };
    let addresses: Vec<HostAddress> =
        context.hosts.iter().filter(|host| deleted(context, host)).map(ObservedHost::address).collect();
    for address in addresses {
        let Some(index) = context.hosts.iter().position(|host| host.address() == address) else { continue };
        let ObservedHost { spec, name, role, facts } = context.hosts.remove(index);
        let text = format!(
            "{name} stays in the cluster, but its node was deleted already: the host is reset first, then it joins again"
        );
        notes.push(note(address, text));
        context.leaving.push(Leaving { spec, name, role, facts: Ok(facts) });
    }
}

/// Checks the hosts of a cluster that is destroyed. Only their claim matters: hosts of other clusters take no
/// part. The result may have no hosts.
pub(crate) fn admit_for_destroy<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    // The generation is incremented before the first effect, so 0 means that no host was changed.
    let claimed = |facts: &Facts| facts.claim.as_ref().is_some_and(|claim| claim.uid == intent.uid);
    let written =
        intent.generation > 0 || snapshot.hosts.values().filter_map(Observation::fresh).any(claimed);
    let (mut context, mut notes) = check_hosts(intent, snapshot, &[], Purpose::Destroy { written })?;
    if written {
        let mut takes_part = |host: &ObservedHost<'_>| {
            let note = other_cluster_note(intent, host);
            let takes_part = note.is_none();
            notes.extend(note);
            takes_part
        };
        context.hosts.retain(&mut takes_part);
        context.etcd_hosts.retain(takes_part);
    } else {
        let text =
            format!("no host was ever written to: only the saved state of {} is deleted", intent.spec.name);
        notes.push(Note { host: None, text });
    }
    Ok((context, notes))
}

/// The note for a host that belongs to another cluster and not to this one.
fn other_cluster_note(intent: &Intent, host: &ObservedHost<'_>) -> Option<Note> {
    let text = match &host.facts.claim {
        Some(claim) if claim.uid != intent.uid => {
            format!("belongs to cluster {} (identity {}) and is not changed", claim.cluster, claim.uid)
        }
        None if !host.facts.foreign.is_empty() => {
            let found = host.facts.foreign.join(", ");
            format!(
                "does not belong to {}, but to another cluster (found {found}), and is not changed",
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
    Apply,
    /// The cluster is destroyed.
    Destroy {
        /// Whether any host was ever written to.
        written: bool,
    },
}

fn check_hosts<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    rules: &[&CheckRule],
    purpose: Purpose,
) -> Result<(PlanContext<'a>, Vec<Note>), PlanRefused> {
    let (mut refusals, mut notes, mut hosts, mut unreachable) = (vec![], vec![], vec![], vec![]);
    for (role, spec) in intent.spec.hosts_with_roles() {
        match host_status(intent, snapshot, spec, &role, purpose) {
            HostStatus::Observed(facts) => match require_name(spec, facts) {
                Ok(name) => hosts.push(ObservedHost { spec, name, role, facts }),
                Err(refusal) => refusals.push(refusal),
            },
            HostStatus::Skipped(text) => notes.push(note(spec.address, text)),
            HostStatus::Unreachable(host) => {
                notes.push(note(spec.address, unreachable_text(&host)));
                unreachable.push(host);
            }
            HostStatus::Ignored => {}
            HostStatus::Refused(refusal) => refusals.push(refusal),
        }
    }
    refusals.extend(known_masters::refusals(intent, &unreachable));
    apply_rules(intent, snapshot, rules, &mut refusals, &mut notes);
    let leaving = leaving_hosts(intent, snapshot, purpose, &mut refusals, &mut notes);
    refusals.extend(duplicate_names(intent, &hosts, &unreachable, &leaving));
    let generation =
        generation::highest(intent, hosts.iter().filter(|host| host.is_master()).map(|host| host.facts));
    let observed = hosts.iter().map(|host| (host.address(), host.facts));
    let leaving_facts =
        leaving.iter().filter_map(|host| Some((host.spec.address, *host.facts.as_ref().ok()?)));
    refusals.extend(
        observed
            .chain(leaving_facts)
            .filter_map(|(host, facts)| generation::refusal(intent, host, facts, generation)),
    );
    let next_generation =
        generation::next(intent, generation).map_err(|refusal| refusals.push(refusal)).unwrap_or(generation);
    if !refusals.is_empty() || hosts.is_empty() && purpose == Purpose::Apply {
        return Err(PlanRefused { cluster: intent.spec.name.to_string(), refusals, notes });
    }
    let (hosts, etcd_hosts) = hosts.into_iter().partition(|host| host.role.runs_node());
    let context = PlanContext {
        intent,
        hosts,
        etcd_hosts,
        unreachable,
        leaving,
        generation,
        next_generation,
        awaits_network: false,
    };
    let awaits_network = context.finds_no_network();
    Ok((PlanContext { awaits_network, ..context }, notes))
}

/// The leaving hosts. An unreachable host is refused unless the user allows to skip it.
fn leaving_hosts<'a>(
    intent: &'a Intent,
    snapshot: &'a Snapshot,
    purpose: Purpose,
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) -> Vec<Leaving<'a>> {
    let mut leaving = Vec::new();
    let is_skipped =
        |host: &HostAddress| intent.skip_hosts.contains(host) || intent.lost_hosts.contains(host);
    for spec in &intent.leaving {
        let role = intent.leaving_role(spec.address);
        if purpose != Purpose::Apply && intent.skip_hosts.contains(&spec.address) {
            notes.push(note(spec.address, skipped_text(intent, &role)));
            continue;
        }
        let facts = match facts_of(snapshot, spec) {
            Ok(facts) => Ok(facts),
            Err(why) if is_skipped(&spec.address) => Err(why),
            Err(why) if observation_failure(snapshot, spec) == ObservationFailure::UnknownHostKey => {
                refusals.push(unreachable::unknown_host_key(spec, &why));
                continue;
            }
            Err(why) => {
                let reason = format!("{why}; bring it back, or remove it from the cluster without a reset");
                refusals.push(Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address)));
                continue;
            }
        };
        let name = match (&spec.name, &facts) {
            (Some(name), _) => Ok(name.clone()),
            (None, Ok(facts)) => require_name(spec, facts),
            (None, Err(why)) => {
                Err(Refusal::host(spec.address, format!("{why}; the name of its node is not known")))
            }
        };
        match name {
            Ok(name) => {
                notes.extend(not_reset_note(intent, spec, facts.as_ref()));
                leaving.push(Leaving { spec, name, role, facts });
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    leaving
}

/// The warning for a leaving host that is not reset.
fn not_reset_note(intent: &Intent, spec: &HostSpec, facts: Result<&&Facts, &String>) -> Option<Note> {
    let text = match facts {
        Err(why) => format!(
            "leaves the cluster without a reset ({why}); reset it before you use it again: {}",
            reset_command(intent)
        ),
        Ok(facts) => match &facts.claim {
            Some(claim) if claim.uid != intent.uid => {
                format!("now belongs to cluster {} and is not changed", claim.cluster)
            }
            _ => return None,
        },
    };
    Some(note(spec.address, text))
}

/// The command that resets a host by hand.
fn reset_command(intent: &Intent) -> String {
    format!("{NODE_PROGRAM} reset --cluster {}", intent.spec.name)
}

/// The warning for a host that is skipped while its cluster is destroyed.
fn skipped_text(intent: &Intent, role: &HostRole) -> String {
    let (kept, more) = if *role == HostRole::Worker {
        ("the services, images and pods", "")
    } else {
        ("the etcd data, the keys and the services", "; until then it continues to serve the deleted cluster")
    };
    format!(
        "is skipped and keeps {kept} of {}; reset it before you use it again: {}{more}",
        intent.spec.name,
        reset_command(intent)
    )
}

/// The warning for a host of the cluster that could not be observed.
fn unreachable_text(host: &UnreachableHost) -> String {
    format!("{} waits until it answers: nothing on it is checked or changed ({})", host.name, host.why)
}

/// Whether a host takes part in the plan.
enum HostStatus<'a> {
    /// The host takes part.
    Observed(&'a Facts),
    /// The host belongs to the cluster and does not answer: it waits.
    Unreachable(UnreachableHost),
    /// The host does not take part; the text is the warning.
    Skipped(String),
    /// The host does not take part; no warning is needed.
    Ignored,
    /// The host must take part but cannot be observed.
    Refused(Refusal),
}

fn facts_of<'a>(snapshot: &'a Snapshot, spec: &HostSpec) -> Result<&'a Facts, String> {
    match snapshot.hosts.get(&spec.address) {
        Some(Observation::Fresh(facts)) => Ok(facts),
        Some(Observation::Unknown { why, failure: _ }) => Err(why.clone()),
        None => Err("was not observed".to_owned()),
    }
}

fn observation_failure(snapshot: &Snapshot, spec: &HostSpec) -> ObservationFailure {
    match snapshot.hosts.get(&spec.address) {
        Some(Observation::Unknown { failure, .. }) => *failure,
        _ => ObservationFailure::default(),
    }
}

fn host_status<'a>(
    intent: &Intent,
    snapshot: &'a Snapshot,
    spec: &HostSpec,
    role: &HostRole,
    purpose: Purpose,
) -> HostStatus<'a> {
    if intent.unconcerned.contains(&spec.address) {
        return HostStatus::Ignored;
    }
    let skip = intent.skip_hosts.contains(&spec.address);
    if skip && purpose == (Purpose::Destroy { written: true }) {
        return HostStatus::Skipped(skipped_text(intent, role));
    }
    let why = match facts_of(snapshot, spec) {
        Ok(facts) => return HostStatus::Observed(facts),
        Err(why) => why,
    };
    let failure = observation_failure(snapshot, spec);
    let refusal = match purpose {
        Purpose::Apply if skip && *role == HostRole::Worker => {
            return HostStatus::Skipped(format!("is skipped: {why}"));
        }
        Purpose::Destroy { written: false } => return HostStatus::Ignored,
        Purpose::Apply => match unreachable::assess(intent, snapshot, spec, role, &why, failure) {
            Ok(host) => return HostStatus::Unreachable(host),
            Err(refusal) => refusal,
        },
        Purpose::Destroy { written: true } if failure == ObservationFailure::UnknownHostKey => {
            unreachable::unknown_host_key(spec, &why)
        }
        Purpose::Destroy { written: true } => {
            let reason = format!("{why}; bring it back, or skip it without a reset");
            Refusal::host(spec.address, reason).with(Remedy::SkipHost(spec.address))
        }
    };
    HostStatus::Refused(refusal)
}

fn note(host: HostAddress, text: String) -> Note {
    Note { host: Some(host), text }
}

/// The name of the node.
fn require_name(spec: &HostSpec, facts: &Facts) -> Result<HostName, Refusal> {
    node_name(spec, facts).map_err(|error| {
        Refusal::host(spec.address, format!("has no hostname that is a valid node name ({error})"))
            .with(Remedy::NameHost(spec.address))
    })
}

fn duplicate_names(
    intent: &Intent,
    hosts: &[ObservedHost<'_>],
    unreachable: &[UnreachableHost],
    leaving: &[Leaving<'_>],
) -> Vec<Refusal> {
    let mut first: BTreeMap<&HostName, HostAddress> = BTreeMap::new();
    let mut refusals = Vec::new();
    let unconcerned = intent.spec.workers.iter().filter(|host| intent.unconcerned.contains(&host.address));
    let unobserved = unconcerned
        .filter_map(|host| Some((host.name.as_ref()?, host.address)))
        .chain(unreachable.iter().map(|host| (&host.name, host.address)));
    let staying = hosts.iter().map(|host| (&host.name, host.address()));
    let left = leaving.iter().map(|host| (&host.name, host.spec.address));
    for (name, address) in left.chain(unobserved).chain(staying) {
        if let Some(other) = first.insert(name, address) {
            let reason = format!("has the same name {name} as {other} (Cluster hostname is duplicate)");
            refusals.push(Refusal::host(address, reason).with(Remedy::NameHost(address)));
        }
    }
    refusals
}

/// Applies the check rules: adds refusals for errors and notes for warnings.
fn apply_rules(
    intent: &Intent,
    snapshot: &Snapshot,
    rules: &[&CheckRule],
    refusals: &mut Vec<Refusal>,
    notes: &mut Vec<Note>,
) {
    let mut warnings: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    precheck::subjects(intent, snapshot, |subject| {
        let host = subject.spec.address;
        for result in rules.iter().map(|rule| precheck::evaluate(rule, subject)).filter(|result| !result.ok) {
            if result.prevents() {
                refusals.push(result.refusal(host));
            } else if subject.facts.claim.is_none() || ALWAYS_REPORTED.contains(&result.check.as_str()) {
                warnings.entry(result.message).or_default().push(host);
            }
        }
    });
    notes.extend(grouped_notes(warnings));
}

/// One note for each message, for all hosts with this message.
fn grouped_notes(messages: BTreeMap<String, Vec<HostAddress>>) -> impl Iterator<Item = Note> {
    messages.into_iter().filter_map(|(message, hosts)| match hosts.as_slice() {
        [] => None,
        [host] => Some(note(*host, message)),
        [first, rest @ ..] => {
            Some(Note { host: None, text: format!("{first} and {} more: {message}", rest.len()) })
        }
    })
}

/// Warns of hosts whose kubelet cannot insist on its kernel parameters.
fn kernel_notes(context: &PlanContext<'_>) -> impl Iterator<Item = Note> {
    let mut messages: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    for host in &context.hosts {
        if let Some(text) = kernel_defaults::warning(host.facts) {
            messages.entry(text).or_default().push(host.address());
        }
    }
    grouped_notes(messages)
}

/// Names the cluster address of each new host that is logged in to at another address.
fn address_notes(context: &PlanContext<'_>) -> Vec<Note> {
    let new = context.hosts.iter().filter(|host| host.facts.claim.is_none());
    let internal = new.filter_map(|host| Some((host.address(), host.spec.internal_address?)));
    internal.map(|(host, address)| note(host, format!("other hosts reach it at {address}"))).collect()
}

/// Says that Secrets which exist before encryption begins stay as they are.
fn encryption_note(context: &PlanContext<'_>) -> Option<Note> {
    let next = if context.observes_all_masters() {
        "a second plan then lets them encrypt"
    } else {
        "they encrypt when every master has it, so this waits for the masters that do not answer"
    };
    let text = format!(
        "every API server gets the key for Secrets first; {next}. Secrets that exist are encrypted when they are \
         written the next time: kubectl get secrets -A -o json | kubectl replace -f -"
    );
    (!encryption::encrypts(context)).then_some(Note { host: None, text })
}

/// Warns of checks that did not finish in time: no step is planned because of them.
fn unchecked_notes(context: &PlanContext<'_>) -> Vec<Note> {
    let mut messages: BTreeMap<String, Vec<HostAddress>> = BTreeMap::new();
    for host in &context.hosts {
        for text in &host.facts.unchecked {
            messages.entry(text.clone()).or_default().push(host.address());
        }
    }
    let mut notes: Vec<Note> = grouped_notes(messages).collect();
    if context.nodes_unknown() {
        let text =
            "the API server answers, but did not list the nodes in time: whether they are Ready is unknown";
        notes.push(Note { host: None, text: text.to_owned() });
    }
    notes
}
