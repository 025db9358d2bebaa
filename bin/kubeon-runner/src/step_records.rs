//! The records of the steps of this operation, with secrets redacted.

use std::io::{self, Read as _};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kubeon_api::{HostAddress, StepRecord, StepResult};
use kubeon_wire::Progress;
use parking_lot::Mutex;

use crate::redactor::Redactor;
use crate::tail::clip;

/// The most records in memory. Beyond them the oldest are dropped.
const MOST_RECORDS: usize = 20_000;
/// The most bytes of the stored records: with the log they fit into a ConfigMap.
const MOST_BYTES: usize = 384 * 1024;
/// The most bytes of the records of an earlier pod, unpacked.
const MOST_UNPACKED: u64 = 32 * 1024 * 1024;
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

    /// Lines of JSON, compressed with Zstandard; the last ones, if all of them are too large. `None` without records.
    ///
    /// # Errors
    /// When they cannot be written as JSON or compressed.
    pub(crate) fn stored(&self) -> io::Result<Option<Vec<u8>>> {
        let records = self.records.lock().clone();
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let mut lines = Vec::new();
            for record in rest {
                serde_json::to_writer(&mut lines, record)?;
                lines.push(b'\n');
            }
            let stored = zstd::encode_all(lines.as_slice(), 0)?;
            if stored.len() <= MOST_BYTES {
                return Ok(Some(stored));
            }
            rest = rest.get(rest.len().div_ceil(2)..).unwrap_or_default();
        }
        Ok(None)
    }

    /// Begins with the records that an earlier pod stored.
    ///
    /// # Errors
    /// When they are damaged.
    pub(crate) fn repeat(&self, stored: &[u8]) -> io::Result<()> {
        let mut text = String::new();
        zstd::Decoder::new(stored)?.take(MOST_UNPACKED).read_to_string(&mut text)?;
        let earlier = text.lines().map(serde_json::from_str).collect::<Result<Vec<StepRecord>, _>>()?;
        self.records.lock().splice(..0, earlier).for_each(drop);
        Ok(())
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
        let again = StepRecords::default();
        again.repeat(&records.stored().unwrap().unwrap()).unwrap();
        again.records.lock().clone()
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
        later.repeat(&earlier.stored().unwrap().unwrap()).unwrap();
        let steps: Vec<_> = read(&later).into_iter().map(|record| record.step).collect();
        assert_eq!(steps, ["a", "b"]);
        assert!(later.repeat(b"no records").is_err());
    }

    #[test]
    fn the_last_records_of_very_many_are_stored() {
        let redactor = Redactor::new(&[]);
        let records = StepRecords::default();
        for number in 0..=MOST_RECORDS {
            // Digests are hard to compress.
            let step = format!("{:x}", scrambled(number));
            records.record(&started(host(1), &step), &redactor, at(i64::try_from(number).unwrap()));
        }
        let stored = records.stored().unwrap().unwrap();
        assert!(stored.len() <= MOST_BYTES, "{}", stored.len());
        let kept = read(&records);
        assert_eq!(kept.last().unwrap().started, MicroTime(at(i64::try_from(MOST_RECORDS).unwrap())));
        assert!(kept.len() > 1_000, "{}", kept.len());
    }

    /// A number without a pattern.
    fn scrambled(number: usize) -> u128 {
        let mixed = (number as u128 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (mixed ^ (mixed >> 61)).wrapping_mul(0xd1b5_4a32_d192_ed03_94d0_49bb_1331_11eb)
    }
}
