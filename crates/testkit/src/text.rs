//! Short fingerprints for comparisons. They are not cryptographic, because tests have no attacker.

/// FNV-1a, 16 hexadecimal digits.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// 64 hexadecimal digits that differ if the text differs: a replacement for a SHA-256 digest.
#[must_use]
pub fn sha256_like(text: &str) -> String {
    (0..4).map(|round| fingerprint(&format!("{round}{text}"))).collect()
}
