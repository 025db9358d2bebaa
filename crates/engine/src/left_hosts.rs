//! Hosts that left a cluster are removed from its state.

use kubeon_api::HostAddress;
use kubeon_plan::{Intent, UnreachableHost};

use crate::engine::StoredCluster;

/// Removes the hosts that left from the state, and those that kubeon took over completely from the hosts of kubeadm. A
/// returning host that was skipped in this run stays marked as leaving.
pub(crate) fn forget(state: &mut StoredCluster, intent: &Intent, unreachable: &[UnreachableHost]) {
    let is_missing = |host: &HostAddress| {
        intent.skip_hosts.contains(host)
            || intent.unconcerned.contains(host)
            || unreachable.iter().any(|unreachable| unreachable.address == *host)
    };
    let left = |host: &HostAddress| intent.leaving.iter().any(|spec| spec.address == *host);
    state.logins.retain(|host, _| !left(host));
    state.leaving.retain(|host, _| intent.returns(*host) && intent.skip_hosts.contains(host));
    state.leaving_masters.retain(|host, _| !left(host));
    state.joining_masters.clear();
    state.leaving_etcd_hosts.retain(|host, _| !left(host));
    state.joining_etcd_hosts.clear();
    state.taken_over.retain(is_missing);
    state.joining.retain(|host| intent.skip_hosts.contains(host));
}
