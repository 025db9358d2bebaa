//! One turn of a lane: ask what is to be done, do it, ask again, until nothing is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubeon_api::ClusterOperation;
use kubeon_link_kube::{Again, LinkError, Verb};
use kubeon_operations::business::refused;
use kubeon_operations::{
    Change, Data, Kind, Lane, Plan, Snapshot, Subject, Target, Trouble, Turn, Write, turn,
};
use tokio::time::Instant;

use crate::carry::{self, Failure};
use crate::parting::is_lost;
use crate::place;
use crate::queue::{Class, Outcome, Work};
use crate::refusals::Refused;
use crate::shared::{LOG_BYTES, Shared};
use crate::tempo::Tempo;
use crate::world::Room;

/// Plans of one turn: more is a turn that does not come to an end, and it comes back later.
const MOST_PLANS: usize = 32;
/// After what the API server refused for now.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How long a log that cannot be read is tried, from the end of its pod: its node may never answer again.
const LOG_TRIED: SignedDuration = SignedDuration::from_secs(600);

/// Works on lanes that are wanted at least as soon as `least`, until it is dropped.
pub(crate) async fn work(shared: Arc<Shared>, least: Class) {
    loop {
        let work = shared.queue.next(least).await;
        let begun = Instant::now();
        let outcome = one(&shared, &work).await;
        shared.metrics.turn(begun.elapsed(), outcome != Outcome::Failed);
        shared.queue.done(&work.lane, outcome);
    }
}

/// One turn of a lane.
async fn one(shared: &Shared, work: &Work) -> Outcome {
    let lane = &work.lane;
    let mut data = BTreeMap::new();
    let mut trouble = BTreeMap::new();
    let mut pause = None;
    for _ in 0..MOST_PLANS {
        let room = shared.world.room(lane);
        let (operations, subject) = (room.operations.clone(), room.subject.clone());
        match plan(shared, lane, room, &data, &trouble) {
            Plan::Read(targets) => {
                let tempo = Tempo::of(work);
                let reads = targets.iter().map(|target| read(shared, target, &tempo));
                for (target, answer) in targets.iter().zip(futures::future::join_all(reads).await) {
                    match answer {
                        Ok(answer) => data.insert(target.clone(), answer),
                        Err(failure) => return stopped(lane, &failure),
                    };
                }
            }
            Plan::Do(turn) if turn.is_done() => {
                shared.refusals.over(lane);
                let wake = turn.wake.map(until);
                return Outcome::Done([wake, pause].into_iter().flatten().min());
            }
            Plan::Do(mut turn) => {
                let yields = yields(&mut turn, work.class);
                let writes: Vec<_> = turn.stages.iter().flatten().map(|write| write.why.as_str()).collect();
                tracing::debug!(%lane, ?writes, "writes");
                match carried(shared, work, &mut turn, &operations).await {
                    Ok(()) => {
                        if yields && pause.is_none() {
                            return Outcome::Rest;
                        }
                    }
                    Err(failure @ (Failure::Link(_) | Failure::Overtaken)) => return stopped(lane, &failure),
                    Err(Failure::Again) => {}
                    Err(Failure::Trouble { operation, what, trouble: said }) => {
                        tracing::warn!(%lane, operation, said = said.text, "refused");
                        if !said.lasting {
                            pause = Some(Instant::now() + REFUSED_PAUSE);
                        }
                        let Some(operation) = operation else {
                            tell_refused(shared, lane, &subject, &what, &said.text).await;
                            return Outcome::Done(Some(Instant::now() + REFUSED_PAUSE));
                        };
                        trouble.insert(operation, said);
                    }
                }
                data.clear();
            }
        }
    }
    tracing::warn!(%lane, "the lane does not come to rest; it is looked at again later");
    Outcome::Failed
}

/// Tells people of a write that belongs to no operation, by an event about the lane's object and in its status.
async fn tell_refused(
    shared: &Shared,
    lane: &Lane,
    subject: &Subject,
    (verb, target): &(&'static str, Target),
    said: &str,
) {
    let Some((object, uid)) = subject.target() else { return };
    let place = [target.namespace.as_str(), &target.name].join("/");
    let text = format!("cannot {verb} {} {}: {said}", target.kind.as_str(), place.trim_start_matches('/'));
    shared.tell_refused(lane, &Refused { about: place::reference(&object, &uid), text: text.clone() });
    let status = refused(subject, &text, Timestamp::now()).map(|write| (write, Vec::new()));
    let status = status.into_iter().collect();
    if carry::carry(shared, status, &Tempo::calm()).await.is_err() {
        tracing::debug!(%lane, "the status is not written either");
    }
}

/// Carries the writes of a turn out, stage after stage, and tells people and its trace.
async fn carried(
    shared: &Shared,
    work: &Work,
    turn: &mut Turn,
    operations: &[Arc<ClusterOperation>],
) -> Result<(), Failure> {
    let span = shared.spans.as_ref().and_then(|spans| Some((spans, spans.begin(turn, operations)?)));
    let answer = stages(shared, turn, &Tempo::of(work)).await;
    if let Some((spans, begun)) = span {
        spans.ended(&work.lane, begun, answer.as_ref().err().map(Failure::text));
    }
    answer
}

async fn stages(shared: &Shared, turn: &mut Turn, tempo: &Tempo) -> Result<(), Failure> {
    for at in 0..turn.stages.len() {
        carry::carry(shared, turn.take(at), tempo).await?;
    }
    debug_assert!(turn.notices.is_empty(), "these belong to no write: {:?}", turn.notices);
    Ok(())
}

/// Whether other lanes go on after these writes. Of a lane that hurries, as soon as the end is told that somebody waits
/// for: what would come after it is planned again, with the rest. One whose Job is made has time to tell of it.
fn yields(turn: &mut Turn, class: Class) -> bool {
    match class {
        Class::Urgent => {
            turn.cut();
            turn.stages.iter().flatten().any(tells_an_end)
        }
        Class::Fresh => turn.stages.iter().flatten().any(Write::makes_a_job),
        Class::Rest => false,
    }
}

/// Whether it is the status of an operation that ended.
fn tells_an_end(write: &Write) -> bool {
    let Change::Status(patch) = &write.change else { return false };
    let ended =
        patch["status"]["status"].as_str().is_some_and(|word| ["Succeeded", "Failed"].contains(&word));
    ended && write.target.kind == Kind::Operation
}

fn plan(
    shared: &Shared,
    lane: &Lane,
    room: Room,
    data: &BTreeMap<Target, Data>,
    trouble: &BTreeMap<String, Trouble>,
) -> Plan {
    let settings = shared.settings();
    turn(&Snapshot {
        lane,
        settings: &settings,
        now: Timestamp::now(),
        subject: room.subject,
        operations: room.operations,
        jobs: room.jobs,
        pods: room.pods,
        objects: &shared.world,
        data,
        trouble,
    })
}

fn until(when: Timestamp) -> Instant {
    let left = Timestamp::now().duration_until(when);
    Instant::now() + Duration::try_from(left).unwrap_or_default() + Duration::from_millis(20)
}

/// How a turn ended that could not go on. Only what the API server did is a failure: a turn that was overtaken, or whose
/// world changed, is made again as if it had never begun.
fn stopped(lane: &Lane, failure: &Failure) -> Outcome {
    let Failure::Link(error) = failure else { return Outcome::Rest };
    tracing::warn!(%lane, error = %error, category = error.category(), "the turn failed; it is made again");
    Outcome::Failed
}

async fn read(shared: &Shared, target: &Target, tempo: &Tempo) -> Result<Data, Failure> {
    // A kubelet's answer takes long: it has no place in the line.
    if target.kind == Kind::Log {
        return read_log(shared, target).await.map_err(Failure::Link);
    }
    let leave = tempo.leave(&shared.hands).await.ok_or(Failure::Overtaken)?;
    shared.metrics.request("get", target.kind.as_str(), "sent");
    let verb = shared.world.version(target).map_or(Verb::Get, Verb::GetAsOf);
    match shared.hands.send_now(leave, place::path(target), &verb).await {
        Ok(value) => Ok(carry::data(shared, target, value)),
        Err(error) if error.is_absent() => Ok(Data::Absent),
        Err(error) if error.again() == Again::WhenChanged => Ok(Data::Denied(error.said())),
        Err(error) => Err(Failure::Link(error)),
    }
}

async fn read_log(shared: &Shared, target: &Target) -> Result<Data, LinkError> {
    shared.metrics.request("get", target.kind.as_str(), "sent");
    if let Some(text) = shared.parting.heard(target).await {
        return Ok(Data::Log(text));
    }
    match shared.hands.log(&target.namespace, &target.name, LOG_BYTES).await {
        Ok(text) if is_lost(&text) => Ok(Data::Absent),
        Ok(text) => Ok(Data::Log(text)),
        Err(error) if error.is_absent() => Ok(Data::Absent),
        Err(error) if matches!(error.again(), Again::Never | Again::WhenChanged) => {
            Ok(Data::Denied(error.said()))
        }
        Err(error) if given_up(shared, target) => Ok(Data::Denied(error.said())),
        Err(error) => Err(error),
    }
}

/// Whether a log was tried for long enough.
fn given_up(shared: &Shared, pod: &Target) -> bool {
    let due = shared.world.pod_ended(pod).and_then(|ended| ended.saturating_add(LOG_TRIED).ok());
    due.is_some_and(|due| due <= Timestamp::now())
}
