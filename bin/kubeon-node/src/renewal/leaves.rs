//! Renews the leaves whose authority has its key on this host.

use kubeon_pki::Renewer;
use kubeon_wire::{CertificateFact, StepFailure, renewal_due};

use super::RenewalReport;
use crate::durable::{read_text, sha256, stage_file};
use crate::facts::certificates;
use crate::failure::{Doing, failed};
use crate::journal::{self, Entry, Mark};
use crate::root::Root;
use crate::{paths, units};

/// Renews the due leaves that kubeon wrote, one after another. A failure does not stop the others.
pub(super) fn renew(root: &Root, now: i64) -> Result<RenewalReport, StepFailure> {
    let mut entries: Vec<Entry> = journal::all(root)?.into_iter().flatten().collect();
    let due: Vec<CertificateFact> =
        certificates::all(root)?.into_iter().filter(|found| is_due(found, now)).collect();
    let mut report = RenewalReport::default();
    if due.is_empty() {
        return Ok(report);
    }
    let authorities = authorities(root, &mut report);
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
fn is_due(found: &CertificateFact, now: i64) -> bool {
    let is_authority = paths::AUTHORITIES.iter().any(|(certificate, _)| *certificate == found.path);
    let due = now >= renewal_due(found.not_before, found.not_after) || now < found.not_before;
    !is_authority && due
}

/// The authorities whose key is on this host.
fn authorities(root: &Root, report: &mut RenewalReport) -> Vec<Renewer> {
    let mut found = Vec::new();
    for (certificate, key) in paths::AUTHORITIES {
        match authority(root, certificate, key) {
            Ok(authority) => found.extend(authority),
            Err(failure) => report.failures.push(failure),
        }
    }
    found
}

fn authority(root: &Root, certificate: &str, key: &str) -> Result<Option<Renewer>, StepFailure> {
    let (place, key) = (root.at(certificate), root.at(key));
    let (Some(certificate), Some(key)) = (read_text(&place)?, read_text(&key)?) else { return Ok(None) };
    Renewer::new(&certificate, &key, &place).map(Some).map_err(|error| failed(error.to_string()))
}

/// Makes the records of units independent of the dates of certificates.
fn convert_records(root: &Root, entries: &[Entry]) -> Result<(), StepFailure> {
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
    let Some((entry, index)) = entries.iter_mut().find_map(|entry| {
        let index = entry.marks.iter().position(|mark| is_file(mark, path))?;
        Some((entry, index))
    }) else {
        return Ok(false);
    };
    let place = root.given(path)?;
    let key = place.with_extension("key");
    let (Some(old), Some(key)) = (read_text(&place)?, read_text(&key)?) else { return Ok(false) };
    let Some(authority) = authorities.iter().find(|authority| authority.has_issued(&old)) else {
        return Ok(false);
    };
    let new = authority.renew(&old, &key, &place, now).map_err(|error| failed(error.to_string()))?;
    let Mark::File { sha256: digest, mode, .. } = &mut entry.marks[index] else { return Ok(false) };
    let file = stage_file(&place, new.as_bytes(), *mode)?;
    file.as_file().sync_all().doing("sync", &place)?;
    // The journal first: after a kill in between, the old leaf is still due, and the next run renews it.
    *digest = sha256(new.as_bytes());
    journal::remember(root, entry)?;
    file.commit(&place).doing("replace", &place)?;
    Ok(true)
}

fn is_file(mark: &Mark, path: &str) -> bool {
    matches!(mark, Mark::File { path: known, .. } if known == path)
}
