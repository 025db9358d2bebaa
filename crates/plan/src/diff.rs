//! From what should be to what is left to do: a step stands when its host's journal holds it with the
//! same digest, what it left is still there, and its certificates are young enough.

use std::collections::{BTreeMap, HashMap, HashSet};

use kubeon_api::HostAddress;
use kubeon_wire::{Content, Facts, JournalEntry, Op, SecretRef, Standing};
use sha2::{Digest as _, Sha256};

use crate::desired::Wish;
use crate::output::{Note, Plan, PlannedHost, Step};
use crate::site::Site;

/// Looks up what a host has, once per host.
struct Seen<'a> {
    facts: &'a Facts,
    journal: HashMap<&'a str, &'a JournalEntry>,
}

/// Keeps the wishes that are needed, each with its reason.
pub(crate) fn plan(site: &Site<'_>, now: i64, wishes: Vec<Wish>, notes: Vec<Note>) -> Plan {
    let seen: BTreeMap<HostAddress, Seen<'_>> =
        site.hosts.iter().map(|host| (host.address(), look(host.facts))).collect();
    let mut digests: HashMap<String, String> = HashMap::with_capacity(wishes.len());
    let mut needed: HashSet<String> = HashSet::new();
    let (mut steps, mut standing) = (Vec::new(), 0);
    for wish in wishes {
        let digest = digest(&wish, &digests);
        digests.insert(wish.id.clone(), digest.clone());
        match reason(&wish, &digest, &seen[&wish.host], &needed, now) {
            Some(why) => {
                needed.insert(wish.id.clone());
                steps.push(step(wish, digest, why, &needed));
            }
            None => standing += 1,
        }
    }
    let generation = site.generation + u64::from(!steps.is_empty());
    Plan {
        cluster: site.spec().name.clone(),
        version: site.spec().version,
        generation,
        hosts: planned_hosts(site, generation),
        steps,
        standing,
        facts: seen.values().map(|seen| count(seen.facts)).sum(),
        notes,
    }
}

fn look(facts: &Facts) -> Seen<'_> {
    Seen { facts, journal: facts.journal.iter().map(|entry| (entry.id.as_str(), entry)).collect() }
}

pub(crate) fn planned_hosts(site: &Site<'_>, generation: u64) -> BTreeMap<HostAddress, PlannedHost> {
    site.hosts
        .iter()
        .map(|host| {
            (host.address(), PlannedHost { name: host.name.clone(), fence: site.fence(host, generation) })
        })
        .collect()
}

fn count(facts: &Facts) -> usize {
    const BASE: usize = 20;
    let cluster =
        facts.cluster.as_ref().map_or(0, |cluster| cluster.nodes.len() + cluster.etcd_members.len() + 1);
    BASE + facts.journal.len() + facts.parts.len() + facts.certificates.len() + cluster
}

/// SHA-256 over a step's effect and over the digests of what it reads.
fn digest(wish: &Wish, known: &HashMap<String, String>) -> String {
    let mut hash = Sha256::new();
    // Serializing plain data into memory cannot fail; an empty text would only mean one step too many.
    hash.update(serde_json::to_vec(&wish.op).unwrap_or_default());
    for id in if wish.check { &wish.needs } else { &wish.reads } {
        hash.update(known.get(id).map_or("", String::as_str));
    }
    hex::encode(hash.finalize())
}

fn reason(wish: &Wish, digest: &str, seen: &Seen<'_>, needed: &HashSet<String>, now: i64) -> Option<String> {
    if wish.unmet.is_some() {
        return wish.unmet.clone();
    }
    if wish.check && wish.needs.iter().any(|id| needed.contains(id)) {
        return Some(wish.because.to_owned());
    }
    if let Op::Part { digest: part, .. } = &wish.op {
        return (!seen.facts.parts.contains(part)).then(|| wish.because.to_owned());
    }
    let Some(entry) = seen.journal.get(wish.id.as_str()) else { return Some(wish.because.to_owned()) };
    if entry.digest != digest {
        return Some("what it should be has changed".to_owned());
    }
    if let Standing::Drifted(what) = &entry.standing {
        return Some(what.clone());
    }
    if wish.reads.iter().any(|id| needed.contains(id)) {
        return Some("what it reads is written again".to_owned());
    }
    aging(&wish.op, seen.facts, now)
}

/// A certificate that is past two thirds of its life.
fn aging(op: &Op, facts: &Facts, now: i64) -> Option<String> {
    let Op::Files { files } = op else { return None };
    let leaves =
        files.iter().filter(|file| matches!(file.content, Content::Secret(SecretRef::LeafCertificate(_))));
    leaves.filter_map(|file| facts.certificates.iter().find(|seen| seen.path == file.path)).find_map(|seen| {
        let due = seen.not_before + (seen.not_after - seen.not_before) / 3 * 2;
        let days = (seen.not_after - now).div_euclid(86_400);
        (now >= due).then(|| format!("{} is past two thirds of its life ({days} days left)", seen.path))
    })
}

fn step(wish: Wish, digest: String, why: String, needed: &HashSet<String>) -> Step {
    let Wish {
        id,
        stage,
        host,
        title,
        because: _,
        needs,
        reads: _,
        timeout_seconds,
        tries,
        check: _,
        unmet: _,
        op,
    } = wish;
    let mut needs: Vec<String> = needs.into_iter().filter(|need| needed.contains(need)).collect();
    needs.sort_unstable();
    needs.dedup();
    Step {
        id,
        stage: stage.to_owned(),
        host,
        title,
        why,
        needs,
        digest,
        timeout_seconds,
        tries,
        journal: true,
        destructive: false,
        op,
    }
}
