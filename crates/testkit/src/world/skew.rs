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
    /// The harms of the versions in the cluster of a host on which a program has started.
    pub(super) fn skews(&self, at: HostAddress, started: &str) -> Vec<String> {
        let Some(uid) = self.host(at).uid() else { return Vec::new() };
        let hosts = || self.hosts.values().filter(|host| host.up && host.uid() == Some(uid));
        let apis: Vec<Version> = hosts().filter_map(|host| host.running_version(API_SERVER)).collect();
        let (Some(oldest), Some(newest)) = (apis.iter().min(), apis.iter().max()) else { return Vec::new() };
        let mut harms = self.newer_kubelets(at, started, hosts());
        if newest.minor - oldest.minor > 1 {
            harms.push(format!("API servers have {oldest} and {newest}"));
        }
        for host in hosts() {
            harms.extend(host_skews(host, *newest));
        }
        harms
    }

    /// Kubelets change after all API servers. A node that does not work is repaired with the new version while a master is away, so
    /// what counts is which API servers run when a kubelet starts, and which kubelets when an API server starts.
    fn newer_kubelets<'a>(
        &self,
        at: HostAddress,
        started: &str,
        hosts: impl Iterator<Item = &'a SimulatedHost> + Clone,
    ) -> Vec<String> {
        let own = self.host(at);
        let (kubelet, served) = match started {
            KUBELET => {
                (own.running_version(KUBELET), hosts.filter_map(|host| host.served_version(API_SERVER)).min())
            }
            API_SERVER => {
                (hosts.filter_map(|host| host.running_version(KUBELET)).max(), own.served_version(API_SERVER))
            }
            _ => (None, None),
        };
        let newer = kubelet.zip(served).filter(|(kubelet, served)| kubelet.minor > served.minor);
        let text = |(kubelet, served)| {
            format!("a kubelet has {kubelet}, newer than an API server that serves {served}")
        };
        newer.map(text).into_iter().collect()
    }
}

/// The harms of one host. `newest` is the newest version of an API server.
fn host_skews(host: &SimulatedHost, newest: Version) -> Vec<String> {
    let own = host.served_version(API_SERVER);
    let mut harms = Vec::new();
    if let Some(kubelet) = host.running_version(KUBELET)
        && kubelet.minor + OLDEST_KUBELET < newest.minor
    {
        harms.push(format!("the kubelet of {} has {kubelet}, too old for {newest}", host.name()));
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
