//! The end of a log with arbitrary bytes.

use std::io;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};

/// The last lines of a log, at most `most` bytes of text. Only a last line that is longer than `most` loses
/// its beginning. Bytes that are not UTF-8 are replaced, so that the rest is kept.
pub(super) async fn last_lines<R>(mut log: R, most: usize) -> io::Result<String>
where
    R: AsyncBufRead + Unpin,
{
    let mut bytes = Vec::new();
    loop {
        let chunk = log.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(end_of(&text_of(&bytes), most).to_owned());
        }
        bytes.extend_from_slice(chunk);
        let read = chunk.len();
        log.consume_unpin(read);
        // A line may be longer than the buffer, so the cut may be anywhere. One extra byte shows whether a
        // line begins.
        if bytes.len() > 2 * most {
            bytes.drain(..bytes.len() - most - 1);
        }
    }
}

/// The bytes as complete lines of text. Zero bytes are replaced, because each takes six bytes in JSON and the
/// API server would refuse a log full of them.
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// At most the last `most` bytes of a text, from the beginning of a line; when no line begins there, from any
/// character.
fn end_of(text: &str, most: usize) -> &str {
    let Some(from) = text.len().checked_sub(most).filter(|from| *from > 0) else { return text };
    let newline = text.as_bytes().iter().skip(from - 1).position(|byte| *byte == b'\n');
    let line = newline.map(|at| from + at).filter(|line| *line < text.len());
    let start = line.unwrap_or_else(|| text.ceil_char_boundary(from));
    text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use futures::io::{BufReader, Cursor};

    use super::*;

    /// Reads three bytes at a time, so that lines and characters are cut.
    async fn read(log: &[u8], most: usize) -> String {
        last_lines(BufReader::with_capacity(3, Cursor::new(log)), most).await.unwrap()
    }

    #[tokio::test]
    async fn bytes_that_are_not_utf8_are_replaced_and_the_rest_is_kept() {
        assert_eq!(read(b"one\n\xff\xfe two\nthree", 100).await, "one\n\u{fffd}\u{fffd} two\nthree\n");
        assert_eq!(read("größer\n".as_bytes(), 100).await, "größer\n");
        assert_eq!(read(b"", 100).await, "");
    }

    #[tokio::test]
    async fn of_a_long_log_the_last_whole_lines_are_kept() {
        assert_eq!(read(b"first\nsecond\nthird\n", 19).await, "first\nsecond\nthird\n");
        assert_eq!(read(b"first\nsecond\nthird\n", 13).await, "second\nthird\n");
        assert_eq!(read(b"first\nsecond\nthird\n", 12).await, "third\n");
        let many: String = (0..1000).map(|at| format!("line {at}\n")).collect();
        assert_eq!(read(many.as_bytes(), 20).await, "line 998\nline 999\n");
        assert_eq!(read(many.as_bytes(), 18).await, "line 998\nline 999\n");
    }

    #[tokio::test]
    async fn the_end_of_a_too_long_line_is_kept() {
        let long = "é".repeat(1000);
        for most in [15, 16] {
            assert_eq!(read(long.as_bytes(), most).await, "é".repeat(7) + "\n");
        }
        assert_eq!(read(&[0; 100], 30).await, "\u{fffd}".repeat(9) + "\n");
        assert_eq!(read(b"one\ntwo\n", 0).await, "");
    }

    /// A replaced byte takes three bytes.
    #[tokio::test]
    async fn the_text_has_at_most_the_given_bytes() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| u8::try_from(at * 31 % 256).unwrap()).collect();
        for most in [1, 7, 64, 1000] {
            assert!(read(&bytes, most).await.len() <= most, "{most}");
        }
    }
}
