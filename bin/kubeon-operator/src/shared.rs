//! What all turns share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::{Hands, Herald, Pace, Verb, Word};
use kubeon_operations::settings::{LIMIT, limit};
use kubeon_operations::{Kind, Lane, Notice, Settings, Target, names};
use tokio::sync::Notify;

use crate::listed::Listed;
use crate::metrics::{Metrics, Standing};
use crate::place;
use crate::queue::{Class, Queue};
use crate::spans::Spans;
use crate::world::World;

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
        let text = match self.hands.send(place::path(&target), &Verb::Get, Pace::Calm).await {
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
                about: place::reference(&notice.about, &notice.uid),
                warning: notice.warning,
                reason: notice.reason,
                text: notice.text,
            });
        }
    }

    /// All metrics as text.
    pub fn metrics_text(&self) -> Result<String, std::fmt::Error> {
        let (ready, working) = self.queue.load();
        self.metrics.text(&Standing {
            objects: self.world.sizes(),
            lanes: [("ready", ready), ("working", working)],
            at_once: self.hands.limit(),
            events_dropped: self.herald.dropped(),
        })
    }
}
