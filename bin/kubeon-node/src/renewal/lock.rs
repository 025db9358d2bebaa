//! The lock of the host, which a renewal takes without waiting.

use std::time::Duration;

use kubeon_wire::{Category, Claim, StepFailure};

use super::report::RenewalReport;
use crate::fence::Lock;
use crate::root::Root;

/// The lock of the host, or a note if another program holds it.
pub(super) fn take(root: &Root, claim: &Claim) -> Result<Result<Lock, RenewalReport>, StepFailure> {
    match Lock::take(root, &claim.uid, claim.generation, Duration::ZERO) {
        Ok(lock) => Ok(Ok(lock)),
        Err(failure) if matches!(failure.category, Category::Held | Category::Fenced) => {
            Ok(Err(RenewalReport::note(format!("not renewed now: {}", failure.cause))))
        }
        Err(failure) => Err(failure),
    }
}
