//! The lines of a log, made one after another. Neither a long line nor a long log fills the memory.

use std::io;
use std::pin::Pin;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use futures::stream::{BoxStream, StreamExt as _, unfold};

use crate::limits::LogPlace;
use crate::request_error::RequestError;

/// The longest line in bytes. The rest of a longer one is left out.
const LONGEST_LINE: usize = 64 * 1024;
/// The end of a line that was cut.
const CUT: &str = " [kubeon: the rest of this line is left out]";
/// The most bytes of a log that one request reads, with those that are left out.
const LIMIT: usize = 16 * 1024 * 1024;
/// Why a log ends before its last line.
const LIMIT_REACHED: &str = "16 MiB of the log were read, which is the most for one request, and more follow: read on with \
                             since=SECONDS, which gives the lines of the last seconds, or read the end with tail=LINES";

/// The bytes of a log.
pub(crate) type LogBytes = Pin<Box<dyn AsyncBufRead + Send>>;

/// The parts of a log, as they come.
pub(crate) type LogParts = BoxStream<'static, Result<LogPart, RequestError>>;

/// A part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogPart {
    /// A line without its line break. A longer one than 64 KiB was cut and says so.
    Line(String),
    /// Why the log ends before its last line.
    End(&'static str),
}

impl LogPart {
    /// The part as text with a line break.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Line(line) => line + "\n",
            Self::End(why) => format!("[kubeon: {why}]\n"),
        }
    }
}

/// The parts of a log, at most 16 MiB. The place is taken until the stream is dropped.
pub(crate) fn log_parts(bytes: LogBytes, place: LogPlace) -> LogParts {
    let state = (LineReader::new(bytes, LIMIT), place);
    unfold(Some(state), |state| async move {
        let (mut reader, place) = state?;
        match reader.next().await {
            Ok(part) => Some((Ok(part?), Some((reader, place)))),
            Err(error) => {
                tracing::debug!(%error, "a log was interrupted");
                Some((Err(RequestError::unavailable("the log was interrupted; try again")), None))
            }
        }
    })
    .boxed()
}

struct LineReader {
    bytes: LogBytes,
    /// The bytes that may still be read.
    left: usize,
    /// Whether the bytes up to the next line break are the rest of a line that was cut.
    skips: bool,
    ended: bool,
}

impl LineReader {
    fn new(bytes: LogBytes, left: usize) -> Self {
        Self { bytes, left, skips: false, ended: false }
    }

    /// The next part; `None` after the last one.
    async fn next(&mut self) -> io::Result<Option<LogPart>> {
        let mut line = Vec::new();
        while !self.ended {
            let bytes = self.bytes.fill_buf().await?;
            if bytes.is_empty() {
                self.ended = true;
                return Ok((!line.is_empty()).then(|| LogPart::Line(text_of(line))));
            }
            if self.left == 0 {
                if !line.is_empty() {
                    return Ok(Some(LogPart::Line(cut_text_of(line))));
                }
                self.ended = true;
                return Ok(Some(LogPart::End(LIMIT_REACHED)));
            }
            let most = &bytes[..bytes.len().min(self.left)];
            let line_break = most.iter().position(|byte| *byte == b'\n');
            let text = &most[..line_break.unwrap_or(most.len())];
            let room = LONGEST_LINE - line.len();
            let skipped = self.skips;
            if !skipped {
                line.extend_from_slice(&text[..text.len().min(room)]);
            }
            let is_cut = !skipped && text.len() > room;
            let read = text.len() + usize::from(line_break.is_some());
            self.bytes.consume_unpin(read);
            self.left -= read;
            self.skips = line_break.is_none() && (skipped || is_cut);
            if is_cut {
                return Ok(Some(LogPart::Line(cut_text_of(line))));
            }
            if line_break.is_some() && !skipped {
                return Ok(Some(LogPart::Line(text_of(line))));
            }
        }
        Ok(None)
    }
}

/// The text of a line. Bytes that are not text are replaced.
fn text_of(mut line: Vec<u8>) -> String {
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The text of a line that was cut, without a half character at its end.
fn cut_text_of(mut line: Vec<u8>) -> String {
    if let Err(error) = std::str::from_utf8(&line)
        && error.error_len().is_none()
    {
        line.truncate(error.valid_up_to());
    }
    text_of(line) + CUT
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::io::{BufReader, Cursor};

    use super::*;

    /// The parts of a log that arrives in pieces of this size.
    fn parts_of(log: impl AsRef<[u8]>, piece: usize, most: usize) -> Vec<LogPart> {
        let bytes = BufReader::with_capacity(piece, Cursor::new(log.as_ref().to_vec()));
        let mut reader = LineReader::new(Box::pin(bytes), most);
        let mut parts = Vec::new();
        while let Some(part) = block_on(reader.next()).unwrap() {
            parts.push(part);
        }
        parts
    }

    fn lines(texts: &[&str]) -> Vec<LogPart> {
        texts.iter().map(|text| LogPart::Line((*text).to_owned())).collect()
    }

    #[test]
    fn lines_are_those_of_the_log_in_whatever_pieces_it_arrives() {
        for piece in [1, 2, 3, 100] {
            let cases: [(&[u8], &[&str]); 6] = [
                (b"", &[]),
                (b"a", &["a"]),
                (b"a\n", &["a"]),
                (b"a\r\n\nbc\nd", &["a", "", "bc", "d"]),
                ("\u{e9}\n".as_bytes(), &["\u{e9}"]),
                (b"\xff\n", &["\u{fffd}"]),
            ];
            for (log, expected) in cases {
                assert_eq!(parts_of(log, piece, LIMIT), lines(expected), "{piece}: {log:?}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        let long = "x".repeat(LONGEST_LINE);
        for piece in [1000, LONGEST_LINE, 10 * LONGEST_LINE] {
            for rest in ["y", "yyyy", &"y".repeat(3 * LONGEST_LINE)] {
                let found = parts_of(format!("a\n{long}{rest}\nb\n{long}\n{long}{rest}"), piece, LIMIT);
                let cut = format!("{long}{CUT}");
                assert_eq!(found, lines(&["a", &cut, "b", &long, &cut]), "{piece}");
            }
        }
        let half = format!("{}\u{e9}\n", "x".repeat(LONGEST_LINE - 1));
        let expected = format!("{}{CUT}", "x".repeat(LONGEST_LINE - 1));
        assert_eq!(parts_of(half, 1000, LIMIT), lines(&[&expected]), "half a character is left out");
    }

    #[test]
    fn a_long_log_ends_with_the_way_to_go_on() {
        let end = LogPart::End(LIMIT_REACHED);
        assert_eq!(parts_of("ab\ncd\n", 2, 6), lines(&["ab", "cd"]), "it fits");
        assert_eq!(
            parts_of("ab\ncd\ne", 2, 6),
            [&lines(&["ab", "cd"])[..], std::slice::from_ref(&end)].concat()
        );
        let cut = format!("c{CUT}");
        assert_eq!(
            parts_of("ab\ncd\n", 9, 4),
            [&lines(&["ab", &cut])[..], std::slice::from_ref(&end)].concat()
        );
        // Also a line without an end ends.
        let cut = format!("{}{CUT}", "x".repeat(LONGEST_LINE));
        let found = parts_of("x".repeat(LIMIT + 1), 100_000, LIMIT);
        assert_eq!(found, [&lines(&[&cut])[..], std::slice::from_ref(&end)].concat());
        let text = end.into_text();
        assert!(text.contains("since=SECONDS") && text.ends_with("]\n"), "{text}");
    }
}
