//! A queue of events before `kube`'s recorder, which creates each event and counts repeated ones. A reconcile does not wait
//! for events, and events wait for urgent requests. An event that the API server refuses is retried a few times while later
//! ones wait. When the queue is full, new events are dropped and counted.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kubeon_api::clip;
use tokio::sync::{mpsc, watch};

use crate::error::{LinkError, RetryClass};
use crate::writer::KubeWriter;

/// The most events in the queue.
const MOST_WAITING: usize = 4096;
/// While the queue is shorter than this, events wait for urgent requests.
const MOST_DEFERRED: usize = MOST_WAITING / 2;
/// The attempts to send an event.
const TRIES: usize = 4;
/// The pause before the second attempt; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One event.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// The object that it is about.
    pub about: ObjectReference,
    /// Whether it is a warning.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// The message for the user.
    pub text: String,
}

/// Sends events one after the other.
#[derive(Clone)]
pub struct EventRecorder {
    sender: mpsc::Sender<EventRecord>,
    /// The number of events that are neither sent nor lost.
    waiting: watch::Sender<usize>,
    dropped: Arc<AtomicU64>,
}

impl EventRecorder {
    /// Starts the task that sends events. It ends when the last clone of this recorder is dropped. While the queue is short,
    /// an event waits until `writer` has no urgent request.
    #[must_use]
    pub fn start(client: Client, writer: &KubeWriter, controller: &str, instance: &str) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client, reporter);
        let (sender, mut records) = mpsc::channel::<EventRecord>(MOST_WAITING);
        let dropped: Arc<AtomicU64> = Arc::default();
        let waiting = watch::Sender::new(0);
        let (lost, left, writer) = (Arc::clone(&dropped), waiting.clone(), writer.clone());
        tokio::spawn(async move {
            while let Some(record) = records.recv().await {
                if records.len() < MOST_DEFERRED {
                    writer.idle().await;
                }
                let event = event(&record);
                let sent = several_times(|| publish(&recorder, &event, &record.about)).await;
                if let Err(error) = sent {
                    lost.fetch_add(1, Ordering::Relaxed);
                    let about = record.about.name.as_deref().unwrap_or_default();
                    tracing::warn!(%error, reason = record.reason, about, text = record.text, "an event is lost");
                }
                left.send_modify(|left| *left -= 1);
            }
        });
        Self { sender, waiting, dropped }
    }

    /// Adds an event to the queue.
    pub fn record(&self, record: EventRecord) {
        self.waiting.send_modify(|waiting| *waiting += 1);
        if self.sender.try_send(record).is_err() {
            self.waiting.send_modify(|waiting| *waiting -= 1);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the queue is empty, at most for `timeout`. Returns the number of events that still wait.
    pub async fn flush(&self, timeout: Duration) -> usize {
        let mut waiting = self.waiting.subscribe();
        let is_empty = tokio::time::timeout(timeout, waiting.wait_for(|waiting| *waiting == 0)).await.is_ok();
        if is_empty { 0 } else { *waiting.borrow() }
    }

    /// The number of events that were not recorded, because too many waited or the API server refused them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

fn event(record: &EventRecord) -> Event {
    Event {
        type_: if record.warning { EventType::Warning } else { EventType::Normal },
        reason: record.reason.to_owned(),
        note: Some(clipped(&record.text)),
        action: action(record),
        secondary: None,
    }
}

/// The action of an event. The recorder merges events with equal action and keeps the first text, so events
/// with different texts need different actions: of two created Jobs, only one would be reported.
fn action(record: &EventRecord) -> String {
    let mut text = DefaultHasher::new();
    record.text.hash(&mut text);
    format!("{}-{:016x}", record.reason, text.finish())
}

async fn publish(recorder: &Recorder, event: &Event, about: &ObjectReference) -> Result<(), LinkError> {
    let action = "create an event";
    match tokio::time::timeout(TIMEOUT, recorder.publish(event, about)).await {
        Ok(sent) => sent.map_err(|error| LinkError::of(action, error)),
        Err(_) => Err(LinkError::Silent { action: action.to_owned(), after: TIMEOUT }),
    }
}

/// Retries unless the error is permanent. A denied permission is retried: the role may not be in force yet.
async fn several_times<F>(send: impl FnMut() -> F) -> Result<(), LinkError>
where
    F: Future<Output = Result<(), LinkError>>,
{
    let pauses = ExponentialBuilder::default().with_min_delay(FIRST_PAUSE).with_max_times(TRIES - 1);
    send.retry(pauses).when(|error| error.retry_class() != RetryClass::Never).await
}

/// Cuts a text to the longest note of an event, 1 KiB.
fn clipped(text: &str) -> String {
    if text.len() > 1024 { format!("{}…", clip(text, 1020)) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> LinkError {
        let (action, reason, message) = (String::new(), String::new(), String::new());
        LinkError::Refused { action, code, reason, message }
    }

    /// Returns the answers one after the other; the number of attempts, and whether the last one succeeded.
    async fn tried(answers: &[Option<u16>]) -> (usize, bool) {
        let mut count = 0;
        let ended = several_times(|| {
            let answer = answers.get(count).copied().flatten();
            count += 1;
            std::future::ready(answer.map_or(Ok(()), |code| Err(refused(code))))
        })
        .await;
        (count, ended.is_ok())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_event_is_retried_a_few_times() {
        assert_eq!(tried(&[]).await, (1, true));
        assert_eq!(tried(&[Some(500), Some(429), Some(403)]).await, (4, true));
        assert_eq!(tried(&[Some(500); 9]).await, (4, false));
        assert_eq!(tried(&[Some(422)]).await, (1, false), "an invalid event is not retried");
    }
}
