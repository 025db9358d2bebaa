//! What all turns share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubeon_link_kube::{Hands, Herald, LinkError, Pace, Verb, Word};
use kubeon_operations::settings::{LIMIT, limit};
use kubeon_operations::{Kind, Lane, Notice, Settings, Target, names};
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::listed::Listed;
use crate::metrics::{Metrics, Standing};
use crate::parting::{self, Parting};
use crate::place;
use crate::queue::{Class, Queue};
use crate::refusals::{Refusals, Refused};
use crate::spans::Spans;
use crate::starts::Starts;
use crate::unreadable::Unreadable;
use crate::world::World;

/// Between two tries to read the history limit.
const LIMIT_PAUSE: Duration = Duration::from_secs(1);

/// Bytes of a log that are kept.
pub(crate) const LOG_BYTES: usize = 512 * 1024;

/// What all turns share.
pub(crate) struct Shared {
    pub world: World,
    pub queue: Queue,
    pub hands: Hands,
    pub starts: Starts,
    pub herald: Herald,
    pub metrics: Metrics,
    pub listed: Listed,
    settings: RwLock<Arc<Settings>>,
    pub reconfigure: Notify,
    pub unreadable: Unreadable,
    pub refusals: Refusals,
    pub parting: Parting,
    leads: AtomicBool,
    pub spans: Option<Spans>,
}

impl Shared {
    pub fn new(settings: Settings, hands: Hands, herald: Herald, spans: Option<Spans>) -> Self {
        Self {
            world: World::new(settings.namespace.clone()),
            queue: Queue::default(),
            hands,
            starts: Starts::default(),
            herald,
            metrics: Metrics::new(),
            listed: Listed::default(),
            settings: RwLock::new(Arc::new(settings)),
            reconfigure: Notify::new(),
            unreadable: Unreadable::default(),
            refusals: Refusals::default(),
            parting: Parting::default(),
            leads: AtomicBool::new(false),
            spans,
        }
    }

    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read())
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
        if let Some(word) = self.unreadable.seen(kind, meta, why) {
            self.herald.say(word);
        }
    }

    /// This process leads from now on.
    pub fn lead(&self) {
        self.leads.store(true, Ordering::Relaxed);
        self.unreadable.lead().into_iter().for_each(|word| self.herald.say(word));
    }

    /// A pod was told to end: whoever leads follows its log from now on.
    pub fn listen(&self, pod: &ObjectMeta) {
        if !self.leads.load(Ordering::Relaxed) {
            return;
        }
        let pod = parting::log_of(pod);
        let (hands, at) = (self.hands.clone(), pod.clone());
        self.parting.follow(pod, || async move { hands.follow(&at.namespace, &at.name, LOG_BYTES).await });
    }

    /// Says that the API server refuses what a lane needs; once while it stays so.
    pub fn tell_refused(&self, lane: &Lane, what: &Refused) {
        if let Some(word) = self.refusals.met(lane, what) {
            self.metrics.event(word.reason);
            self.herald.say(word);
        }
    }

    /// Reads the history limit, again and again until it can be read: a limit that is not known must not let operations
    /// go.
    pub async fn read_limit(&self) {
        while let Err(error) = self.try_read_limit().await {
            tracing::warn!(%error, "the history limit cannot be read; it is read again");
            tokio::time::sleep(LIMIT_PAUSE).await;
        }
    }

    async fn try_read_limit(&self) -> Result<(), LinkError> {
        let target = Target::new(Kind::ConfigMap, self.settings().namespace.clone(), names::CONFIG);
        let text = match self.hands.send(place::path(&target), &Verb::Get, Pace::Calm).await {
            Ok(map) => map["data"][names::LIMIT_KEY].as_str().map(str::to_owned),
            Err(error) if error.is_absent() => None,
            Err(error) => return Err(error),
        };
        let wanted = text.as_deref().map_or(LIMIT, limit);
        let before = self.settings();
        if before.history_limit != wanted {
            let next = Settings { history_limit: wanted, ..before.as_ref().clone() };
            *self.settings.write() = Arc::new(next);
            tracing::info!(limit = wanted, "the history limit changed");
            self.wake(self.world.lanes().into_iter().collect());
        }
        Ok(())
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
