//! From what should be to what is left to do: a step stands when its host's journal holds it with the
//! same digest, what it left is still there, and its certificates are young enough.

use std::collections::{BTreeMap, HashMap};

use kubeon_api::{HostAddress, HostName};
use kubeon_wire::{
    CertificateFact, Content, EtcdFact, Facts, JournalEntry, Op, ResultState, SecretRef, renewal_due,
};
use sha2::{Digest as _, Sha256};

use crate::context::PlanContext;
use crate::desired::step::DesiredStep;
use crate::output::{MissingNeed, Note, Plan, PlanError, PlannedHost, Step};
use crate::stages::side_by_side;
use crate::step_id::StepId;

/// How many pieces the work on all wishes, or on all hosts, is cut into.
const PIECES: usize = 8;

/// Looks up what a host has, once per host.
struct Seen<'a> {
    facts: &'a Facts,
    journal: HashMap<&'a str, &'a JournalEntry>,
}

/// What was found out about a wish.
struct Found {
    digest: String,
    /// Why it is needed; `None` where it stands.
    why: Option<String>,
    /// Where the steps before it lie, in the order in which the wish names them.
    needs: Vec<usize>,
}

/// Keeps the wishes that are needed, each with its reason.
///
/// # Errors
/// When a step names a step before it that does not exist: a fault of the planner. Without the error the order
/// between the two would be lost.
pub(crate) fn plan(
    site: &PlanContext<'_>,
    now: i64,
    wishes: Vec<DesiredStep>,
    notes: Vec<Note>,
) -> Result<Plan, PlanError> {
    let seen = look(site);
    let traced = trace(&wishes)
        .map_err(|missing| PlanError::Internal { cluster: site.spec().name.to_string(), missing })?;
    let found = find(&wishes, traced, &seen, now);
    let up_to_date = found.iter().filter(|found| found.why.is_none()).count();
    let needed: Vec<bool> = found.iter().map(|found| found.why.is_some()).collect();
    let steps = steps(wishes, found, &needed);
    let generation = site.generation + u64::from(!steps.is_empty());
    Ok(Plan {
        cluster: site.spec().name.clone(),
        version: site.spec().version,
        generation,
        hosts: planned_hosts(site, generation),
        steps,
        up_to_date,
        facts: seen.values().map(|seen| count(seen.facts)).sum(),
        notes,
    })
}

/// The hosts of the cluster and those that leave it, as far as they were seen.
fn seen_hosts<'s>(site: &'s PlanContext<'_>) -> impl Iterator<Item = (HostAddress, &'s Facts)> {
    let leaving =
        site.leaving.iter().filter_map(|host| Some((host.spec.address, *host.facts.as_ref().ok()?)));
    site.hosts.iter().map(|host| (host.address(), host.facts)).chain(leaving)
}

fn look<'s>(site: &'s PlanContext<'_>) -> HashMap<HostAddress, Seen<'s>> {
    let one = |(address, facts): (HostAddress, &'s Facts)| {
        let journal = facts.journal.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        (address, Seen { facts, journal })
    };
    let hosts: Vec<_> = seen_hosts(site).collect();
    let pieces = hosts.chunks(hosts.len().div_ceil(PIECES).max(1));
    side_by_side(pieces.map(|hosts| move || hosts.iter().copied().map(one).collect())).into_iter().collect()
}

pub(crate) fn planned_hosts(site: &PlanContext<'_>, generation: u64) -> BTreeMap<HostAddress, PlannedHost> {
    let planned =
        |name: &HostName, master| PlannedHost { name: name.clone(), fence: site.fence(master, generation) };
    let staying = site.hosts.iter().map(|host| (host.address(), planned(&host.name, host.master)));
    let leaving = site.leaving.iter().filter(|host| host.facts.is_ok());
    staying.chain(leaving.map(|host| (host.spec.address, planned(&host.name, false)))).collect()
}

fn count(facts: &Facts) -> usize {
    const BASE: usize = 20;
    let cluster = facts.cluster.as_ref().map_or(0, |cluster| {
        let members = if let EtcdFact::Members(members) = &cluster.etcd { members.len() } else { 0 };
        1 + cluster.nodes.as_ref().map_or(0, BTreeMap::len) + members
    });
    BASE + facts.journal.len() + facts.parts.len() + facts.certificates.len() + cluster
}

/// A wish's effect, and where what it names stands among those before it.
struct Traced {
    effect: Sha256,
    needs: Vec<usize>,
    reads: Vec<usize>,
}

/// Looks at every wish once. What a wish comes after stands before it in the list.
fn find(
    wishes: &[DesiredStep],
    traced: Vec<Traced>,
    seen: &HashMap<HostAddress, Seen<'_>>,
    now: i64,
) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::with_capacity(wishes.len());
    for (wish, Traced { effect, needs, reads }) in wishes.iter().zip(traced) {
        let read: Vec<&Found> = reads.into_iter().map(|place| &all[place]).collect();
        let digest = digest(effect, &read);
        let why = reason(wish, &digest, &seen[&wish.host], &read, now);
        all.push(Found { digest, why, needs });
    }
    all
}

/// What can be found out about each wish alone: most of the work of a large plan.
fn trace(wishes: &[DesiredStep]) -> Result<Vec<Traced>, Vec<MissingNeed>> {
    let places: HashMap<&str, usize> =
        wishes.iter().enumerate().map(|(place, wish)| (wish.id.as_str(), place)).collect();
    let size = wishes.len().div_ceil(PIECES).max(1);
    let traced = side_by_side(wishes.chunks(size).enumerate().map(|(piece, wishes)| {
        let places = &places;
        move || {
            let mut json = Vec::new();
            let one = |(at, wish)| trace_one(wish, piece * size + at, places, &mut json);
            wishes.iter().enumerate().map(one).collect()
        }
    }));
    let (mut good, mut missing) = (Vec::with_capacity(traced.len()), Vec::new());
    for one in traced {
        match one {
            Ok(one) => good.push(one),
            Err(fault) => missing.push(fault),
        }
    }
    if missing.is_empty() { Ok(good) } else { Err(missing) }
}

/// `json` is room to write in.
fn trace_one(
    wish: &DesiredStep,
    place: usize,
    places: &HashMap<&str, usize>,
    json: &mut Vec<u8>,
) -> Result<Traced, MissingNeed> {
    let before = |id: &StepId| {
        let found = places.get(id.as_str()).copied().filter(|found| *found < place);
        found.ok_or_else(|| MissingNeed { id: wish.id.clone(), need: id.clone() })
    };
    let needs: Vec<usize> = wish.needs.iter().map(before).collect::<Result<_, _>>()?;
    let reads = if wish.check && wish.reads.is_empty() {
        needs.clone()
    } else {
        wish.reads.iter().map(before).collect::<Result<_, _>>()?
    };
    Ok(Traced { effect: effect(&wish.op, json), needs, reads })
}

/// `json` is room to write in.
fn effect(op: &Op, json: &mut Vec<u8>) -> Sha256 {
    json.clear();
    // Serializing plain data into memory cannot fail; a part of the text would only mean one step too many.
    serde_json::to_writer(&mut *json, op).ok();
    Sha256::new_with_prefix(&json)
}

/// SHA-256 over a step's effect and over the digests of what it reads.
fn digest(mut effect: Sha256, read: &[&Found]) -> String {
    for found in read {
        effect.update(&found.digest);
    }
    hex::encode(effect.finalize())
}

/// `read` is what the wish reads; all that it comes after, where it is a check that names nothing closer.
fn reason(wish: &DesiredStep, digest: &str, seen: &Seen<'_>, read: &[&Found], now: i64) -> Option<String> {
    let rerun = read.iter().any(|found| found.why.is_some());
    if wish.unmet.is_some() {
        return wish.unmet.clone();
    }
    if wish.check && rerun {
        return Some(wish.because.to_owned());
    }
    if let Op::Part { digest: part, .. } = &wish.op {
        return (!seen.facts.parts.contains(part)).then(|| wish.because.to_owned());
    }
    let Some(entry) = seen.journal.get(wish.id.as_str()) else { return Some(wish.because.to_owned()) };
    if entry.digest != digest {
        return Some("what it should be has changed".to_owned());
    }
    if let ResultState::Drifted(what) = &entry.state {
        return Some(what.clone());
    }
    if rerun {
        return Some("what it reads is written again".to_owned());
    }
    aging(&wish.op, seen.facts, now)
}

/// A certificate that is past two thirds of its life.
fn aging(op: &Op, facts: &Facts, now: i64) -> Option<String> {
    let Op::Files { files } = op else { return None };
    let leaves =
        files.iter().filter(|file| matches!(file.content, Content::Secret(SecretRef::LeafCertificate(_))));
    leaves.filter_map(|file| in_use(facts, now).find(|seen| seen.path == file.path)).find_map(|seen| {
        (now >= renewal_due(seen.not_before, seen.not_after)).then(|| {
            let left = left(seen.not_after - now);
            format!("{} is past two thirds of its life ({left})", seen.path)
        })
    })
}

/// Certificates that something still needs. A kubelet asks for its own once, and again when that one expired.
fn in_use(facts: &Facts, now: i64) -> impl Iterator<Item = &CertificateFact> {
    let is_known = facts.kubelet.own.as_ref().is_some_and(|own| now < own.not_after);
    facts.certificates.iter().chain(facts.kubelet.bootstrap.as_ref().filter(|_| !is_known))
}

fn left(seconds: i64) -> String {
    const DAY: i64 = 86_400;
    match seconds {
        ..=0 => "expired".to_owned(),
        1..DAY => format!("{} min left", seconds / 60),
        _ => format!("{} days left", seconds / DAY),
    }
}

/// The steps that are needed, in order. What is not needed is let go of by as many threads.
fn steps(wishes: Vec<DesiredStep>, found: Vec<Found>, needed: &[bool]) -> Vec<Step> {
    let size = wishes.len().div_ceil(PIECES).max(1);
    let mut rest = wishes.into_iter().zip(found);
    let pieces = std::iter::from_fn(move || {
        let piece: Vec<(DesiredStep, Found)> = rest.by_ref().take(size).collect();
        (!piece.is_empty()).then_some(piece)
    });
    side_by_side(pieces.map(|piece| {
        move || piece.into_iter().filter_map(|(wish, found)| step(wish, found, needed)).collect()
    }))
}

fn step(wish: DesiredStep, found: Found, needed: &[bool]) -> Option<Step> {
    let why = found.why?;
    let mut needs: Vec<StepId> = wish
        .needs
        .into_iter()
        .zip(found.needs)
        .filter_map(|(id, place)| needed[place].then_some(id))
        .collect();
    needs.sort_unstable();
    needs.dedup();
    Some(Step {
        stage: wish.id.stage(),
        id: wish.id,
        host: wish.host,
        title: wish.title,
        why,
        needs,
        digest: found.digest,
        timeout_seconds: wish.timeout_seconds,
        tries: wish.tries,
        journal: wish.journal,
        destructive: wish.destructive,
        op: wish.op,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(id: &str) -> DesiredStep {
        let op = Op::Await { checks: Vec::new() };
        DesiredStep::on("10.0.0.1".parse().unwrap(), id.parse().unwrap(), op)
    }

    #[test]
    fn a_need_that_resolves_to_nothing_is_an_error() {
        let id = |text: &str| text.parse::<StepId>().unwrap();
        let good = [desired("join/keys@h1"), desired("join/kubelet@h1").reads([id("join/keys@h1")])];
        assert_eq!(trace(&good).ok().unwrap()[1].needs, [0]);
        let misspelt = [desired("join/keys@h1"), desired("join/kubelet@h1").needs([id("join/key@h1")])];
        let fault = MissingNeed { id: id("join/kubelet@h1"), need: id("join/key@h1") };
        assert_eq!(trace(&misspelt).err().unwrap(), [fault]);
        let late = [desired("join/kubelet@h1").reads([id("join/keys@h1")]), desired("join/keys@h1")];
        assert_eq!(trace(&late).err().unwrap()[0].need, "join/keys@h1", "it must come before");
    }
}
