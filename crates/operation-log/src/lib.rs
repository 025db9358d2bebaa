//! How the log of an operation and the records of its steps are stored: the contents of the ConfigMap `<job>-log`.
//!
//! ```text
//!   data        log               the last lines, which kubectl shows
//!               steps             records of failed and last steps, which kubectl shows
//!   binaryData  log.zst           the whole log, if it is longer
//!               steps.json.zst    the records of the steps
//! ```
//!
//! A meta cluster keeps many operations of many clusters in etcd, and the lines of a log resemble each other, so they are
//! compressed.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod compression;
mod steps;
mod text;

use std::collections::BTreeMap;
use std::io;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kubeon_api::{StepRecord, labels};

pub use compression::decompressed;
use compression::{compressed, decompressed_within};
use steps::shown_steps;
pub use steps::{compressed_steps, decompressed_steps};
pub use text::{LONGEST_LOG, last_lines};

/// The longest log in bytes that is stored as plain text only.
const LONGEST_PLAIN: usize = 4 * 1024;
/// The most bytes of a compressed log. With the records of steps it fits into a ConfigMap.
const LONGEST_COMPRESSED: usize = 256 * 1024;

/// The contents of a ConfigMap with the log of an operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoredLog {
    /// `data` of the ConfigMap.
    pub data: BTreeMap<String, String>,
    /// `binaryData` of the ConfigMap.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl StoredLog {
    /// The contents for a log and the compressed records of steps. The log loses its beginning if it does not fit.
    ///
    /// # Errors
    /// When the log cannot be compressed.
    pub fn new(log: &str, steps: Option<Vec<u8>>) -> io::Result<Self> {
        let end = last_lines(log, LONGEST_PLAIN);
        let mut stored = Self::plain(end);
        if end.len() < log.len() {
            let whole = ByteString(compressed_log(log)?);
            stored.binary_data.insert(labels::JOB_WHOLE_LOG_KEY.to_owned(), whole);
        }
        let steps = steps.map(|steps| (labels::JOB_STEPS_KEY.to_owned(), ByteString(steps)));
        stored.binary_data.extend(steps);
        Ok(stored)
    }

    /// The contents with records of steps that kubectl shows: those that did not succeed and the last ones, as far as they fit.
    ///
    /// # Errors
    /// When they cannot be written as JSON.
    pub fn with_shown_steps(mut self, records: &[StepRecord]) -> io::Result<Self> {
        let shown = shown_steps(records)?;
        if !shown.is_empty() {
            self.data.insert(labels::JOB_SHOWN_STEPS_KEY.to_owned(), shown);
        }
        Ok(self)
    }

    /// The contents for a short text.
    #[must_use]
    pub fn plain(text: &str) -> Self {
        let data = BTreeMap::from([(labels::JOB_LOG_KEY.to_owned(), text.to_owned())]);
        Self { data, binary_data: BTreeMap::new() }
    }

    /// The number of bytes of all values, which etcd stores.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts: usize = self.data.values().map(String::len).sum();
        texts + self.binary_data.values().map(|value| value.0.len()).sum::<usize>()
    }

    /// The annotation that says how large the contents are.
    #[must_use]
    pub fn annotation(&self) -> (&'static str, String) {
        (labels::STORED_BYTES, self.bytes().to_string())
    }
}

/// The whole log in a ConfigMap; empty without one.
///
/// # Errors
/// When it is damaged, or longer than [`LONGEST_LOG`]: who may write ConfigMaps must not fill the memory of a reader.
pub fn whole_log(map: &ConfigMap) -> io::Result<String> {
    if let Some(whole) = map.binary_data.as_ref().and_then(|values| values.get(labels::JOB_WHOLE_LOG_KEY)) {
        return decompressed_within(&whole.0, LONGEST_LOG as u64);
    }
    Ok(map.data.as_ref().and_then(|values| values.get(labels::JOB_LOG_KEY)).cloned().unwrap_or_default())
}

/// The end of a log that fits.
fn compressed_log(log: &str) -> io::Result<Vec<u8>> {
    let mut rest = log;
    loop {
        let shorter = compressed(rest.as_bytes())?;
        if shorter.len() <= LONGEST_COMPRESSED {
            return Ok(shorter);
        }
        rest = last_lines(rest, rest.len() / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(stored: StoredLog) -> ConfigMap {
        ConfigMap { data: Some(stored.data), binary_data: Some(stored.binary_data), ..ConfigMap::default() }
    }

    #[test]
    fn a_short_log_is_plain_text() {
        let stored = StoredLog::new("one\ntwo\n", None).unwrap();
        assert_eq!(stored.data, [("log".to_owned(), "one\ntwo\n".to_owned())].into());
        assert!(stored.binary_data.is_empty());
        assert_eq!(stored.annotation(), ("kubeon.io/stored-bytes", "8".to_owned()));
        assert_eq!(whole_log(&map(stored)).unwrap(), "one\ntwo\n");
        assert_eq!(whole_log(&ConfigMap::default()).unwrap(), "");
    }

    #[test]
    fn a_long_log_is_compressed_and_kubectl_shows_its_end() {
        let lines: Vec<String> = (0..5000).map(|number| format!("step {number} of the work\n")).collect();
        let log = lines.concat();
        let steps = vec![1, 2, 3];
        let stored = StoredLog::new(&log, Some(steps.clone())).unwrap();
        let end = &stored.data["log"];
        assert!(end.starts_with("step ") && end.ends_with("step 4999 of the work\n"), "{end}");
        assert!(end.len() <= LONGEST_PLAIN);
        assert_eq!(stored.binary_data["steps.json.zst"].0, steps);
        assert!(stored.bytes() < log.len() / 5, "{} of {}", stored.bytes(), log.len());
        assert_eq!(whole_log(&map(stored)).unwrap(), log);
    }

    #[test]
    fn a_log_that_is_longer_than_any_that_is_kept_is_refused() {
        let map_of = |length: usize| {
            let whole = ByteString(zstd::encode_all("\n".repeat(length).as_bytes(), 1).unwrap());
            let values = [(labels::JOB_WHOLE_LOG_KEY.to_owned(), whole)].into();
            ConfigMap { binary_data: Some(values), ..ConfigMap::default() }
        };
        assert_eq!(whole_log(&map_of(LONGEST_LOG)).unwrap().len(), LONGEST_LOG);
        let refused = whole_log(&map_of(LONGEST_LOG + 1)).unwrap_err();
        assert!(refused.to_string().contains("longer than 2 MiB"), "{refused}");
    }

    #[test]
    fn a_log_that_cannot_be_compressed_keeps_its_end() {
        let scrambled =
            |number: u64| number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let log: String = (0..60_000).map(|number| format!("{:016x}\n", scrambled(number))).collect();
        let stored = StoredLog::new(&log, None).unwrap();
        assert!(stored.bytes() <= LONGEST_COMPRESSED + LONGEST_PLAIN, "{}", stored.bytes());
        let whole = whole_log(&map(stored)).unwrap();
        assert!(log.ends_with(&whole) && whole.len() > LONGEST_COMPRESSED, "{}", whole.len());
    }
}
