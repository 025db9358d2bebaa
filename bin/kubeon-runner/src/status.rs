//! Writes what is known of the work into the operation's status: the newest, at most once a second, the last one
//! always. The work never waits for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::board::Board;
use crate::masks::Masks;
use crate::meta::{Meta, REFUSALS, Retry};
use crate::voice::Voice;

/// Between two writes.
const PACE: Duration = Duration::from_secs(1);

/// Writes the status of one operation.
pub struct Writer {
    /// Where.
    pub meta: Meta,
    /// Of which operation.
    pub operation: String,
    /// What must not be written.
    pub masks: Arc<Masks>,
    /// For what goes wrong.
    pub voice: Voice,
}

impl Writer {
    /// Writes until the work is over and the last of it is written, or until writing has no sense.
    pub async fn run(self, mut board: watch::Receiver<Board>) {
        let (mut written, mut about) = (Value::Null, About::default());
        // Before the work begins there is nothing to say.
        let _ = board.changed().await;
        loop {
            let gone = board.has_changed().is_err() || board.borrow().over();
            let status = self.clean(board.borrow_and_update().status());
            if status != written || (gone && about.is_unsaid()) {
                let next = Instant::now() + PACE;
                match self.write(&mut board, &mut about, status).await {
                    Some(status) => written = status,
                    None => return,
                }
                if !gone || about.is_unsaid() {
                    pace(next, &mut board).await;
                    continue;
                }
            }
            // Told of a change or of the end, it looks again.
            if gone {
                return;
            }
            let _ = board.changed().await;
        }
    }

    /// Writes the newest until one write succeeds; gives what was written, nothing when writing has no sense.
    async fn write(
        &self,
        board: &mut watch::Receiver<Board>,
        about: &mut About,
        mut status: Value,
    ) -> Option<Value> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let (mut refusals, mut said) = (0, false);
        loop {
            let error = match self.meta.write_status(&self.operation, &about.on(&status)).await {
                Ok(generation) => {
                    about.written(generation);
                    if said {
                        self.voice.say("the operation's status is written again");
                    }
                    return Some(status);
                }
                Err(error) => error,
            };
            refusals += u32::from(error.retry() == Retry::AFewTimes);
            let never = error.retry() == Retry::Never || refusals >= REFUSALS;
            if never || !said {
                let then = if never { "it is not written any more" } else { "it is tried again" };
                self.voice.say(&format!("the operation's status cannot be written, {then}: {error}"));
                said = true;
            }
            if never {
                return None;
            }
            backoff.wait().await;
            status = self.clean(board.borrow_and_update().status());
        }
    }

    /// Without secrets, in any text of it.
    fn clean(&self, mut status: Value) -> Value {
        hide(&mut status, &self.masks);
        status
    }
}

/// Which generation of the operation the conditions are about. The answer to the first write tells it, and from then on
/// it stays: the work does not follow a change of the spec. It alone is worth a write only where the first was the last.
#[derive(Debug, Default)]
struct About {
    generation: Option<i64>,
    /// Whether what was written last says it.
    said: bool,
}

impl About {
    /// The status with the generation in its conditions, as far as it is known.
    fn on(&self, status: &Value) -> Value {
        let mut status = status.clone();
        let Some(generation) = self.generation else { return status };
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["observedGeneration"] = json!(generation);
        }
        status
    }

    /// A write was answered.
    fn written(&mut self, generation: Option<i64>) {
        self.said = self.generation.is_some();
        self.generation = self.generation.or(generation);
    }

    fn is_unsaid(&self) -> bool {
        self.generation.is_some() && !self.said
    }
}

/// Waits until the next write may be made. The last one need not wait.
async fn pace(next: Instant, board: &mut watch::Receiver<Board>) {
    tokio::select! {
        () = sleep_until(next) => {}
        _ = board.wait_for(Board::over) => {}
    }
}

fn hide(value: &mut Value, masks: &Masks) {
    match value {
        Value::String(text) => *text = masks.hide_text(text),
        Value::Array(values) => values.iter_mut().for_each(|value| hide(value, masks)),
        Value::Object(values) => values.values_mut().for_each(|value| hide(value, masks)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_of_the_first_answer_stands_in_every_later_write() {
        let status = json!({"conditions": [{"type": "Progressing"}, {"type": "Prechecked"}], "steps": {}});
        let mut about = About::default();
        assert_eq!(about.on(&status), status, "nobody told it yet");
        assert!(!about.is_unsaid());
        about.written(Some(2));
        assert!(about.is_unsaid(), "the first write did not say it");
        let said = |about: &About| {
            let conditions = about.on(&status)["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|one| one["observedGeneration"].as_i64()).collect::<Vec<_>>()
        };
        assert_eq!(said(&about), [Some(2), Some(2)]);
        about.written(Some(3));
        assert!(!about.is_unsaid());
        assert_eq!(said(&about), [Some(2), Some(2)], "the spec was changed while it works");
    }
}
