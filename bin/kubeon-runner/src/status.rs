//! Writes the progress to the operation's status: the newest value at most every five seconds, and always the last
//! value. The work does not wait for the writes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::log::RunnerLog;
use crate::meta::{MetaCluster, REFUSALS, Retry};
use crate::progress_view::ProgressView;
use crate::redactor::Redactor;

/// The time between two writes.
const INTERVAL: Duration = Duration::from_secs(5);

/// Writes the status of one operation.
pub(crate) struct StatusWriter {
    /// The meta cluster.
    pub meta: MetaCluster,
    /// The name of the operation.
    pub operation: String,
    /// Redacts secrets.
    pub redactor: Arc<Redactor>,
    /// For errors.
    pub log: RunnerLog,
}

impl StatusWriter {
    /// Writes until the last status of the finished work is written, or until an error is permanent.
    pub(crate) async fn run(self, mut view: watch::Receiver<ProgressView>) {
        let (mut written, mut generation) = (Value::Null, ConditionGeneration::default());
        // The first change is the start of the work.
        let _ = view.changed().await;
        loop {
            let finished = view.has_changed().is_err() || view.borrow().is_finished();
            let status = self.clean(&view.borrow_and_update());
            if status != written || (finished && generation.is_unwritten()) {
                let next = Instant::now() + INTERVAL;
                match self.write(&mut view, &mut generation, status).await {
                    Some(status) => written = status,
                    None => return,
                }
                if !finished || generation.is_unwritten() {
                    wait_for_next(next, &mut view).await;
                    continue;
                }
            }
            if finished {
                return;
            }
            let _ = view.changed().await;
        }
    }

    /// Retries with the newest status until a write succeeds. Returns the written status, or none when the error is
    /// permanent.
    async fn write(
        &self,
        view: &mut watch::Receiver<ProgressView>,
        conditions: &mut ConditionGeneration,
        mut status: Value,
    ) -> Option<Value> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let (mut refusals, mut logged) = (0, false);
        loop {
            let error = match self.meta.write_status(&self.operation, &conditions.apply_to(&status)).await {
                Ok(generation) => {
                    conditions.written(generation);
                    if logged {
                        self.log.line("the operation's status is written again");
                    }
                    return Some(status);
                }
                Err(error) => error,
            };
            let retry = self.meta.retry_of_status(&self.operation, &error).await;
            refusals += u32::from(retry == Retry::AFewTimes);
            let permanent = retry == Retry::Never || refusals >= REFUSALS;
            if permanent || !logged {
                let then = if permanent { "giving up" } else { "will retry" };
                self.log.line(&format!("cannot write the operation's status, {then}: {error}"));
                logged = true;
            }
            if permanent {
                return None;
            }
            backoff.wait().await;
            status = self.clean(&view.borrow_and_update());
        }
    }

    /// The status with secrets redacted in every text.
    fn clean(&self, view: &ProgressView) -> Value {
        let mut status = json!(view.status());
        redact(&mut status, &self.redactor);
        status
    }
}

/// The `observedGeneration` of the conditions. The response to the first write contains it. It does not
/// change, because the work does not follow changes of the spec. It needs a separate write only if the first
/// write was also the last.
#[derive(Debug, Default)]
struct ConditionGeneration {
    generation: Option<i64>,
    /// Whether the last write contained it.
    in_status: bool,
}

impl ConditionGeneration {
    /// The status with the generation in its conditions, once it is known.
    fn apply_to(&self, status: &Value) -> Value {
        let mut status = status.clone();
        let Some(generation) = self.generation else { return status };
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["observedGeneration"] = Value::from(generation);
        }
        status
    }

    /// Records the response to a write.
    fn written(&mut self, generation: Option<i64>) {
        self.in_status = self.generation.is_some();
        self.generation = self.generation.or(generation);
    }

    fn is_unwritten(&self) -> bool {
        self.generation.is_some() && !self.in_status
    }
}

/// Waits until the next write is due. The last write is due at once.
async fn wait_for_next(next: Instant, view: &mut watch::Receiver<ProgressView>) {
    tokio::select! {
        () = sleep_until(next) => {}
        _ = view.wait_for(ProgressView::is_finished) => {}
    }
}

fn redact(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => *text = redactor.redact_text(text),
        Value::Array(values) => values.iter_mut().for_each(|value| redact(value, redactor)),
        Value::Object(values) => values.values_mut().for_each(|value| redact(value, redactor)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_later_write_has_the_generation_of_the_first_response() {
        let status = json!({"conditions": [{"type": "Progressing"}, {"type": "Prechecked"}], "steps": {}});
        let mut generation = ConditionGeneration::default();
        assert_eq!(generation.apply_to(&status), status, "the generation is not known yet");
        assert!(!generation.is_unwritten());
        generation.written(Some(2));
        assert!(generation.is_unwritten(), "the first write did not contain it");
        let written = |generation: &ConditionGeneration| {
            let conditions =
                generation.apply_to(&status)["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|condition| condition["observedGeneration"].as_i64()).collect::<Vec<_>>()
        };
        assert_eq!(written(&generation), [Some(2), Some(2)]);
        generation.written(Some(3));
        assert!(!generation.is_unwritten());
        assert_eq!(written(&generation), [Some(2), Some(2)], "the spec was changed during the work");
    }
}
