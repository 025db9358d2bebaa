//! The end of a log.

/// The longest log in bytes that is kept: the end of a longer one.
pub const LONGEST_LOG: usize = 2 * 1024 * 1024;

/// The last whole lines of a text, at most so many bytes. Only a last line that is longer loses its beginning.
#[must_use]
pub fn last_lines(text: &str, most_bytes: usize) -> &str {
    let Some(from) = text.len().checked_sub(most_bytes).filter(|from| *from > 0) else { return text };
    // A line that begins exactly there is whole.
    let end = text.get(text.ceil_char_boundary(from)..).unwrap_or_default();
    let begins_line = text.as_bytes().get(from - 1) == Some(&b'\n');
    let lines =
        end.split_once('\n').map(|(_, lines)| lines).filter(|lines| !begins_line && !lines.is_empty());
    lines.unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_remain_except_of_one_long_line() {
        assert_eq!(last_lines("", 3), "");
        assert_eq!(last_lines("ab\ncd\n", 6), "ab\ncd\n");
        assert_eq!(last_lines("ab\ncd\n", 5), "cd\n");
        assert_eq!(last_lines("ab\ncd\n", 3), "cd\n");
        assert_eq!(last_lines("ab\ncdef\n", 3), "ef\n");
        assert_eq!(last_lines("aä", 1), "");
    }
}
