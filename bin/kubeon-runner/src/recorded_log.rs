//! The end of the pod's log in memory: the kubelet removes a log with its pod, so a runner that is stopped saves it.

use std::sync::Arc;

use kubeon_operation_log::{LONGEST_LOG, last_lines};
use parking_lot::Mutex;

/// The last lines that this process wrote, with secrets redacted.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedLog {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl RecordedLog {
    /// Records lines.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut bytes = self.bytes.lock();
        bytes.extend_from_slice(lines);
        if bytes.len() > 2 * LONGEST_LOG {
            // One extra byte shows that the beginning is missing.
            let excess = bytes.len() - LONGEST_LOG - 1;
            bytes.drain(..excess);
        }
    }

    /// The last whole lines, at most [`LONGEST_LOG`] bytes. Only a last line that is longer loses its beginning. Bytes that are not text
    /// are replaced, and zero bytes as well: each takes six bytes in JSON.
    #[must_use]
    pub(crate) fn last_lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes.lock()).replace('\0', "\u{fffd}");
        last_lines(&text, LONGEST_LOG).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines_are_kept() {
        let log = RecordedLog::default();
        assert_eq!(log.last_lines(), "");
        log.push(b"first\n\xff\0\n");
        assert_eq!(log.last_lines(), "first\n\u{fffd}\u{fffd}\n");
        let line = format!("{}\n", "x".repeat(1022));
        for _ in 0..8000 {
            log.push(line.as_bytes());
        }
        log.push(b"last\n");
        let kept = log.last_lines();
        assert!(kept.len() <= LONGEST_LOG && kept.len() > LONGEST_LOG - 2 * line.len(), "{}", kept.len());
        assert!(kept.starts_with('x') && kept.ends_with("x\nlast\n"));
        assert!(kept.lines().all(|line| line == "last" || line.len() == 1022), "no line is cut");
        log.push(&vec![0; 3 * LONGEST_LOG]);
        log.push(b"\n");
        let kept = log.last_lines();
        assert!(kept.len() <= LONGEST_LOG && kept.ends_with("\u{fffd}\n"), "{}", kept.len());
    }
}
