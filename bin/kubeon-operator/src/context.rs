//! The state that all reconciles share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::{EventRecord, EventRecorder, KubeWriter, LinkError, Priority, Verb};
use kubeon_operations::settings::{LIMIT, limit};
use kubeon_operations::{Notice, ObjectKind, ObjectRef, OperatorSettings, QueueKey, names};
use tokio::sync::Notify;

use crate::cache::ObjectCache;
use crate::initial_lists::InitialLists;
use crate::job_rate::JobRateLimiter;
use crate::location;
use crate::log_follower::{self, LogFollower, ReplicaRole};
use crate::metrics::{Gauges, Metrics};
use crate::queue::{Queue, Urgency};
use crate::refusals::{Refusals, Refused};
use crate::spans::OperatorSpans;
use crate::unreadable::Unreadable;

/// The pause between two attempts to read the history limit.
const LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// The most bytes of a log that are persisted.
pub(crate) const LOG_BYTES: usize = 512 * 1024;

/// The state that all reconciles share.
pub(crate) struct OperatorContext {
    pub cache: ObjectCache,
    pub queue: Queue,
    pub writer: KubeWriter,
    pub job_rate: JobRateLimiter,
    pub events: EventRecorder,
    pub metrics: Metrics,
    pub listed: InitialLists,
    settings: RwLock<Arc<OperatorSettings>>,
    pub reconfigure: Notify,
    pub unreadable: Unreadable,
    pub refusals: Refusals,
    pub log_follower: LogFollower,
    leads: AtomicBool,
    pub spans: Option<OperatorSpans>,
}

impl OperatorContext {
    pub(crate) fn new(
        settings: OperatorSettings,
        writer: KubeWriter,
        events: EventRecorder,
        spans: Option<OperatorSpans>,
    ) -> Self {
        Self {
            cache: ObjectCache::new(settings.namespace.clone()),
            queue: Queue::default(),
            writer,
            job_rate: JobRateLimiter::default(),
            events,
            metrics: Metrics::new(),
            listed: InitialLists::default(),
            settings: RwLock::new(Arc::new(settings)),
            reconfigure: Notify::new(),
            unreadable: Unreadable::default(),
            refusals: Refusals::default(),
            log_follower: LogFollower::default(),
            leads: AtomicBool::new(false),
            spans,
        }
    }

    pub(crate) fn settings(&self) -> Arc<OperatorSettings> {
        Arc::clone(&self.settings.read())
    }

    pub(crate) fn wake(&self, queue_keys: Vec<QueueKey>) {
        for queue_key in queue_keys {
            self.queue.wake(&queue_key, Urgency::Fresh);
        }
    }

    /// Wakes lanes that somebody waits for the end of.
    pub(crate) fn hurry(&self, queue_keys: Vec<QueueKey>) {
        for queue_key in queue_keys {
            self.queue.wake(&queue_key, Urgency::Urgent);
        }
    }

    /// A ConfigMap or Secret is there.
    pub(crate) fn seen(&self, target: ObjectRef, meta: &ObjectMeta) {
        self.configured(&target);
        self.wake(self.cache.apply_meta(target, meta));
    }

    /// The operator's own ConfigMap came, changed or went.
    pub(crate) fn configured(&self, target: &ObjectRef) {
        if target.kind == ObjectKind::ConfigMap
            && target.name == names::CONFIG
            && target.namespace == self.settings().namespace
        {
            self.reconfigure.notify_one();
        }
    }

    pub(crate) fn watch_failed(&self, kind: &str, error: &dyn std::error::Error) {
        self.metrics.watch_failed(kind);
        tracing::warn!(kind, error = %error, "a watch was interrupted; it begins again");
    }

    /// Says once for each generation that an object cannot be read.
    pub(crate) fn tell_unreadable(&self, kind: &str, meta: &ObjectMeta, why: &str) {
        if let Some(word) = self.unreadable.seen(kind, meta, why) {
            self.events.record(word);
        }
    }

    /// This process leads from now on.
    pub(crate) fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
        self.unreadable.lead().into_iter().for_each(|word| self.events.record(word));
    }

    /// Whether this process leads.
    pub(crate) fn role(&self) -> ReplicaRole {
        if self.leads.load(Ordering::Relaxed) { ReplicaRole::Leader } else { ReplicaRole::Standby }
    }

    /// Follows the log of a pod that terminates. A replica that does not lead follows it too: the leader may die before it
    /// has written the log.
    pub(crate) fn listen(&self, pod: &ObjectMeta) {
        let pod = log_follower::log_of(pod);
        let (writer, at) = (self.writer.clone(), pod.clone());
        self.log_follower
            .follow(pod, || async move { writer.follow(&at.namespace, &at.name, LOG_BYTES).await });
    }

    /// Says that the API server refuses what a lane needs; once while it stays so.
    pub(crate) fn tell_refused(&self, queue_key: &QueueKey, what: &Refused) {
        if let Some(word) = self.refusals.met(queue_key, what) {
            self.metrics.event(word.reason);
            self.events.record(word);
        }
    }

    /// Reads the history limit, again and again until it can be read: a limit that is not known must not let operations
    /// go.
    pub(crate) async fn read_limit(&self) {
        while let Err(error) = self.try_read_limit().await {
            tracing::warn!(%error, "the history limit cannot be read; it is read again");
            tokio::time::sleep(LIMIT_PAUSE).await;
        }
    }

    async fn try_read_limit(&self) -> Result<(), LinkError> {
        let target = ObjectRef::new(ObjectKind::ConfigMap, self.settings().namespace.clone(), names::CONFIG);
        let text = match self.writer.send(location::path(&target), &Verb::Get, Priority::Normal).await {
            Ok(map) => map["data"][names::LIMIT_KEY].as_str().map(str::to_owned),
            Err(error) if error.is_absent() => None,
            Err(error) => return Err(error),
        };
        let wanted = text.as_deref().map_or(LIMIT, limit);
        let before = self.settings();
        if before.history_limit != wanted {
            let next = OperatorSettings { history_limit: wanted, ..before.as_ref().clone() };
            *self.settings.write() = Arc::new(next);
            tracing::info!(limit = wanted, "the history limit changed");
            self.wake(self.cache.queue_keys().into_iter().collect());
        }
        Ok(())
    }

    pub(crate) fn say(&self, notices: Vec<Notice>) {
        for notice in notices {
            self.metrics.event(notice.reason);
            self.events.record(EventRecord {
                about: location::reference(&notice.about, &notice.uid),
                warning: notice.warning,
                reason: notice.reason,
                text: notice.text,
            });
        }
    }

    /// All metrics as text.
    pub(crate) fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        let (ready, working) = self.queue.load();
        self.metrics.text(&Gauges {
            objects: self.cache.sizes(),
            queue_keys: [("ready", ready), ("working", working)],
            at_once: self.writer.limit(),
            events_dropped: self.events.dropped(),
        })
    }
}
