//! The generation of a plan. A host stores the highest one that it has seen and refuses plans with a lower one.
//!
//! What a host claims is not trusted: a wrong number would be copied to every other host, and a number near the largest
//! one would leave no generation for later plans. Only the saved state and the masters count.

use kubeon_api::{HostAddress, Refusal, RefusedField};
use kubeon_wire::{Claim, Facts};

use crate::input::Intent;

/// How far a claim may be ahead of the saved state. State that was restored from a backup is behind by the plans since
/// then, which are far fewer.
const MAX_JUMP: u64 = 1_000_000;

/// The generation of a state that is rebuilt from the cluster, whose masters claim this generation. It is so far ahead that, after
/// a change from there, the claims of the hosts that it reached are impossible for an older state of the cluster: every plan from
/// it that contacts one of them is refused. `None` if there is no such number.
#[must_use]
pub const fn adopted_generation(claimed: u64) -> Option<u64> {
    // Twice: an older state may be ahead of the claims by runs that changed no host.
    claimed.checked_add(2 * MAX_JUMP)
}

/// The highest generation that the saved state and the masters know.
pub(crate) fn highest<'a>(intent: &Intent, masters: impl Iterator<Item = &'a Facts>) -> u64 {
    let claims = masters.filter_map(|facts| claim(intent, facts)).map(|claim| claim.generation);
    claims.filter(|generation| is_possible(intent, *generation)).fold(intent.generation, u64::max)
}

/// The generation of the next plan.
///
/// # Errors
/// When there is no higher number.
pub(crate) fn next(intent: &Intent, highest: u64) -> Result<u64, Refusal> {
    highest.checked_add(1).ok_or_else(|| {
        let reason = "is at the highest generation that there is: its state was changed or is damaged; restore it from a backup";
        Refusal::new(RefusedField::Name, &intent.spec.name, reason)
    })
}

/// The refusal of a host with a claim that no run can have written.
pub(crate) fn refusal(intent: &Intent, host: HostAddress, facts: &Facts, highest: u64) -> Option<Refusal> {
    let generation = claim(intent, facts)?.generation;
    (!is_possible(intent, generation)).then(|| {
        let reason = format!(
            "claims generation {generation}, but the newest plan that the state and the masters know has generation {highest}: \
             another control machine adopted the cluster and changes it since, or /var/lib/kubeon/claim.json was changed or is \
             damaged; compare it with the one of another host"
        );
        Refusal::host(host, reason)
    })
}

fn claim<'a>(intent: &Intent, facts: &'a Facts) -> Option<&'a Claim> {
    facts.claim.as_ref().filter(|claim| claim.uid == intent.uid)
}

fn is_possible(intent: &Intent, generation: u64) -> bool {
    generation <= intent.generation.saturating_add(MAX_JUMP)
}
