//! Remembers which masters the workers know that a change did not reach.

use std::collections::BTreeSet;

use kubeon_api::HostAddress;
use kubeon_plan::{Intent, UnreachableHost};

use crate::engine::StoredCluster;

/// Records the masters of every worker that the change did not reach, and forgets the record of the others: they know all
/// masters. A worker that the user allows to skip counts as not reached.
pub(crate) fn record(state: &mut StoredCluster, intent: &Intent, unreachable: &[UnreachableHost]) {
    let workers: BTreeSet<HostAddress> = intent.spec.workers.iter().map(|host| host.address).collect();
    let is_reached = |worker: &HostAddress| {
        !intent.skip_hosts.contains(worker) && !unreachable.iter().any(|host| host.address == *worker)
    };
    let concerned = workers.iter().filter(|worker| !intent.unconcerned.contains(*worker));
    for worker in concerned {
        if is_reached(worker) {
            state.known_masters.remove(worker);
        } else if intent.changes_masters() {
            state.known_masters.insert(*worker, intent.masters_still_known_by(*worker));
        }
    }
    state.known_masters.retain(|worker, _| workers.contains(worker));
}

#[cfg(test)]
mod tests {
    use kubeon_api::HostRole;
    use kubeon_plan::sim::cluster;
    use kubeon_plan::{Artifacts, DesiredCluster, validate};

    use super::*;
    use crate::engine;

    fn address(text: &str) -> HostAddress {
        text.parse().unwrap()
    }

    fn silent(worker: &str) -> UnreachableHost {
        UnreachableHost {
            address: address(worker),
            name: "w".parse().unwrap(),
            role: HostRole::Worker,
            why: "no route to host".to_owned(),
        }
    }

    /// The intent of a change to these masters.
    fn changed(state: &mut StoredCluster, spec: &DesiredCluster) -> Intent {
        state.spec = spec.clone();
        let (spec, _) = validate(spec.clone(), &[spec.version]).unwrap();
        engine::intent(spec, state, Artifacts::default(), Vec::new())
    }

    #[test]
    fn a_worker_knows_the_masters_of_its_last_list() {
        let spec = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.4", "10.0.0.5"]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        // A third master joins while the second worker is off.
        state.add_master(address("10.0.0.3"));
        let workers = ["10.0.0.4", "10.0.0.5"];
        let intent = changed(&mut state, &cluster(&["10.0.0.1", "10.0.0.2", "10.0.0.3"], &workers));
        record(&mut state, &intent, &[silent("10.0.0.5")]);
        let known = |state: &StoredCluster| state.known_masters.get(&address("10.0.0.5")).cloned();
        assert_eq!(state.known_masters.len(), 1);
        assert_eq!(known(&state), Some(["10.0.0.1", "10.0.0.2"].map(address).into()));
        state.joining_masters.clear();
        // The first one leaves.
        state.remove_master(address("10.0.0.1"), address("10.0.0.1"));
        state.leaving.insert(address("10.0.0.1"), None);
        let intent = changed(&mut state, &cluster(&["10.0.0.2", "10.0.0.3"], &workers));
        record(&mut state, &intent, &[silent("10.0.0.5")]);
        assert_eq!(known(&state), Some([address("10.0.0.2")].into()));
        state.leaving_masters.clear();
        state.leaving.clear();
        // A change of something else that does not reach the worker keeps the record; one that reaches it ends it.
        let intent = changed(&mut state, &cluster(&["10.0.0.2", "10.0.0.3"], &workers));
        record(&mut state, &intent, &[silent("10.0.0.5")]);
        assert_eq!(known(&state), Some([address("10.0.0.2")].into()));
        record(&mut state, &intent, &[]);
        assert!(state.known_masters.is_empty());
    }
}
