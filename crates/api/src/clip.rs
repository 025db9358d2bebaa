//! Texts of limited length.

/// The beginning of a text with at most `bytes` bytes, not cut inside a character.
#[must_use]
pub fn clip(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_cuts_a_character() {
        assert_eq!([0, 1, 2, 3, 4, 9].map(|bytes| clip("aäb", bytes)), ["", "a", "a", "aä", "aäb", "aäb"]);
        assert_eq!(clip("", 5), "");
    }
}
