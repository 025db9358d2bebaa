//! Compression with Zstandard.

use std::io::{self, Read as _};

/// The most bytes of a text, once it is decompressed.
const LONGEST: u64 = 32 * 1024 * 1024;
/// A slow level: a log is written once and stays for months.
const LEVEL: i32 = 15;

/// The compressed bytes.
pub(crate) fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    zstd::encode_all(bytes, LEVEL)
}

/// The text of something compressed.
///
/// # Errors
/// When it is damaged, no text, or longer than 32 MiB.
pub fn decompressed(bytes: &[u8]) -> io::Result<String> {
    decompressed_within(bytes, LONGEST)
}

/// As [`decompressed`], with another limit in bytes, a multiple of 1 MiB.
pub(crate) fn decompressed_within(bytes: &[u8], most: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = zstd::Decoder::new(bytes)?.take(most + 1).read_to_string(&mut text)?;
    if read as u64 > most {
        let why = format!("it is longer than {} MiB", most / (1024 * 1024));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_bytes_and_very_long_texts_are_errors() {
        assert!(decompressed(b"not compressed").is_err());
        let most = usize::try_from(LONGEST).unwrap();
        let long = zstd::encode_all(vec![b'a'; most + 1].as_slice(), 1).unwrap();
        assert!(decompressed(&long).unwrap_err().to_string().contains("longer than 32 MiB"));
    }
}
