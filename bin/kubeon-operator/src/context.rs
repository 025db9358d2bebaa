//! The state that all reconciles share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_api::ClusterOperation;
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
use crate::observation::Observations;
use crate::operation_limit::{OperationLimit, has_job};
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
    pub operation_limit: OperationLimit,
    pub observations: Observations,
    pub log_follower: LogFollower,
    leads: AtomicBool,
    pub spans: Option<OperatorSpans>,
}

impl OperatorContext {
    pub(crate) fn new(
        settings: OperatorSettings,
        operation_limit: OperationLimit,
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
            operation_limit,
            observations: Observations::default(),
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

    /// Adds keys with the priority `Urgent`, because a user waits for a result.
    pub(crate) fn wake_urgently(&self, queue_keys: Vec<QueueKey>) {
        for queue_key in queue_keys {
            self.queue.wake(&queue_key, Urgency::Urgent);
        }
    }

    /// Handles the metadata of a ConfigMap or Secret that was created or changed.
    pub(crate) fn metadata_changed(&self, target: ObjectRef, meta: &ObjectMeta) {
        self.check_config(&target);
        self.wake(self.cache.apply_meta(target, meta));
    }

    /// Reloads the history limit when the operator's ConfigMap was created, changed or deleted.
    pub(crate) fn check_config(&self, target: &ObjectRef) {
        if target.kind == ObjectKind::ConfigMap
            && target.name == names::CONFIG
            && target.namespace == self.settings().namespace
        {
            self.reconfigure.notify_one();
        }
    }

    pub(crate) fn watch_failed(&self, kind: &str, error: &dyn std::error::Error) {
        self.metrics.watch_failed(kind);
        tracing::warn!(kind, error = %error, "a watch was interrupted; it is restarted");
    }

    /// Reports an object that cannot be parsed, once for each generation.
    pub(crate) fn report_unreadable(&self, kind: ObjectKind, meta: &ObjectMeta, why: &str) {
        if let Some(record) = self.unreadable.add(kind, meta, why) {
            self.events.record(record);
        }
    }

    /// Makes this process the leader.
    pub(crate) fn lead(&self) {
        let with_region = |operation: Arc<ClusterOperation>| {
            let objects = self.cache.objects_of(&QueueKey::of(&operation));
            (operation, objects.subject.region().map(str::to_owned))
        };
        let open: Vec<_> = self.cache.open_operations().into_iter().map(with_region).collect();
        self.operation_limit.restore(&open);
        self.leads.store(true, Ordering::Relaxed);
        self.unreadable.lead().into_iter().for_each(|record| self.events.record(record));
    }

    /// The role of this process.
    pub(crate) fn role(&self) -> ReplicaRole {
        if self.leads.load(Ordering::Relaxed) { ReplicaRole::Leader } else { ReplicaRole::Standby }
    }

    /// Follows the log of a pod that terminates. A standby follows it, too, because the leader may end before it has
    /// written the log.
    pub(crate) fn follow_log(&self, pod: &ObjectMeta) {
        let pod = log_follower::log_of(pod);
        let (writer, at) = (self.writer.clone(), pod.clone());
        self.log_follower
            .follow(pod, || async move { writer.follow(&at.namespace, &at.name, LOG_BYTES).await });
    }

    /// Reports a refusal of the API server, once while it stays the same.
    pub(crate) fn report_refused(&self, queue_key: &QueueKey, what: &Refused) {
        if let Some(record) = self.refusals.add(queue_key, what) {
            self.metrics.event(record.reason);
            self.events.record(record);
        }
    }

    /// Reads the history limit; retries until that succeeds, because a wrong limit would delete operations.
    pub(crate) async fn read_limit(&self) {
        while let Err(error) = self.try_read_limit().await {
            tracing::warn!(%error, "the history limit cannot be read; the read is retried");
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

    pub(crate) fn record_events(&self, notices: Vec<Notice>) {
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
        let open = self.cache.open_operations();
        let running = open.iter().filter(|operation| has_job(operation)).count();
        self.metrics.text(&Gauges {
            objects: self.cache.sizes(),
            queue_keys: [("ready", ready), ("working", working)],
            operations: [("running", running), ("waiting", open.len() - running)],
            observed: self.observations.counts(),
            first_certificate_end: self.observations.first_certificate_end(),
            drifted: self.observations.drifted(),
            request_limit: self.writer.limit(),
            events_dropped: self.events.dropped(),
        })
    }
}
