//! Selects the desired steps that are needed. A step is up to date if it is recorded with the same digest (in
//! the journal of its host, or in the cluster), its result is still there, and the host renewed its certificates
//! in time.

use std::collections::{BTreeMap, HashMap};

use kubeon_api::{ClusterKeys, HostAddress, HostName};
use kubeon_render::paths::KUBELET_BOOTSTRAP;
use kubeon_wire::{
    CertificateFact, Content, EtcdFact, Facts, JournalEntry, Op, ResultState, SecretRef, renewal_due,
    renewal_overdue,
};
use sha2::{Digest as _, Sha256};

use crate::context::{ObservedHost, PlanContext, effect_with};
use crate::desired::step::DesiredStep;
use crate::desired::{control, encryption, restore};
use crate::membership;
use crate::output::{MissingNeed, Note, Plan, PlanError, PlannedHost, Step, WaitingStep};
use crate::rolling;
use crate::stages::{HOSTS_WORTH_THREADS, in_parallel};
use crate::step_id::StepId;
use crate::takeover::MADE_BY_KUBEADM;

/// Number of parts into which the work on all steps or hosts is divided. Each part runs on its own thread.
const THREADS: usize = 8;

/// Starting a thread takes longer than working on fewer items.
const SMALLEST_CHUNK: usize = 1000;

/// How many of `items` each thread works on.
fn chunk_size(items: usize) -> usize {
    items.div_ceil(THREADS).max(SMALLEST_CHUNK)
}

/// The facts of a host, with its journal by the texts of the step ids.
struct HostState<'a> {
    facts: &'a Facts,
    journal: HashMap<&'a str, &'a JournalEntry>,
}

/// The recorded steps of all hosts and of the cluster.
struct Records<'a> {
    hosts: HashMap<HostAddress, HostState<'a>>,
    cluster: ClusterRecords<'a>,
}

/// The steps that the cluster records, by the texts of their ids.
enum ClusterRecords<'a> {
    Known(HashMap<&'a str, &'a JournalEntry>),
    /// The control plane exists, but no API server reported them in time.
    Unknown,
}

impl<'a> ClusterRecords<'a> {
    fn of(context: &PlanContext<'a>) -> Self {
        let entries = match context.cluster_steps() {
            Some(entries) => entries,
            None if control_plane_is_silent(context) => return Self::Unknown,
            None => &[],
        };
        Self::Known(entries.iter().map(|entry| (entry.id.as_str(), entry)).collect())
    }
}

/// Whether the control plane was started before and no API server reports its nodes: nothing is known of what the
/// cluster records.
fn control_plane_is_silent(context: &PlanContext<'_>) -> bool {
    let started = |host: &ObservedHost<'_>| host.has_executed(&control::apiserver_id(host));
    let mut reports = context.masters().filter_map(|host| host.facts.cluster.as_ref());
    context.masters().any(started) && !reports.any(|report| report.api_ready && report.nodes.is_some())
}

/// The record of a step.
enum Record<'a> {
    Found(&'a JournalEntry),
    Missing,
    Unknown,
}

impl Records<'_> {
    fn of(&self, step: &DesiredStep, id: &str) -> Record<'_> {
        let found = match &self.cluster {
            _ if step.record_in.is_none() => self.hosts[&step.host].journal.get(id),
            ClusterRecords::Known(entries) => entries.get(id),
            ClusterRecords::Unknown => return Record::Unknown,
        };
        found.map_or(Record::Missing, |entry| Record::Found(entry))
    }
}

/// The result of comparing a desired step with the state of its host.
struct Evaluation {
    digest: String,
    /// Why the step is needed; `None` if it is up to date.
    why: Option<String>,
    /// The indexes of the steps in its `needs`, in the same order.
    needs: Vec<usize>,
}

/// Returns a plan of the desired steps that are needed, each with its reason.
///
/// # Errors
/// When a step needs a step that does not exist before it: a bug of the planner. Without the error the order
/// between the two would be lost.
pub(crate) fn plan(
    context: &PlanContext<'_>,
    now: i64,
    desired: Vec<DesiredStep>,
    notes: Vec<Note>,
) -> Result<Plan, PlanError> {
    let records = Records { hosts: host_states(context), cluster: ClusterRecords::of(context) };
    let resolved = resolve(&desired, context.keys())
        .map_err(|missing| PlanError::Internal { cluster: context.spec().name.to_string(), missing })?;
    let mut evaluations = evaluate(&desired, resolved, &records, now);
    let up_to_date = evaluations.iter().filter(|evaluation| evaluation.why.is_none()).count();
    let waiting = take_waiting(&desired, &mut evaluations);
    let needed: Vec<bool> = evaluations.iter().map(|evaluation| evaluation.why.is_some()).collect();
    let (steps, rolling) = rolling::order(context, needed_steps(desired, evaluations, &needed));
    let generation = if steps.is_empty() { context.generation } else { context.next_generation };
    Ok(Plan {
        cluster: context.spec().name.clone(),
        version: context.spec().version,
        nodes_at: context.intent.nodes_at,
        generation,
        hosts: planned_hosts(context, generation),
        continues: context.resets_returning_hosts()
            // The nodes of the snapshot are known when an API server has started.
            || restore::begins(context) && !steps.is_empty()
            // What the cluster records, such as drained nodes, is known afterwards.
            || matches!(records.cluster, ClusterRecords::Unknown) && !steps.is_empty()
            || context.observes_all_masters() && !encryption::encrypts(context),
        steps,
        up_to_date,
        facts: records.hosts.values().map(|host| fact_count(host.facts)).sum(),
        awaits_network: context.awaits_network,
        notes,
        unreachable: context.unreachable.clone(),
        waiting,
        rolling,
        quorum: membership::degraded_quorum(context),
    })
}

/// Takes the needed steps that must wait out of the plan. Steps after them do not wait for them.
fn take_waiting(desired: &[DesiredStep], evaluations: &mut [Evaluation]) -> Vec<WaitingStep> {
    let held = desired.iter().zip(evaluations).filter_map(|(step, evaluation)| {
        let reason = step.waits.as_ref()?;
        Some(WaitingStep {
            id: step.id.clone(),
            host: step.host,
            title: step.title.clone(),
            why: evaluation.why.take()?,
            hosts: reason.hosts.clone(),
            risk: reason.risk.clone(),
        })
    });
    held.collect()
}

/// The observed hosts of the cluster, then the observed leaving workers.
fn observed_hosts<'s>(context: &'s PlanContext<'_>) -> impl Iterator<Item = (HostAddress, &'s Facts)> {
    let leaving =
        context.leaving.iter().filter_map(|host| Some((host.spec.address, *host.facts.as_ref().ok()?)));
    context.all_hosts().map(|host| (host.address(), host.facts)).chain(leaving)
}

fn host_states<'s>(context: &'s PlanContext<'_>) -> HashMap<HostAddress, HostState<'s>> {
    let state = |(address, facts): (HostAddress, &'s Facts)| {
        let journal = facts.journal.iter().map(|entry| (entry.id.as_str(), entry)).collect();
        (address, HostState { facts, journal })
    };
    let hosts: Vec<_> = observed_hosts(context).collect();
    let chunks = hosts.chunks(hosts.len().div_ceil(THREADS).max(HOSTS_WORTH_THREADS));
    in_parallel(chunks.map(|hosts| move || hosts.iter().copied().map(state).collect())).into_iter().collect()
}

pub(crate) fn planned_hosts(
    context: &PlanContext<'_>,
    generation: u64,
) -> BTreeMap<HostAddress, PlannedHost> {
    let planned =
        |name: &HostName, role| PlannedHost { name: name.clone(), fence: context.fence(role, generation) };
    let staying = context.all_hosts().map(|host| (host.address(), planned(&host.name, host.role.clone())));
    let leaving = context.leaving.iter().filter(|host| host.facts.is_ok());
    staying.chain(leaving.map(|host| (host.spec.address, planned(&host.name, host.role.clone())))).collect()
}

fn fact_count(facts: &Facts) -> usize {
    /// The number of scalar facts of a host.
    const BASE: usize = 20;
    let cluster = facts.cluster.as_ref().map_or(0, |cluster| {
        let members = if let EtcdFact::Members(members) = &cluster.etcd { members.len() } else { 0 };
        1 + cluster.nodes.as_ref().map_or(0, BTreeMap::len) + members
    });
    BASE + facts.journal.len() + facts.parts.len() + facts.certificates.len() + cluster
}

/// The hash of a step's effect, and the indexes of the steps that it needs and reads.
struct Resolved {
    effect: Sha256,
    needs: Vec<usize>,
    reads: Vec<usize>,
    stopped_by: Vec<usize>,
}

/// Evaluates every step in order. A step comes after every step that it needs or reads.
fn evaluate(
    desired: &[DesiredStep],
    resolved: Vec<Resolved>,
    records: &Records<'_>,
    now: i64,
) -> Vec<Evaluation> {
    let mut all: Vec<Evaluation> = Vec::with_capacity(desired.len());
    let mut id = String::new();
    for (step, Resolved { effect, needs, reads, stopped_by }) in desired.iter().zip(resolved) {
        let read: Vec<&Evaluation> = reads.into_iter().map(|index| &all[index]).collect();
        let digest = digest(effect, &read);
        step.id.write_to(&mut id);
        let why = reason(step, &id, &digest, records, &read, now);
        let stops = |index: &usize| all[*index].why.is_some() && desired[*index].waits.is_none();
        let stopped = stopped_by.iter().find(|index| stops(index));
        let why = why.or_else(|| Some(format!("it is stopped before: {}", desired[*stopped?].title)));
        all.push(Evaluation { digest, why, needs });
    }
    all
}

/// Hashes each step and resolves the step ids that it names: most of the work of a large plan.
fn resolve(desired: &[DesiredStep], keys: ClusterKeys) -> Result<Vec<Resolved>, Vec<MissingNeed>> {
    let indexes: HashMap<&StepId, usize> =
        desired.iter().enumerate().map(|(index, step)| (&step.id, index)).collect();
    let size = chunk_size(desired.len());
    let results = in_parallel(desired.chunks(size).enumerate().map(|(chunk, steps)| {
        let indexes = &indexes;
        move || {
            let mut json = Vec::new();
            let resolve =
                |(offset, step)| resolve_step(step, chunk * size + offset, indexes, keys, &mut json);
            steps.iter().enumerate().map(resolve).collect()
        }
    }));
    let (mut resolved, mut missing) = (Vec::with_capacity(results.len()), Vec::new());
    for result in results {
        match result {
            Ok(step) => resolved.push(step),
            Err(need) => missing.push(*need),
        }
    }
    if missing.is_empty() { Ok(resolved) } else { Err(missing) }
}

/// `json` is a buffer that is reused for every step.
fn resolve_step(
    step: &DesiredStep,
    index: usize,
    indexes: &HashMap<&StepId, usize>,
    keys: ClusterKeys,
    json: &mut Vec<u8>,
) -> Result<Resolved, Box<MissingNeed>> {
    let before = |id: &StepId| {
        let found = indexes.get(id).copied().filter(|found| *found < index);
        found.ok_or_else(|| Box::new(MissingNeed { id: step.id.clone(), need: id.clone() }))
    };
    let needs: Vec<usize> = step.needs.iter().map(before).collect::<Result<_, _>>()?;
    let reads = if step.check && step.reads.is_empty() {
        needs.clone()
    } else {
        step.reads.iter().map(before).collect::<Result<_, _>>()?
    };
    let stopped_by = step.stopped_by.iter().map(before).collect::<Result<_, _>>()?;
    Ok(Resolved { effect: effect_with(&step.op, keys, json), needs, reads, stopped_by })
}

/// SHA-256 over the effect of a step and over the digests of the steps that it reads.
fn digest(mut effect: Sha256, read: &[&Evaluation]) -> String {
    for evaluation in read {
        effect.update(&evaluation.digest);
    }
    hex::encode(effect.finalize())
}

/// Why the step is needed; `None` if it is up to date. `id` is the text of its id. `read` holds the steps
/// that it reads, or, for a check that reads no step, the steps that it needs.
fn reason(
    step: &DesiredStep,
    id: &str,
    digest: &str,
    records: &Records<'_>,
    read: &[&Evaluation],
    now: i64,
) -> Option<String> {
    let facts = records.hosts[&step.host].facts;
    let rerun = read.iter().any(|evaluation| evaluation.why.is_some());
    if step.unmet.is_some() {
        return step.unmet.clone();
    }
    if step.check && rerun {
        return Some(step.because.to_owned());
    }
    if let Op::Part { digest: part, .. } = &step.op {
        return (!facts.parts.contains(part)).then(|| step.because.to_owned());
    }
    let entry = match records.of(step, id) {
        Record::Found(entry) => entry,
        Record::Missing => return Some(step.because.to_owned()),
        Record::Unknown => return rerun.then(|| step.because.to_owned()),
    };
    if entry.digest == MADE_BY_KUBEADM {
        return Some("kubeadm made it".to_owned());
    }
    if entry.digest != digest {
        return Some("its desired content has changed".to_owned());
    }
    if let ResultState::Drifted(drift) | ResultState::Stopped(drift) = &entry.state {
        return Some(drift.clone());
    }
    if rerun {
        return Some("a step that it reads runs again".to_owned());
    }
    renewal(&step.op, facts, now)
}

/// The reason why a certificate of the step is due for renewal.
fn renewal(op: &Op, facts: &Facts, now: i64) -> Option<String> {
    let Op::Files { files } = op else { return None };
    let leaves =
        files.iter().filter(|file| matches!(file.content, Content::Secret(SecretRef::LeafCertificate(_))));
    leaves.filter_map(|file| in_use(facts, now).find(|known| known.path == file.path)).find_map(
        |certificate| {
            let (begin, end) = (certificate.not_before, certificate.not_after);
            // The host renews its leaves after two thirds of their life. The bootstrap certificate has one hour.
            let (time, share) = if certificate.path == KUBELET_BOOTSTRAP {
                (renewal_due(begin, end), "two thirds")
            } else {
                (renewal_overdue(begin, end), "five sixths")
            };
            (now >= time).then(|| {
                format!("{} is past {share} of its life ({})", certificate.path, time_left(end - now))
            })
        },
    )
}

/// Certificates that are still needed. The kubelet needs its bootstrap certificate only while it has no valid
/// certificate of its own.
fn in_use(facts: &Facts, now: i64) -> impl Iterator<Item = &CertificateFact> {
    let has_own = facts.kubelet.own.as_ref().is_some_and(|own| now < own.not_after);
    facts.certificates.iter().chain(facts.kubelet.bootstrap.as_ref().filter(|_| !has_own))
}

fn time_left(seconds: i64) -> String {
    const DAY: i64 = 86_400;
    match seconds {
        ..=0 => "expired".to_owned(),
        1..DAY => format!("{} min left", seconds / 60),
        _ => format!("{} days left", seconds / DAY),
    }
}

/// The steps that are needed, in order. Several threads free the memory of the other steps.
fn needed_steps(desired: Vec<DesiredStep>, evaluations: Vec<Evaluation>, needed: &[bool]) -> Vec<Step> {
    let size = chunk_size(desired.len());
    let mut rest = desired.into_iter().zip(evaluations);
    let chunks = std::iter::from_fn(move || {
        let chunk: Vec<(DesiredStep, Evaluation)> = rest.by_ref().take(size).collect();
        (!chunk.is_empty()).then_some(chunk)
    });
    in_parallel(chunks.map(|chunk| {
        move || {
            chunk.into_iter().filter_map(|(step, evaluation)| needed_step(step, evaluation, needed)).collect()
        }
    }))
}

fn needed_step(step: DesiredStep, evaluation: Evaluation, needed: &[bool]) -> Option<Step> {
    let why = evaluation.why?;
    let mut needs: Vec<StepId> = step
        .needs
        .into_iter()
        .zip(evaluation.needs)
        .filter_map(|(id, index)| needed[index].then_some(id))
        .collect();
    needs.sort_unstable();
    needs.dedup();
    Some(Step {
        stage: step.id.stage(),
        id: step.id,
        host: step.host,
        title: step.title,
        why,
        needs,
        digest: evaluation.digest,
        timeout_seconds: step.timeout_seconds,
        tries: step.tries,
        journal: step.journal,
        record_in: step.record_in,
        destructive: step.destructive,
        op: step.op,
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
    fn a_need_for_a_missing_step_is_an_error() {
        let id = |text: &str| text.parse::<StepId>().unwrap();
        let good = [desired("join/keys@h1"), desired("join/kubelet@h1").reads([id("join/keys@h1")])];
        assert_eq!(resolve(&good, ClusterKeys::default()).ok().unwrap()[1].needs, [0]);
        let misspelt = [desired("join/keys@h1"), desired("join/kubelet@h1").needs([id("join/key@h1")])];
        let missing = MissingNeed { id: id("join/kubelet@h1"), need: id("join/key@h1") };
        assert_eq!(resolve(&misspelt, ClusterKeys::default()).err().unwrap(), [missing]);
        let late = [desired("join/kubelet@h1").reads([id("join/keys@h1")]), desired("join/keys@h1")];
        assert_eq!(
            resolve(&late, ClusterKeys::default()).err().unwrap()[0].need,
            id("join/keys@h1"),
            "a need must come before the step"
        );
    }
}
