//! The records of the steps of this operation, with secrets redacted.

use std::io;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{HostAddress, StepRecord, StepResult, clip};
use kubeon_operation_log::{StoredLog, compressed_steps};
use kubeon_wire::Progress;
use parking_lot::Mutex;

use crate::redactor::Redactor;

/// The most records in memory. Beyond them the oldest are dropped.
const MOST_RECORDS: usize = 20_000;
/// The longest cause and reason in bytes.
const LONGEST_TEXT: usize = 400;

/// The steps so far, in the order of their start.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepRecords {
    records: Arc<Mutex<Vec<StepRecord>>>,
}

impl StepRecords {
    /// Records the start or the end of a step; other events are no steps.
    pub(crate) fn record(&self, progress: &Progress, redactor: &Redactor, now: Timestamp) {
        let clean = |text: &str| {
            let line = text.lines().next().unwrap_or_default();
            clip(&redactor.redact_text(line), LONGEST_TEXT).to_owned()
        };
        match progress {
            Progress::Started { host, name, stage, step, why } => self.push(StepRecord {
                name: name.clone(),
                stage: stage.clone(),
                why: clean(why),
                ..begun(*host, step, now)
            }),
            Progress::Finished { host, step, changed, .. } => {
                let result = if *changed { StepResult::Changed } else { StepResult::UpToDate };
                self.end(StepRecord { result, ..begun(*host, step, now) }, now);
            }
            Progress::Failed { host, step, cause, again, .. } => {
                let result = if *again { StepResult::Retried } else { StepResult::Failed };
                let cause = Some(clean(cause));
                self.end(StepRecord { result, cause, ..begun(*host, step, now) }, now);
            }
            _ => {}
        }
    }

    fn push(&self, record: StepRecord) {
        let mut records = self.records.lock();
        if records.len() >= MOST_RECORDS {
            records.drain(..MOST_RECORDS / 10);
        }
        records.push(record);
    }

    /// Ends the step that runs on this host under this title. One whose start was not seen has no duration.
    fn end(&self, ended: StepRecord, now: Timestamp) {
        let is_it = |record: &StepRecord| {
            record.ended.is_none() && record.host == ended.host && record.step == ended.step
        };
        let mut records = self.records.lock();
        if let Some(record) = records.iter_mut().rfind(|record| is_it(record)) {
            record.ended = Some(MicroTime(now));
            record.result = ended.result;
            record.cause = ended.cause;
            return;
        }
        drop(records);
        self.push(StepRecord { ended: Some(MicroTime(now)), ..ended });
    }

    /// The compressed records. `None` without records.
    ///
    /// # Errors
    /// When they cannot be compressed.
    pub(crate) fn stored(&self) -> io::Result<Option<Vec<u8>>> {
        compressed_steps(&self.records.lock())
    }

    /// A stored log with the records that kubectl shows.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub(crate) fn shown_in(&self, stored: StoredLog) -> io::Result<StoredLog> {
        stored.with_shown_steps(&self.records.lock())
    }

    /// Begins with the records of an earlier pod.
    pub(crate) fn repeat(&self, earlier: Vec<StepRecord>) {
        self.records.lock().splice(..0, earlier).for_each(drop);
    }
}

/// A step that begins now.
fn begun(host: HostAddress, step: &str, now: Timestamp) -> StepRecord {
    StepRecord {
        host,
        name: host.to_string(),
        stage: String::new(),
        step: step.to_owned(),
        why: String::new(),
        started: MicroTime(now),
        ended: None,
        result: StepResult::Interrupted,
        cause: None,
    }
}

#[cfg(test)]
mod tests {
    use kubeon_operation_log::decompressed_steps;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn host(last: u8) -> HostAddress {
        format!("10.0.0.{last}").parse().unwrap()
    }

    fn started(host: HostAddress, step: &str) -> Progress {
        let (name, stage, why) = ("h1".to_owned(), "etcd".to_owned(), "it says hunter2".to_owned());
        Progress::Started { host, name, stage, step: step.to_owned(), why }
    }

    fn failed(host: HostAddress, step: &str, again: bool) -> Progress {
        let cause = "hunter2 was refused\nand more".to_owned();
        Progress::Failed { host, step: step.to_owned(), cause, log: Vec::new(), again }
    }

    fn read(records: &StepRecords) -> Vec<StepRecord> {
        decompressed_steps(&records.stored().unwrap().unwrap()).unwrap()
    }

    #[test]
    fn a_step_has_its_times_its_result_and_a_cause_without_secrets() {
        let redactor = Redactor::new(&["hunter2".to_owned()]);
        let records = StepRecords::default();
        let record = |progress: &Progress, second| records.record(progress, &redactor, at(second));
        record(&started(host(1), "a"), 1);
        record(&started(host(2), "a"), 2);
        let finished =
            |host, changed| Progress::Finished { host, step: "a".to_owned(), changed, milliseconds: 7 };
        record(&finished(host(2), false), 3);
        record(&failed(host(1), "a", true), 4);
        record(&started(host(1), "a"), 5);
        record(&finished(host(1), true), 6);
        record(&failed(host(3), "b", false), 7);
        record(&started(host(3), "c"), 8);
        let all = read(&records);
        let line = |record: &StepRecord| {
            let second = |time: &MicroTime| time.0.as_second();
            let ended = record.ended.as_ref().map(second);
            (record.name.clone(), record.step.clone(), second(&record.started), ended, record.result)
        };
        let expected = |name: &str, step: &str, started, ended, result| {
            (name.to_owned(), step.to_owned(), started, ended, result)
        };
        assert_eq!(
            all.iter().map(line).collect::<Vec<_>>(),
            [
                expected("h1", "a", 1, Some(4), StepResult::Retried),
                expected("h1", "a", 2, Some(3), StepResult::UpToDate),
                expected("h1", "a", 5, Some(6), StepResult::Changed),
                expected("10.0.0.3", "b", 7, Some(7), StepResult::Failed),
                expected("h1", "c", 8, None, StepResult::Interrupted),
            ]
        );
        let cause = all[0].cause.clone().unwrap();
        assert!(!cause.contains("hunter2") && cause.ends_with("was refused"), "{cause}");
        assert!(!all[0].why.contains("hunter2"), "{}", all[0].why);
    }

    #[test]
    fn the_records_of_the_earlier_pod_come_first() {
        let redactor = Redactor::new(&[]);
        let (earlier, later) = (StepRecords::default(), StepRecords::default());
        assert_eq!(earlier.stored().unwrap(), None);
        earlier.record(&started(host(1), "a"), &redactor, at(1));
        later.record(&started(host(1), "b"), &redactor, at(2));
        later.repeat(read(&earlier));
        let steps: Vec<_> = read(&later).into_iter().map(|record| record.step).collect();
        assert_eq!(steps, ["a", "b"]);
    }

    #[test]
    fn the_oldest_of_very_many_records_are_dropped() {
        let redactor = Redactor::new(&[]);
        let records = StepRecords::default();
        for number in 0..=MOST_RECORDS {
            records.record(&started(host(1), "a"), &redactor, at(i64::try_from(number).unwrap()));
        }
        let kept = read(&records);
        assert_eq!(kept.len(), MOST_RECORDS - MOST_RECORDS / 10 + 1);
        assert_eq!(kept.last().unwrap().started, MicroTime(at(i64::try_from(MOST_RECORDS).unwrap())));
    }
}
