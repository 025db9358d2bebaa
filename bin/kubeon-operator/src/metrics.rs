//! Metrics. Label values are kinds, verbs and fixed terms, never names of objects.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kubeon_operations::FAILURES;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::observation::HealthCounts;

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    verb: String,
    kind: String,
    result: String,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct WordLabel {
    word: String,
}

/// The values that are read when the metrics are requested.
pub(crate) struct Gauges {
    /// The known objects, by kind.
    pub objects: BTreeMap<&'static str, usize>,
    /// The queue keys, by state.
    pub queue_keys: [(&'static str, usize); 2],
    /// The operations that have not ended, by state.
    pub operations: [(&'static str, usize); 2],
    /// The observed business clusters, by their health.
    pub observed: HealthCounts,
    /// When the first certificate of the observed clusters ends, in seconds since 1970; 0 while none is known.
    pub first_certificate_end: i64,
    /// The observed clusters on whose masters something differs from what operations wrote.
    pub drifted: usize,
    /// The limit of parallel requests.
    pub request_limit: usize,
    /// Events that were not recorded since the start.
    pub events_dropped: u64,
}

/// The operator's metrics.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    reconciles: Family<WordLabel, Counter>,
    seconds: Histogram,
    events: Family<WordLabel, Counter>,
    watches: Family<WordLabel, Counter>,
    objects: Family<WordLabel, Gauge>,
    queue_keys: Family<WordLabel, Gauge>,
    operations: Family<WordLabel, Gauge>,
    observed: Family<WordLabel, Gauge>,
    first_certificate_end: Gauge,
    drifted: Gauge,
    request_limit: Gauge,
    leader: Gauge,
    dropped: Gauge<u64, AtomicU64>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("kubeon_operator");
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            reconciles: Family::default(),
            seconds: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            events: Family::default(),
            watches: Family::default(),
            objects: Family::default(),
            queue_keys: Family::default(),
            operations: Family::default(),
            observed: Family::default(),
            first_certificate_end: Gauge::default(),
            drifted: Gauge::default(),
            request_limit: Gauge::default(),
            leader: Gauge::default(),
            dropped: Gauge::default(),
        };
        registry.register(
            "requests",
            "Requests to the API server, by verb, kind and result",
            metrics.requests.clone(),
        );
        registry.register("reconciles", "Reconciles, by result", metrics.reconciles.clone());
        registry.register("reconcile_seconds", "Duration of reconciles in seconds", metrics.seconds.clone());
        registry.register("events", "Events, by reason", metrics.events.clone());
        registry.register(
            "watch_failures",
            "Watches that were interrupted, by kind",
            metrics.watches.clone(),
        );
        registry.register("objects", "Known objects, by kind", metrics.objects.clone());
        registry.register(
            "queue_keys",
            "Queue keys that are ready or being reconciled",
            metrics.queue_keys.clone(),
        );
        registry.register(
            "operations",
            "Operations that have a Job, and operations that wait for their start",
            metrics.operations.clone(),
        );
        registry.register(
            "observed_clusters",
            "Business clusters by their observed health: ready, degraded, unreachable, unknown",
            metrics.observed.clone(),
        );
        registry.register(
            "first_certificate_end_seconds",
            "When the first certificate of the observed clusters ends, in seconds since 1970; 0: unknown",
            metrics.first_certificate_end.clone(),
        );
        registry.register(
            "drifted_clusters",
            "Observed clusters on whose masters something differs from what operations wrote",
            metrics.drifted.clone(),
        );
        registry.register(
            "requests_at_once",
            "Limit of parallel requests, adapted to the latency of the API server",
            metrics.request_limit.clone(),
        );
        registry.register(
            "leader",
            "Whether this process is the leader and reconciles",
            metrics.leader.clone(),
        );
        registry.register(
            "events_dropped",
            "Events that were not recorded: too many waited, or the API server refused them",
            metrics.dropped.clone(),
        );
        let metrics = Self { registry, ..metrics };
        metrics.initialize_counters();
        metrics
    }

    /// Creates the counters of alerts with the value zero. Otherwise the first event would not count as an
    /// increase.
    fn initialize_counters(&self) {
        for word in ["done", "failed"] {
            self.reconciles.get_or_create(&WordLabel { word: word.to_owned() }).inc_by(0);
        }
        for reason in FAILURES {
            self.events.get_or_create(&WordLabel { word: reason.to_owned() }).inc_by(0);
        }
    }

    pub(crate) fn request(&self, verb: &str, kind: &str, result: &str) {
        let labels =
            RequestLabels { verb: verb.to_owned(), kind: kind.to_owned(), result: result.to_owned() };
        self.requests.get_or_create(&labels).inc();
    }

    pub(crate) fn reconciled(&self, duration: Duration, done: bool) {
        let word = if done { "done" } else { "failed" };
        self.reconciles.get_or_create(&WordLabel { word: word.to_owned() }).inc();
        self.seconds.observe(duration.as_secs_f64());
    }

    pub(crate) fn event(&self, reason: &str) {
        self.events.get_or_create(&WordLabel { word: reason.to_owned() }).inc();
    }

    /// Creates the counter of a watch of this kind.
    pub(crate) fn watches(&self, kind: &str) {
        self.watches.get_or_create(&WordLabel { word: kind.to_owned() }).inc_by(0);
    }

    pub(crate) fn watch_failed(&self, kind: &str) {
        self.watches.get_or_create(&WordLabel { word: kind.to_owned() }).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// All metrics as text.
    pub(crate) fn text(&self, now: &Gauges) -> Result<String, std::fmt::Error> {
        let set = |family: &Family<WordLabel, Gauge>, word: &str, number: usize| {
            let label = WordLabel { word: word.to_owned() };
            family.get_or_create(&label).set(i64::try_from(number).unwrap_or(i64::MAX));
        };
        for (kind, number) in &now.objects {
            set(&self.objects, kind, *number);
        }
        for (word, number) in now.queue_keys {
            set(&self.queue_keys, word, number);
        }
        for (word, number) in now.operations {
            set(&self.operations, word, number);
        }
        self.first_certificate_end.set(now.first_certificate_end);
        for (word, number) in now.observed {
            set(&self.observed, word, number);
        }
        self.drifted.set(i64::try_from(now.drifted).unwrap_or(i64::MAX));
        self.request_limit.set(i64::try_from(now.request_limit).unwrap_or(i64::MAX));
        self.dropped.set(now.events_dropped);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
