//! Serial numbers of certificates.

use rand::RngExt;
use rcgen::SerialNumber;

/// A serial number of 127 random bits: positive and, in practice, unique.
pub(crate) fn random_serial() -> SerialNumber {
    let mut bytes: [u8; 16] = rand::rng().random();
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    SerialNumber::from_slice(&bytes)
}
