//! Records of steps: lines of JSON, compressed.

use std::io;

use kubeon_api::StepRecord;

use crate::compression::{compressed, decompressed};

/// The most bytes of compressed records.
const LONGEST: usize = 384 * 1024;

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
