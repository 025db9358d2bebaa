//! Records of steps: lines of JSON, compressed. The most important ones are also plain text.

use std::collections::BTreeMap;
use std::io;

use kubeon_api::{StepRecord, StepResult};

use crate::compression::{compressed, decompressed};

/// The most bytes of compressed records.
const LONGEST: usize = 384 * 1024;
/// The most bytes of records as plain text.
const LONGEST_SHOWN: usize = 4 * 1024;

/// The compressed records; the last ones, if all of them are too large. `None` without records.
///
/// # Errors
/// When they cannot be written as JSON or compressed.
pub fn compressed_steps(records: &[StepRecord]) -> io::Result<Option<Vec<u8>>> {
    let mut rest = records;
    while !rest.is_empty() {
        let mut lines = Vec::new();
        for record in rest {
            serde_json::to_writer(&mut lines, record)?;
            lines.push(b'\n');
        }
        let shorter = compressed(&lines)?;
        if shorter.len() <= LONGEST {
            return Ok(Some(shorter));
        }
        rest = rest.get(rest.len().div_ceil(2)..).unwrap_or_default();
    }
    Ok(None)
}

/// Records as plain text, in the order of their start. Those of steps that did not succeed are chosen first, then the others, each
/// time from the last one backwards, as far as they fit.
///
/// # Errors
/// When they cannot be written as JSON.
pub(crate) fn shown_steps(records: &[StepRecord]) -> io::Result<String> {
    let succeeded = |record: &StepRecord| matches!(record.result, StepResult::Changed | StepResult::UpToDate);
    let last_first = |success: bool| {
        records.iter().enumerate().rev().filter(move |(_, record)| succeeded(record) == success)
    };
    let (mut lines, mut bytes) = (BTreeMap::new(), 0);
    for (at, record) in last_first(false).chain(last_first(true)) {
        let line = format!("{}\n", serde_json::to_string(record)?);
        bytes += line.len();
        if bytes > LONGEST_SHOWN {
            break;
        }
        lines.insert(at, line);
    }
    Ok(lines.into_values().collect())
}

/// The records, in the order of their start.
///
/// # Errors
/// When they are damaged, or longer than 32 MiB.
pub fn decompressed_steps(bytes: &[u8]) -> io::Result<Vec<StepRecord>> {
    let text = decompressed(bytes)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(step: &str) -> StepRecord {
        serde_json::from_str(&format!(
            r#"{{"host":"10.0.0.1","name":"h1","step":"{step}","started":"2026-01-01T00:00:00.000000Z","result":"Failed","cause":"b"}}"#
        ))
        .unwrap()
    }

    #[test]
    fn records_come_back_and_damaged_ones_are_an_error() {
        assert_eq!(compressed_steps(&[]).unwrap(), None);
        let records = [record("a"), record("b")];
        let compressed = compressed_steps(&records).unwrap().unwrap();
        assert_eq!(decompressed_steps(&compressed).unwrap(), records);
        assert!(decompressed_steps(&zstd::encode_all(&b"{}"[..], 0).unwrap()).is_err());
        assert!(decompressed_steps(b"not compressed").is_err());
    }

    #[test]
    fn failures_and_the_last_steps_are_shown_as_far_as_they_fit() {
        assert_eq!(shown_steps(&[]).unwrap(), "");
        let mut records: Vec<StepRecord> = (0..100)
            .map(|number| StepRecord { result: StepResult::Changed, ..record(&format!("s{number}")) })
            .collect();
        let shown = |records: &[StepRecord]| {
            let text = shown_steps(records).unwrap();
            assert!(text.len() <= LONGEST_SHOWN, "{}", text.len());
            let lines = text.lines().map(|line| serde_json::from_str::<StepRecord>(line).unwrap().step);
            lines.collect::<Vec<_>>()
        };
        assert_eq!(shown(&records[..3]), ["s0", "s1", "s2"]);
        records[7].result = StepResult::Failed;
        let some = shown(&records);
        assert_eq!((some[0].as_str(), some.last().unwrap().as_str()), ("s7", "s99"));
        assert!(some.len() > 10 && some[1].as_str() > "s50", "{some:?}");
        let long = StepRecord { why: "w".repeat(LONGEST_SHOWN), ..record("long") };
        assert_eq!(shown(&[record("a"), long]), [""; 0]);
    }

    #[test]
    fn the_last_records_of_very_many_are_kept() {
        // Digests are hard to compress.
        let scrambled = |number: u128| {
            let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            (mixed ^ (mixed >> 61)).wrapping_mul(0xd1b5_4a32_d192_ed03_94d0_49bb_1331_11eb)
        };
        let records: Vec<StepRecord> =
            (0..20_000).map(|number| record(&format!("{:x}", scrambled(number)))).collect();
        let compressed = compressed_steps(&records).unwrap().unwrap();
        assert!(compressed.len() <= LONGEST, "{}", compressed.len());
        let kept = decompressed_steps(&compressed).unwrap();
        assert_eq!(kept.last(), records.last());
        assert!(kept.len() > 1_000, "{}", kept.len());
    }
}
