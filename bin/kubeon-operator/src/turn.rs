//! One turn of a lane: ask what is to be done, do it, ask again, until nothing is left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::ClusterOperation;
use kubeon_link_kube::{Again, Hands, Herald, LinkError, Pace, Verb, Word};
use kubeon_operations::settings::{LIMIT, limit};
use kubeon_operations::{
    Change, Data, Kind, Lane, Notice, Plan, Settings, Snapshot, Target, Trouble, Turn, Write, names, turn,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::carry::{self, Failure};
use crate::metrics::Metrics;
use crate::queue::{Class, Outcome, Queue};
use crate::spans::Spans;
use crate::watches::Listed;
use crate::world::{Room, World};

/// Plans of one turn: more is a turn that does not come to an end, and it comes back later.
const MOST_PLANS: usize = 32;
/// Bytes of a log that are kept.
const LOG_BYTES: usize = 512 * 1024;
/// After what the API server refused for now.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// What all turns share.
pub(crate) struct Shared {
    pub world: World,
    pub queue: Queue,
    pub hands: Hands,
    pub herald: Herald,
    pub metrics: Metrics,
    pub listed: Listed,
    settings: RwLock<Arc<Settings>>,
    pub reconfigure: Notify,
    told: Mutex<BTreeMap<String, i64>>,
    pub spans: Option<Spans>,
}

impl Shared {
    pub fn new(settings: Settings, hands: Hands, herald: Herald, spans: Option<Spans>) -> Self {
        Self {
            world: World::new(settings.namespace.clone()),
            queue: Queue::default(),
            hands,
            herald,
            metrics: Metrics::new(),
            listed: Listed::default(),
            settings: RwLock::new(Arc::new(settings)),
            reconfigure: Notify::new(),
            told: Mutex::default(),
            spans,
        }
    }

    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn wake(&self, lanes: Vec<Lane>) {
        for lane in lanes {
            self.queue.wake(&lane, Class::Fresh);
        }
    }

    /// Wakes lanes that somebody waits for the end of.
    pub fn hurry(&self, lanes: Vec<Lane>) {
        for lane in lanes {
            self.queue.wake(&lane, Class::Urgent);
        }
    }

    /// A ConfigMap or Secret is there.
    pub fn seen(&self, target: Target, meta: &ObjectMeta) {
        self.configured(&target);
        self.wake(self.world.apply_meta(target, meta));
    }

    /// The operator's own ConfigMap came, changed or went.
    pub fn configured(&self, target: &Target) {
        if target.kind == Kind::ConfigMap
            && target.name == names::CONFIG
            && target.namespace == self.settings().namespace
        {
            self.reconfigure.notify_one();
        }
    }

    pub fn watch_failed(&self, kind: &str, error: &dyn std::error::Error) {
        self.metrics.watch_failed(kind);
        tracing::warn!(kind, error = %error, "a watch was interrupted; it begins again");
    }

    /// Says once for each generation that an object cannot be read.
    pub fn tell_unreadable(&self, kind: &str, meta: &ObjectMeta, why: &str) {
        let uid = meta.uid.clone().unwrap_or_default();
        let generation = meta.generation.unwrap_or_default();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.insert(uid.clone(), generation) == Some(generation) {
            return;
        }
        let name = meta.name.as_deref().unwrap_or_default();
        tracing::warn!(kind, name, why, "an object cannot be read; it is left alone");
        let api = if kind == "KubernetesCluster" { "ecs.yun.com/v1" } else { "kubeonkube.clay.io/v1alpha1" };
        self.herald.say(Word {
            about: ObjectReference {
                api_version: Some(api.to_owned()),
                kind: Some(kind.to_owned()),
                name: meta.name.clone(),
                namespace: meta.namespace.clone(),
                uid: Some(uid),
                ..ObjectReference::default()
            },
            warning: true,
            reason: "Malformed",
            text: format!("it cannot be read and is left alone: {why}"),
        });
    }

    /// Reads the history limit. What cannot be read now is read again at its next change.
    pub async fn read_limit(&self) {
        let target = Target::new(Kind::ConfigMap, self.settings().namespace.clone(), names::CONFIG);
        let text = match self.hands.send(carry::path(&target), &Verb::Get, Pace::Calm).await {
            Ok(map) => map["data"][names::LIMIT_KEY].as_str().map(str::to_owned),
            Err(error) if error.is_absent() => None,
            Err(error) => {
                tracing::warn!(%error, "the history limit cannot be read; it stays");
                return;
            }
        };
        let wanted = text.as_deref().map_or(LIMIT, limit);
        let before = self.settings();
        if before.history_limit != wanted {
            let next = Settings { history_limit: wanted, ..before.as_ref().clone() };
            *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
            tracing::info!(limit = wanted, "the history limit changed");
            self.wake(self.world.lanes().into_iter().collect());
        }
    }

    pub fn say(&self, notices: Vec<Notice>) {
        for notice in notices {
            self.metrics.event(notice.reason);
            self.herald.say(Word {
                about: carry::reference(&notice.about, &notice.uid),
                warning: notice.warning,
                reason: notice.reason,
                text: notice.text,
            });
        }
    }
}

/// Works on lanes that are wanted at least as soon as `least`, until it is dropped.
pub(crate) async fn work(shared: Arc<Shared>, least: Class) {
    loop {
        let (lane, class) = shared.queue.next(least).await;
        let begun = Instant::now();
        let outcome = one(&shared, &lane, class).await;
        shared.metrics.turn(begun.elapsed(), outcome != Outcome::Failed);
        shared.queue.done(&lane, outcome);
    }
}

/// One turn of a lane.
async fn one(shared: &Shared, lane: &Lane, class: Class) -> Outcome {
    let pace = match class {
        Class::Urgent => Pace::Hurried,
        Class::Fresh => Pace::Calm,
        Class::Rest => Pace::Slow,
    };
    let mut data = BTreeMap::new();
    let mut trouble = BTreeMap::new();
    let mut pause = None;
    for _ in 0..MOST_PLANS {
        let room = shared.world.room(lane);
        let operations = room.operations.clone();
        match plan(shared, lane, room, &data, &trouble) {
            Plan::Read(targets) => {
                let reads = targets.iter().map(|target| read(shared, target, pace));
                for (target, answer) in targets.iter().zip(futures::future::join_all(reads).await) {
                    match answer {
                        Ok(answer) => data.insert(target.clone(), answer),
                        Err(error) => return failed(lane, &error),
                    };
                }
            }
            Plan::Do(turn) if turn.is_done() => {
                let wake = turn.wake.map(until);
                return Outcome::Done([wake, pause].into_iter().flatten().min());
            }
            Plan::Do(mut turn) => {
                let yields = yields(&mut turn, class);
                let writes: Vec<_> = turn.stages.iter().flatten().map(|write| write.why.as_str()).collect();
                tracing::debug!(%lane, ?writes, "writes");
                match carried(shared, lane, &mut turn, &operations, pace).await {
                    Ok(()) => {
                        shared.say(turn.notices);
                        if yields && pause.is_none() {
                            return Outcome::Rest;
                        }
                    }
                    Err(Failure::Link(error)) => return failed(lane, &error),
                    Err(Failure::Again) => {}
                    Err(Failure::Trouble { operation, trouble: said }) => {
                        tracing::warn!(%lane, operation, said = said.text, "refused");
                        if !said.lasting {
                            pause = Some(Instant::now() + REFUSED_PAUSE);
                        }
                        let Some(operation) = operation else {
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

/// Carries the writes of a turn out, and tells its trace.
async fn carried(
    shared: &Shared,
    lane: &Lane,
    turn: &mut Turn,
    operations: &[Arc<ClusterOperation>],
    pace: Pace,
) -> Result<(), Failure> {
    let span = shared.spans.as_ref().and_then(|spans| Some((spans, spans.begin(turn, operations)?)));
    let answer = carry::carry(shared, std::mem::take(&mut turn.stages), pace).await;
    if let Some((spans, begun)) = span {
        spans.ended(lane, begun, answer.as_ref().err().map(Failure::text));
    }
    answer
}

/// Whether other lanes go on after these writes. Of a lane that hurries, as soon as the end is told that somebody waits
/// for: what would come after it is planned again, with the rest. One whose Job is made has time to tell of it.
fn yields(turn: &mut Turn, class: Class) -> bool {
    match class {
        Class::Urgent => {
            turn.stages.retain(|stage| !stage.is_empty());
            turn.stages.truncate(1);
            turn.stages.iter().flatten().any(tells_an_end)
        }
        Class::Fresh => turn
            .stages
            .iter()
            .flatten()
            .any(|write| write.target.kind == Kind::Job && matches!(write.change, Change::Create(_))),
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

fn failed(lane: &Lane, error: &LinkError) -> Outcome {
    tracing::warn!(%lane, error = %error, category = error.category(), "the turn failed; it is made again");
    Outcome::Failed
}

async fn read(shared: &Shared, target: &Target, pace: Pace) -> Result<Data, LinkError> {
    shared.metrics.request("get", target.kind.as_str(), "sent");
    if target.kind == Kind::Log {
        return match shared.hands.log(&target.namespace, &target.name, LOG_BYTES).await {
            Ok(text) => Ok(Data::Log(text)),
            Err(error) if error.is_absent() => Ok(Data::Absent),
            Err(error) if matches!(error.again(), Again::Never | Again::WhenChanged) => {
                Ok(Data::Denied(error.said()))
            }
            Err(error) => Err(error),
        };
    }
    let verb = shared.world.version(target).map_or(Verb::Get, Verb::GetAsOf);
    match shared.hands.send(carry::path(target), &verb, pace).await {
        Ok(value) => Ok(carry::data(shared, target, value)),
        Err(error) if error.is_absent() => Ok(Data::Absent),
        Err(error) if error.again() == Again::WhenChanged => Ok(Data::Denied(error.said())),
        Err(error) => Err(error),
    }
}
