//! The minor versions that programs of one cluster may have at the same time.
//! <https://kubernetes.io/releases/version-skew-policy/>

use kubeon_api::{HostAddress, Version};

use super::host::{SimulatedHost, pki};
use super::pods::is_pod;
use super::state::State;

const API_SERVER: &str = "kube-apiserver.service";
const KUBELET: &str = "kubelet.service";
/// A file of hosts whose kubelet runs static pods.
const MANIFESTS_MARK: &str = "/etc/kubernetes/manifests/.kubeon";
/// They use the API server of their own host.
const MANAGERS: [&str; 2] = ["kube-controller-manager.service", "kube-scheduler.service"];
/// How many minor versions a kubelet may be older than an API server.
const OLDEST_KUBELET: u32 = 3;

impl State {
    /// The harms of the versions in the cluster of a host on which a program has started. `restarted` tells whether the command stopped
    /// it before. Hosts whose network is cut count: their programs run, and may be reached again at any time.
    pub(super) fn skews(&self, at: HostAddress, started: &str, restarted: bool) -> Vec<String> {
        let Some(uid) = self.host(at).uid() else { return Vec::new() };
        let of_cluster = |host: &&SimulatedHost| host.up && !host.declared_lost && host.uid() == Some(uid);
        let hosts = || self.hosts.values().filter(of_cluster);
        let apis: Vec<Version> = hosts().filter_map(|host| host.running_version(API_SERVER)).collect();
        let (Some(oldest), Some(newest)) = (apis.iter().min(), apis.iter().max()) else { return Vec::new() };
        let mut harms = self.newer_kubelets(at, started, hosts().filter(|host| restarted || !host.isolated));
        if newest.minor - oldest.minor > 1 {
            harms.push(format!("API servers have {oldest} and {newest}"));
        }
        for host in hosts() {
            harms.extend(host_skews(host, *newest));
        }
        harms
    }

    /// Kubelets change after all API servers. A node that does not work is repaired with the new version while a master is away, so
    /// what counts is which API servers run when a kubelet starts, and which kubelets when an API server starts. A kubelet that runs the
    /// static pods of a master uses the API server among them only, which cannot start before it.
    fn newer_kubelets<'a>(
        &self,
        at: HostAddress,
        started: &str,
        hosts: impl Iterator<Item = &'a SimulatedHost> + Clone,
    ) -> Vec<String> {
        let own = self.host(at);
        let (kubelet, served) = match started {
            KUBELET if own.runs_pods_of_master() => {
                (own.running_version(KUBELET), own.served_version(API_SERVER))
            }
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

impl SimulatedHost {
    /// Whether the host is a master whose control plane is static pods. Its keys are there before its kubelet starts.
    fn runs_pods_of_master(&self) -> bool {
        let starts_pods =
            self.has(MANIFESTS_MARK) || self.units.get(API_SERVER).is_some_and(|unit| is_pod(&unit.text));
        starts_pods && self.has(&pki("apiserver.crt"))
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
