//! The masters that workers know. A worker that is off while masters change keeps its old list, and returns by itself as long as one
//! master of that list is left. A change that takes the last one while the worker does not answer is refused.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{HostAddress, HostRole, Refusal, Remedy};

use crate::input::Intent;
use crate::output::UnreachableHost;

impl Intent {
    /// Whether this change adds masters, removes some or changes the address of one: every worker must learn it.
    #[must_use]
    pub fn changes_masters(&self) -> bool {
        !self.joining_masters.is_empty() || self.takes_masters()
    }

    /// The masters that a worker still knows after this change if the change does not reach it.
    #[must_use]
    pub fn masters_still_known_by(&self, worker: HostAddress) -> BTreeSet<HostAddress> {
        let known = self.known_masters.get(&worker);
        let masters = self.spec.masters.iter().map(|master| master.address);
        masters
            .filter(|master| !self.joining_masters.contains(master) && !self.moved_hosts.contains(master))
            .filter(|master| known.is_none_or(|known| known.contains(master)))
            .collect()
    }

    /// Whether masters of the lists that workers have leave, or have another address.
    fn takes_masters(&self) -> bool {
        let moves = || self.spec.masters.iter().any(|master| self.moved_hosts.contains(&master.address));
        !self.leaving_masters.is_empty() || moves()
    }
}

/// Refuses a change after which a worker that does not answer would know no master.
pub(crate) fn refusals(intent: &Intent, unreachable: &[UnreachableHost]) -> Vec<Refusal> {
    // An external load balancer has its own list, and workers know nothing else.
    let external = matches!(intent.spec.settings.load_balancer, LoadBalancer::External { .. });
    if external || !intent.takes_masters() {
        return Vec::new();
    }
    // A worker that was left out before, when the last master that it knew left, has nothing to lose.
    let is_lost = |worker: HostAddress| intent.known_masters.get(&worker).is_some_and(BTreeSet::is_empty);
    let loses = |host: &&UnreachableHost| {
        host.role == HostRole::Worker
            && !is_lost(host.address)
            && intent.masters_still_known_by(host.address).is_empty()
    };
    let refusal = |host: &UnreachableHost| {
        let reason = format!(
            "{}; no master that it knows would stay, and it could not return by itself: bring it back first, or go on \
             without it",
            host.why
        );
        Refusal::host(host.address, reason).with(Remedy::SkipHost(host.address))
    };
    unreachable.iter().filter(loses).map(refusal).collect()
}
