//! `kubeon-node renew`: renews the certificates of this host, without the control machine. A systemd timer starts it,
//! and systemd starts it at boot before the programs that use the certificates.
//!
//! ```text
//!   lock ─► due leaves ─► new certificate beside the old ─► journal ─► rename
//! ```
//!
//! A renewal keeps the key, so one rename replaces a leaf, and a program never finds a certificate without its key.
//! Every program reads a changed certificate again by itself, so nothing is restarted.

mod leaves;

use std::time::Duration;

use kubeon_wire::{Category, StepFailure};

use crate::fence::{self, Lock};
use crate::host::HostSystem;

/// The result of a renewal.
#[derive(Debug, Default)]
pub struct RenewalReport {
    /// What was done or postponed, as sentences.
    pub notes: Vec<String>,
    /// The leaves that could not be renewed. They are unchanged; the next run tries them again.
    pub failures: Vec<StepFailure>,
}

impl RenewalReport {
    fn note(text: impl Into<String>) -> Self {
        Self { notes: vec![text.into()], failures: Vec::new() }
    }
}

/// Renews every leaf certificate of kubeon on this host that is past two thirds of its life at `now`, in seconds since
/// 1970. While another program changes the host, it does nothing: the next run follows within minutes.
///
/// # Errors
/// If the claim, the journal or the certificates cannot be read.
pub fn run(host: &HostSystem, now: i64) -> Result<RenewalReport, StepFailure> {
    let root = &host.root;
    let Some(claim) = fence::claim(root)? else {
        return Ok(RenewalReport::note("nothing to renew: this host belongs to no cluster"));
    };
    let _lock = match Lock::take(root, &claim.uid, claim.generation, Duration::ZERO) {
        Ok(lock) => lock,
        Err(failure) if matches!(failure.category, Category::Held | Category::Fenced) => {
            return Ok(RenewalReport::note(format!("not renewed now: {}", failure.cause)));
        }
        Err(failure) => return Err(failure),
    };
    leaves::renew(root, now)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
