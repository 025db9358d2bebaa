//! Short fingerprints for comparisons. They are not cryptographic, because tests have no attacker.

/// FNV-1a, 16 hexadecimal digits.
#[must_use]
pub fn fingerprint(text: &str) -> String {
    // An iterator would cost a call for each byte in the `dev` profile, and the crash tests do little else.
    let (bytes, mut hash, mut at) = (text.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ u64::from(bytes[at])).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    format!("{hash:016x}")
}

/// 64 hexadecimal digits that differ if the text differs: a replacement for a SHA-256 digest.
#[must_use]
pub fn sha256_like(text: &str) -> String {
    (0..4).map(|round| fingerprint(&format!("{round}{text}"))).collect()
}
