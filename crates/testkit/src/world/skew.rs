//! The minor versions that programs of one cluster may have at the same time.
//! <https://kubernetes.io/releases/version-skew-policy/>

use kubeon_api::{HostAddress, Version};

use super::host::SimulatedHost;
use super::state::State;

const API_SERVER: &str = "kube-apiserver.service";
const KUBELET: &str = "kubelet.service";
/// They use the API server of their own host.
const MANAGERS: [&str; 2] = ["kube-controller-manager.service", "kube-scheduler.service"];
/// How many minor versions a kubelet may be older than an API server.
const OLDEST_KUBELET: u32 = 3;

impl State {
    /// The harms of the versions in the cluster of a host.
    pub(super) fn skews(&self, at: HostAddress) -> Vec<String> {
        let Some(uid) = self.host(at).uid() else { return Vec::new() };
        let hosts = || self.hosts.values().filter(|host| host.up && host.uid() == Some(uid));
        let apis: Vec<Version> = hosts().filter_map(|host| host.running_version(API_SERVER)).collect();
        let (Some(oldest), Some(newest)) = (apis.iter().min(), apis.iter().max()) else { return Vec::new() };
        let served = hosts().filter_map(|host| host.served_version(API_SERVER)).min();
        let mut harms = Vec::new();
        if newest.minor - oldest.minor > 1 {
            harms.push(format!("API servers have {oldest} and {newest}"));
        }
        for host in hosts() {
            harms.extend(host_skews(host, served.unwrap_or(*oldest), *newest));
        }
        harms
    }
}

/// The harms of one host. `served` is the oldest version that an API server serves, `newest` the newest one that runs.
fn host_skews(host: &SimulatedHost, served: Version, newest: Version) -> Vec<String> {
    let own = host.served_version(API_SERVER);
    let mut harms = Vec::new();
    if let Some(kubelet) = host.running_version(KUBELET) {
        // Kubelets change after all API servers.
        if kubelet.minor > served.minor {
            harms.push(format!(
                "the kubelet of {} has {kubelet}, newer than an API server that serves {served}",
                host.name()
            ));
        }
        if kubelet.minor + OLDEST_KUBELET < newest.minor {
            harms.push(format!("the kubelet of {} has {kubelet}, too old for {newest}", host.name()));
        }
    }
    for manager in MANAGERS {
        // A program that emulates an older version acts like it, so it may be newer than its API server.
        if let (Some(version), Some(server)) = (host.served_version(manager), own)
            && (version.minor > server.minor || version.minor + 1 < server.minor)
        {
            harms.push(format!("{manager} of {} has {version}, its API server {server}", host.name()));
        }
    }
    harms
}
