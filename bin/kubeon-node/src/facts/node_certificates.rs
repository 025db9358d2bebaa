//! The certificates that a node shows of its host, as an annotation.

use kubeon_wire::{CertificateFact, NodeCertificates};

/// The annotation.
pub(crate) const ANNOTATION: &str = "kubeon.io/certificates";
/// The longest text that is read.
const LONGEST: usize = 4096;
/// The latest time that a certificate can name, the end of the year 9999, in seconds since 1970.
const LATEST: i64 = 253_402_300_799;

/// Reads the text of the annotation. A host can write it to its own node: what cannot be true is left out.
pub(super) fn read(text: &str) -> NodeCertificates {
    let text = Some(text).filter(|text| text.len() <= LONGEST);
    let found: NodeCertificates = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    NodeCertificates { first: found.first.filter(is_plausible), kubelet: found.kubelet.filter(is_plausible) }
}

fn is_plausible(fact: &CertificateFact) -> bool {
    let times = 0..=LATEST;
    fact.path.bytes().all(|byte| byte.is_ascii_graphic())
        && times.contains(&fact.not_before)
        && times.contains(&fact.not_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_host_wrote_and_nothing_that_cannot_be_true() {
        let fact =
            |path: &str, not_after| CertificateFact { path: path.to_owned(), not_before: 1, not_after };
        let written = NodeCertificates { first: Some(fact("/a.crt", 9)), kubelet: Some(fact("/b.pem", 8)) };
        assert_eq!(read(&serde_json::to_string(&written).unwrap()), written);
        let none = NodeCertificates::default();
        for (path, not_after) in [("/a\u{1b}[2J", 9), ("/a.crt", i64::MAX), ("/a.crt", -1)] {
            let wrong = NodeCertificates { first: Some(fact(path, not_after)), kubelet: None };
            assert_eq!(read(&serde_json::to_string(&wrong).unwrap()), none);
        }
        assert_eq!(read("{"), none);
        assert_eq!(read(&" ".repeat(LONGEST + 1)), none);
    }
}
