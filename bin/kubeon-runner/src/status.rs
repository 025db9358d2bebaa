//! Writes what is known of the work into the operation's status: the newest, at most once a second, the last one
//! always. The work never waits for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
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
        let mut written = Value::Null;
        // Before the work begins there is nothing to say.
        let _ = board.changed().await;
        loop {
            let gone = board.has_changed().is_err() || board.borrow().over();
            let status = self.clean(board.borrow_and_update().status());
            if status != written {
                let next = Instant::now() + PACE;
                match self.write(&mut board, status).await {
                    Some(status) => written = status,
                    None => return,
                }
                if !gone {
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
    async fn write(&self, board: &mut watch::Receiver<Board>, mut status: Value) -> Option<Value> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let (mut refusals, mut said) = (0, false);
        loop {
            let Err(error) = self.meta.write_status(&self.operation, &status).await else {
                if said {
                    self.voice.say("the operation's status is written again");
                }
                return Some(status);
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
