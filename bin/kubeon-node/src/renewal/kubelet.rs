//! The kubelet's own client certificate. The kubelet renews it by itself while it is valid. When the host was off until
//! it expired, the kubelet cannot start, and this program renews it.

use std::path::PathBuf;

use kubeon_pki::Renewer;
use kubeon_wire::{CertificateFact, StepFailure};

use crate::durable::{read_text, write_file};
use crate::facts::certificates;
use crate::failure::{Doing, failed};
use crate::paths;
use crate::root::Root;

/// The expired certificate of the kubelet.
pub(super) struct Expired {
    /// Certificate and key in one text.
    pub(super) text: String,
    pub(super) place: PathBuf,
    pub(super) not_after: i64,
    pub(super) life: i64,
}

/// `None` while the certificate is valid, and if there is none.
pub(super) fn expired(root: &Root, now: i64) -> Result<Option<Expired>, StepFailure> {
    let Some(CertificateFact { not_before, not_after, .. }) = certificates::kubelet(root).own else {
        return Ok(None);
    };
    if now < not_after {
        return Ok(None);
    }
    let link = root.at(paths::KUBELET_OWN);
    // The link stays: the kubelet names files by the time of their issue.
    let place = std::fs::canonicalize(&link).doing("read", &link)?;
    let text = read_text(&place)?;
    Ok(text.map(|text| Expired { text, place, not_after, life: not_after - not_before }))
}

impl Expired {
    /// Replaces certificate and key by one rename.
    pub(super) fn replace(&self, certificate: &str, key: &str) -> Result<(), StepFailure> {
        write_file(&self.place, format!("{certificate}{key}").as_bytes(), 0o600)
    }
}

/// Renews an expired certificate on a master. Returns false if there is none, or its authority has no key here.
pub(super) fn renew(root: &Root, authorities: &[Renewer], now: i64) -> Result<bool, StepFailure> {
    let Some(old) = expired(root, now)? else { return Ok(false) };
    let Some(issuer) = authorities.iter().find(|authority| authority.has_issued(&old.text)) else {
        return Ok(false);
    };
    let new = issuer.replace(&old.text, &old.place, now);
    let (certificate, key) = new.map_err(|error| failed(error.to_string()))?;
    old.replace(&certificate, &key).map(|()| true)
}
