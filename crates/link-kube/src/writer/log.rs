//! The end of a log, whatever bytes stand in it.

use std::io;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};

/// The last lines of a log: at most `most` bytes of text, and no line's end without its beginning unless the last line is
/// longer than that. What is no text is replaced, because a program may write what it likes, and the rest is to be kept.
pub(super) async fn last_lines<R>(mut log: R, most: usize) -> io::Result<String>
where
    R: AsyncBufRead + Unpin,
{
    let mut kept = Vec::new();
    loop {
        let part = log.fill_buf().await?;
        if part.is_empty() {
            return Ok(end_of(&text_of(&kept), most).to_owned());
        }
        kept.extend_from_slice(part);
        let read = part.len();
        log.consume_unpin(read);
        // A line may have no end, so what is cut away here is cut anywhere. One byte more tells whether a line begins.
        if kept.len() > 2 * most {
            kept.drain(..kept.len() - most - 1);
        }
    }
}

/// These bytes as whole lines of text. A zero byte takes six in JSON, and an API server would refuse a log full of them.
fn text_of(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The last `most` bytes of a text, or fewer, from where a line begins; if none begins there, from any letter.
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

    /// Three bytes at a time, so that lines and letters are cut.
    async fn read(log: &[u8], most: usize) -> String {
        last_lines(BufReader::with_capacity(3, Cursor::new(log)), most).await.unwrap()
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_replaced_and_the_rest_is_kept() {
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
    async fn of_a_line_that_is_too_long_the_end_is_kept() {
        let long = "é".repeat(1000);
        for most in [15, 16] {
            assert_eq!(read(long.as_bytes(), most).await, "é".repeat(7) + "\n");
        }
        assert_eq!(read(&[0; 100], 30).await, "\u{fffd}".repeat(9) + "\n");
        assert_eq!(read(b"one\ntwo\n", 0).await, "");
    }

    /// What is replaced takes three bytes in the place of one.
    #[tokio::test]
    async fn no_more_text_is_kept_than_asked_for() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| u8::try_from(at * 31 % 256).unwrap()).collect();
        for most in [1, 7, 64, 1000] {
            assert!(read(&bytes, most).await.len() <= most, "{most}");
        }
    }
}
