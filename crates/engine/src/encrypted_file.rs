//! Files that only the owner of a key can read or change unseen.
//!
//! ```text
//!   "kubeon-encrypted-1\n" | salt, 32 bytes | blocks of 64 KiB, each followed by 16 bytes of proof
//! ```
//!
//! The key of a file is HKDF-Expand with SHA-256: the owner's key is the pseudorandom key, the info is [`PURPOSE`] and the salt.
//! The blocks are AES-256-GCM in the STREAM construction, whose nonces are [`NONCE`], the number of the block in 32 bits (big
//! endian), and 1 for the last block: no block can be left out, moved or appended.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aead_stream::{DecryptorBE32, EncryptorBE32};
use aes_gcm::Aes256Gcm;
use kubeon_atomic_file::AtomicFile;
use ring::hkdf;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::error::EngineError;

/// The beginning of an encrypted file.
const MAGIC: &[u8] = b"kubeon-encrypted-1\n";
const SALT: usize = 32;
const KEY: usize = 32;
/// Bytes of a block before it is encrypted.
const BLOCK: usize = 64 << 10;
/// Bytes that prove a block.
const PROOF: usize = 16;
/// Every file has a key of its own, so that the nonce may be the same.
const NONCE: [u8; 7] = [0; 7];
/// Binds the keys of files to this use.
const PURPOSE: &[u8] = b"kubeon encrypted file 1";

/// The key of an owner.
pub struct EncryptionKey(hkdf::Prk);

struct KeyOfFile;

impl hkdf::KeyType for KeyOfFile {
    fn len(&self) -> usize {
        KEY
    }
}

impl EncryptionKey {
    /// Reads the key from a file that [`write_new_key`] wrote.
    ///
    /// # Errors
    /// Refuses a file that others may read, and one that is no key.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let failed = |error: io::Error| {
            EngineError::refused(format!("cannot read the key {}", path.display()))
                .row("cause", error.to_string())
        };
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let error = EngineError::refused(format!("others may read the key {}", path.display()));
            return Err(error.row("mode", format!("{mode:o}; at most 600: chmod 600 {}", path.display())));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let bytes = hex::decode(text.trim()).ok().filter(|bytes| bytes.len() == KEY);
        let bytes = bytes.ok_or_else(|| {
            EngineError::refused(format!("{} is no key of kubeon", path.display()))
                .row("expected", format!("{} hexadecimal digits: kubeon etcd new-key FILE", 2 * KEY))
        })?;
        Ok(Self::of(&bytes))
    }

    fn of(bytes: &[u8]) -> Self {
        Self(hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, bytes))
    }

    /// The key of the file with this salt.
    fn of_file(&self, salt: &[u8; SALT]) -> io::Result<[u8; KEY]> {
        let mut key = [0; KEY];
        let expanded =
            self.0.expand(&[PURPOSE, salt], KeyOfFile).and_then(|material| material.fill(&mut key));
        expanded.map(|()| key).map_err(|_| io::Error::other("the key of the file could not be derived"))
    }

    /// Encrypts everything that can be read.
    ///
    /// # Errors
    /// When reading or writing fails.
    pub fn encrypt(&self, from: impl Read, to: impl Write) -> io::Result<()> {
        let mut salt = [0; SALT];
        SystemRandom::new().fill(&mut salt).map_err(|_| io::Error::other("no random numbers"))?;
        let mut stream = EncryptorBE32::<Aes256Gcm>::new(&self.of_file(&salt)?.into(), &NONCE.into());
        let (mut from, mut to) = (BufReader::with_capacity(BLOCK, from), BufWriter::new(to));
        to.write_all(MAGIC)?;
        to.write_all(&salt)?;
        let too_long = |_| io::Error::new(io::ErrorKind::FileTooLarge, "too many blocks to encrypt");
        let mut block = read_block(&mut from, BLOCK)?;
        loop {
            let next = read_block(&mut from, BLOCK)?;
            if next.is_empty() {
                stream.encrypt_last_in_place(b"", &mut block).map_err(too_long)?;
                to.write_all(&block)?;
                return to.flush();
            }
            stream.encrypt_next_in_place(b"", &mut block).map_err(too_long)?;
            to.write_all(&block)?;
            block = next;
        }
    }

    /// Decrypts a whole file. What was written before an error must not be used.
    ///
    /// # Errors
    /// When reading or writing fails, or the content was encrypted with another key, cut or changed.
    pub fn decrypt(&self, from: impl Read, to: impl Write) -> io::Result<()> {
        let wrong = |_| {
            io::Error::new(io::ErrorKind::InvalidData, "it was encrypted with another key, cut or changed")
        };
        let (mut from, mut to) = (BufReader::with_capacity(BLOCK + PROOF, from), BufWriter::new(to));
        let (mut magic, mut salt) = ([0; MAGIC.len()], [0; SALT]);
        from.read_exact(&mut magic)?;
        from.read_exact(&mut salt)?;
        if magic != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not encrypted by kubeon"));
        }
        let mut stream = DecryptorBE32::<Aes256Gcm>::new(&self.of_file(&salt)?.into(), &NONCE.into());
        let mut block = read_block(&mut from, BLOCK + PROOF)?;
        loop {
            let next = read_block(&mut from, BLOCK + PROOF)?;
            if next.is_empty() {
                stream.decrypt_last_in_place(b"", &mut block).map_err(wrong)?;
                to.write_all(&block)?;
                return to.flush();
            }
            stream.decrypt_next_in_place(b"", &mut block).map_err(wrong)?;
            to.write_all(&block)?;
            block = next;
        }
    }
}

/// Up to `size` bytes; fewer only at the end.
fn read_block(from: &mut impl Read, size: usize) -> io::Result<Vec<u8>> {
    let mut block = Vec::with_capacity(size);
    from.take(size as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// Whether the file begins as an encrypted one.
///
/// # Errors
/// When it cannot be read.
pub fn is_encrypted(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == MAGIC)
}

/// Writes a new key to a file, 0600, that does not exist.
///
/// # Errors
/// Refuses an existing file; fails when it cannot be written.
pub fn write_new_key(path: &Path) -> Result<(), EngineError> {
    let failed = |error: io::Error| {
        EngineError::failed(format!("cannot write the key {}", path.display()))
            .row("cause", error.to_string())
    };
    let mut key = [0; KEY];
    SystemRandom::new().fill(&mut key).map_err(|_| failed(io::Error::other("no random numbers")))?;
    let file = AtomicFile::beside(path, 0o600).map_err(failed)?;
    file.as_file().write_all(format!("{}\n", hex::encode(key)).as_bytes()).map_err(failed)?;
    if file.commit_if_absent(path).map_err(failed)? {
        return Ok(());
    }
    let error = EngineError::refused(format!("{} exists", path.display()));
    Err(error
        .row("cause", "what was encrypted with a key can be read with that key only; choose another file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> EncryptionKey {
        EncryptionKey::of(&[byte; KEY])
    }

    fn encrypted(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        key(1).encrypt(content, &mut out).unwrap();
        out
    }

    fn decrypted(key: &EncryptionKey, content: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        key.decrypt(content, &mut out).map(|()| out)
    }

    #[test]
    fn content_of_every_length_comes_back() {
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 7] {
            let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let hidden = encrypted(&content);
            assert_eq!(decrypted(&key(1), &hidden).unwrap(), content, "{length}");
        }
    }

    #[test]
    fn the_same_content_is_encrypted_differently_each_time() {
        let (one, other) = (encrypted(&[7; 100]), encrypted(&[7; 100]));
        assert_ne!(one[MAGIC.len() + SALT..], other[MAGIC.len() + SALT..]);
        assert!(!one.windows(8).any(|window| window == [7; 8]));
    }

    #[test]
    fn another_key_and_every_change_are_noticed() {
        let content = vec![7; 2 * BLOCK + 9];
        let hidden = encrypted(&content);
        let fails = |key: &EncryptionKey, changed: &[u8]| assert!(decrypted(key, changed).is_err());
        fails(&key(2), &hidden);
        let head = MAGIC.len() + SALT;
        let block = BLOCK + PROOF;
        for at in [0, MAGIC.len(), head, head + BLOCK, head + block + 5, hidden.len() - 1] {
            let mut changed = hidden.clone();
            changed[at] ^= 1;
            fails(&key(1), &changed);
        }
        for cut in [0, 5, head, head + block, head + 2 * block, hidden.len() - 1] {
            fails(&key(1), &hidden[..cut]);
        }
        let (first, second) = (&hidden[head..head + block], &hidden[head + block..head + 2 * block]);
        let swapped = [&hidden[..head], second, first, &hidden[head + 2 * block..]].concat();
        fails(&key(1), &swapped);
        fails(&key(1), &[&hidden[..], &[0; 20]].concat());
    }

    #[test]
    fn a_key_is_written_once_and_read_only_while_nobody_else_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        write_new_key(&path).unwrap();
        assert!(write_new_key(&path).unwrap_err().title.ends_with("exists"));
        let mut out = Vec::new();
        EncryptionKey::read(&path).unwrap().encrypt(&b"text"[..], &mut out).unwrap();
        assert_eq!(decrypted(&EncryptionKey::read(&path).unwrap(), &out).unwrap(), b"text");
        fs::write(folder.path().join("file"), &out).unwrap();
        assert!(is_encrypted(&folder.path().join("file")).unwrap());
        assert!(!is_encrypted(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(EncryptionKey::read(&path).err().unwrap().to_string().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short").unwrap();
        assert!(EncryptionKey::read(&path).err().unwrap().title.contains("is no key"));
    }
}
