//! Renews the leaves whose authority has its key on this host.

use kubeon_pki::Renewer;
use kubeon_wire::{CertificateFact, StepFailure, renewal_due};

use super::kubelet;
use super::report::RenewalReport;
use crate::durable::{read_text, sha256, stage_file};
use crate::facts::certificates;
use crate::failure::{Doing, failed};
use crate::journal::{self, Entry, Mark};
use crate::root::Root;
use crate::{paths, units};

/// Whether a leaf is due. It only reads, so it needs no lock.
pub(super) fn are_due(root: &Root, now: i64) -> Result<bool, StepFailure> {
    Ok(!due(root, now)?.is_empty() || kubelet::expired(root, now)?.is_some())
}

fn due(root: &Root, now: i64) -> Result<Vec<CertificateFact>, StepFailure> {
    Ok(certificates::all(root)?.into_iter().filter(|found| is_due(found, now)).collect())
}

/// Renews the due leaves that kubeon wrote, one after another. A failure does not stop the others.
pub(super) fn renew(root: &Root, now: i64) -> Result<RenewalReport, StepFailure> {
    let mut entries: Vec<Entry> = journal::all(root)?.into_iter().flatten().collect();
    let due = due(root, now)?;
    let mut report = RenewalReport::default();
    let authorities = authorities(root, &mut report.failures);
    match kubelet::renew(root, &authorities, now) {
        Ok(true) => report.notes.push(format!("renewed {}", paths::KUBELET_OWN)),
        Ok(false) => {}
        Err(failure) => report.failures.push(failure),
    }
    convert_records(root, &entries)?;
    for certificate in &due {
        match renew_leaf(root, &authorities, &mut entries, &certificate.path, now) {
            Ok(true) => report.notes.push(format!("renewed {}", certificate.path)),
            Ok(false) => {}
            Err(failure) => report.failures.push(failure),
        }
    }
    Ok(report)
}

/// Whether the certificate is a leaf that must be renewed. A leaf that begins in the future was issued while the clock
/// of this host was wrong.
pub(super) fn is_due(found: &CertificateFact, now: i64) -> bool {
    let is_authority = paths::AUTHORITIES.iter().any(|(certificate, _)| *certificate == found.path);
    let due = now >= renewal_due(found.not_before, found.not_after) || now < found.not_before;
    !is_authority && due
}

/// The authorities whose key is on this host.
pub(super) fn authorities(root: &Root, failures: &mut Vec<StepFailure>) -> Vec<Renewer> {
    let mut found = Vec::new();
    for (certificate, key) in paths::AUTHORITIES {
        match authority(root, certificate, key) {
            Ok(authority) => found.extend(authority),
            Err(failure) => failures.push(failure),
        }
    }
    found
}

/// An authority; `None` if its key is not on this host.
pub(super) fn authority(root: &Root, certificate: &str, key: &str) -> Result<Option<Renewer>, StepFailure> {
    let (place, key) = (root.at(certificate), root.at(key));
    let (Some(certificate), Some(key)) = (read_text(&place)?, read_text(&key)?) else { return Ok(None) };
    Renewer::new(&certificate, &key, &place).map(Some).map_err(|error| failed(error.to_string()))
}

/// Makes the records of units independent of the dates of certificates.
pub(super) fn convert_records(root: &Root, entries: &[Entry]) -> Result<(), StepFailure> {
    for mark in entries.iter().flat_map(|entry| &entry.marks) {
        if let Mark::Unit { name, watches, .. } = mark {
            units::convert_record(root, name, watches)?;
        }
    }
    Ok(())
}

/// Renews one leaf. Returns false if kubeon did not write it, or no authority on this host issued it.
fn renew_leaf(
    root: &Root,
    authorities: &[Renewer],
    entries: &mut [Entry],
    path: &str,
    now: i64,
) -> Result<bool, StepFailure> {
    let place = root.given(path)?;
    let key = place.with_extension("key");
    let (Some(old), Some(key)) = (read_text(&place)?, read_text(&key)?) else { return Ok(false) };
    let issuer = authorities.iter().find(|authority| authority.has_issued(&old));
    let (Some(issuer), true) = (issuer, entries.iter().any(|entry| writes(entry, path))) else {
        return Ok(false);
    };
    let new = issuer.renew(&old, &key, &place, now).map_err(|error| failed(error.to_string()))?;
    replace(root, entries, path, &new).map(|()| true)
}

/// Replaces a file that kubeon wrote, and its digest in the journal.
pub(super) fn replace(root: &Root, entries: &mut [Entry], path: &str, new: &str) -> Result<(), StepFailure> {
    let place = root.given(path)?;
    let found = entries.iter_mut().find(|entry| writes(entry, path));
    let entry = found.ok_or_else(|| failed(format!("no step of kubeon wrote {path}")))?;
    let mut temporary = None;
    for mark in entry.marks.iter_mut().filter(|mark| is_file(mark, path)) {
        let Mark::File { sha256: digest, mode, .. } = mark else { continue };
        let file = stage_file(&place, new.as_bytes(), *mode)?;
        file.as_file().sync_all().doing("sync", &place)?;
        *digest = sha256(new.as_bytes());
        temporary = Some(file);
    }
    // The journal first: after a kill in between, the old leaf is still due, and the next run renews it.
    journal::remember(root, entry)?;
    temporary.map_or(Ok(()), |file| file.commit(&place).doing("replace", &place))
}

fn writes(entry: &Entry, path: &str) -> bool {
    entry.marks.iter().any(|mark| is_file(mark, path))
}

fn is_file(mark: &Mark, path: &str) -> bool {
    matches!(mark, Mark::File { path: known, .. } if known == path)
}
