//! Events, sent aside: nothing waits for them, and when too many pile up the oldest wish is kept and the newest dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// Events that may wait to be sent.
const MOST_WAITING: usize = 4096;

/// One event.
#[derive(Debug, Clone)]
pub struct Word {
    /// The object that it is about.
    pub about: ObjectReference,
    /// Whether somebody should look at it.
    pub warning: bool,
    /// One word in CamelCase.
    pub reason: &'static str,
    /// For a person.
    pub text: String,
}

/// Sends events one after the other.
#[derive(Clone)]
pub struct Herald {
    sender: mpsc::Sender<Word>,
    dropped: Arc<AtomicU64>,
}

impl Herald {
    /// Begins to send, in a task of its own that ends with the last copy of this.
    #[must_use]
    pub fn start(client: Client, controller: &str, instance: &str) -> Self {
        let reporter = Reporter { controller: controller.to_owned(), instance: Some(instance.to_owned()) };
        let recorder = Recorder::new(client, reporter);
        let (sender, mut words) = mpsc::channel::<Word>(MOST_WAITING);
        tokio::spawn(async move {
            while let Some(word) = words.recv().await {
                let type_ = if word.warning { EventType::Warning } else { EventType::Normal };
                let event = Event {
                    type_,
                    reason: word.reason.to_owned(),
                    note: Some(clipped(word.text)),
                    action: word.reason.to_owned(),
                    secondary: None,
                };
                let sent = recorder.publish(&event, &word.about);
                match tokio::time::timeout(std::time::Duration::from_secs(10), sent).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, reason = word.reason, "an event was not taken"),
                    Err(_) => tracing::debug!(reason = word.reason, "an event was not answered"),
                }
            }
        });
        Self { sender, dropped: Arc::default() }
    }

    /// Sends a word when its turn comes.
    pub fn say(&self, word: Word) {
        if self.sender.try_send(word).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// An event takes 1 KiB.
fn clipped(mut text: String) -> String {
    if text.len() > 1024 {
        let end = (0..=1020).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}
