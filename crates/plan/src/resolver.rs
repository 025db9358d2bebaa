//! The name servers of pods that do not use the cluster's DNS, CoreDNS among them: the file that the kubelet
//! copies into such pods (`resolvConf`).
//!
//! A server on the loopback interface of the host is CoreDNS itself inside its pod, and a Service address
//! leads back to CoreDNS, so a file that names one of them is not used.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use kubeon_api::Cidr;
use kubeon_render::paths::etc;
use kubeon_wire::Facts;

/// The file that the kubelet uses by itself.
pub(crate) const SYSTEM_FILE: &str = "/etc/resolv.conf";

/// The files of a host in order of preference: the usual file, then those in which systemd-resolved,
/// NetworkManager and dnsmasq keep the servers that they forward to.
const FILES: [&str; 4] = [
    SYSTEM_FILE,
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/dnsmasq/resolv.conf",
];

/// The name servers that the pods of a host get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolver<'a> {
    pub(crate) source: Source<'a>,
    /// The servers that pods reach. Empty if the host knows none.
    pub(crate) upstream: Vec<&'a str>,
}

/// Where the kubelet reads the name servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source<'a> {
    /// A file of the host.
    File(&'static str),
    /// A file of the cluster with these servers, because no file of the host is free of loops.
    Written(Vec<&'a str>),
    /// A file of the cluster with the address of the host, because the host knows no name server that a pod
    /// reaches. Queries for names outside of the cluster then fail at once, and CoreDNS has a server to start
    /// with.
    NoUpstream(Ipv4Addr),
}

impl<'a> Resolver<'a> {
    /// The name servers for the pods of a host with this address, in a cluster with this service network.
    pub(crate) fn new(facts: &'a Facts, address: Ipv4Addr, services: Cidr) -> Self {
        let known = &facts.name_servers;
        if known.is_empty() {
            return Self { source: Source::File(SYSTEM_FILE), upstream: Vec::new() };
        }
        let files: Vec<(&'static str, &'a [String])> =
            FILES.iter().filter_map(|file| Some((*file, known.get(*file)?.as_slice()))).collect();
        let free_of_loops = files
            .iter()
            .find(|(_, list)| !list.is_empty() && !list.iter().any(|server| loops(server, services)));
        if let Some((file, servers)) = free_of_loops {
            let upstream = servers.iter().map(String::as_str).collect();
            return Self { source: Source::File(file), upstream };
        }
        let usable = |list: &'a [String]| -> Vec<&'a str> {
            list.iter().map(String::as_str).filter(|server| !loops(server, services)).collect()
        };
        let upstream = files.iter().map(|(_, list)| usable(list)).find(|list| !list.is_empty());
        match upstream {
            Some(upstream) => Self { source: Source::Written(upstream.clone()), upstream },
            None => Self { source: Source::NoUpstream(address), upstream: Vec::new() },
        }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> String {
        match self.source {
            Source::File(path) => path.to_owned(),
            Source::Written(_) | Source::NoUpstream(_) => etc("resolv.conf"),
        }
    }

    /// The servers of the file that the plan writes; `None` for a file of the host.
    pub(crate) fn written(&self) -> Option<Vec<String>> {
        match &self.source {
            Source::File(_) => None,
            Source::Written(servers) => Some(servers.iter().map(|server| (*server).to_owned()).collect()),
            Source::NoUpstream(address) => Some(vec![address.to_string()]),
        }
    }

    /// Whether the kubelet needs the path of the file, because it is not the default.
    pub(crate) fn differs_from_system(&self) -> bool {
        self.source != Source::File(SYSTEM_FILE)
    }
}

/// The name servers that a pod would not leave the cluster with, by the file that names them.
pub(crate) fn looping(facts: &Facts, services: Cidr) -> BTreeMap<&str, Vec<&str>> {
    let named = facts.name_servers.iter().map(|(file, list)| {
        let list: Vec<&str> =
            list.iter().map(String::as_str).filter(|server| loops(server, services)).collect();
        (file.as_str(), list)
    });
    named.filter(|(_, list)| !list.is_empty()).collect()
}

/// Whether a query that CoreDNS sends to this server comes back to CoreDNS. A text that is not an address is
/// no server.
fn loops(server: &str, services: Cidr) -> bool {
    match server.split('%').next().unwrap_or_default().parse::<IpAddr>().map(|address| address.to_canonical())
    {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_unspecified() || services.net().contains(&address)
        }
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unspecified(),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 11);

    fn host(files: &[(&str, &[&str])]) -> Facts {
        let list = |servers: &[&str]| servers.iter().map(|server| (*server).to_owned()).collect();
        let name_servers = files.iter().map(|(file, servers)| ((*file).to_owned(), list(servers))).collect();
        Facts { name_servers, ..Facts::default() }
    }

    fn services() -> Cidr {
        "10.64.0.0/16".parse().unwrap()
    }

    fn of(files: &[(&str, &[&str])]) -> (String, Option<Vec<String>>, usize) {
        let facts = host(files);
        let resolver = Resolver::new(&facts, ADDRESS, services());
        (resolver.path(), resolver.written(), resolver.upstream.len())
    }

    #[test]
    fn a_plain_file_is_left_to_the_kubelet() {
        let facts = host(&[(SYSTEM_FILE, &["10.0.0.2", "fe80::1%eth0"])]);
        let resolver = Resolver::new(&facts, ADDRESS, services());
        assert!(!resolver.differs_from_system());
        assert_eq!(resolver.upstream, ["10.0.0.2", "fe80::1%eth0"]);
        assert!(!Resolver::new(&Facts::default(), ADDRESS, services()).differs_from_system(), "not reported");
    }

    #[test]
    fn the_file_of_a_local_resolver_replaces_a_file_that_names_the_host_itself() {
        let resolved = "/run/systemd/resolve/resolv.conf";
        for stub in ["127.0.0.53", "127.0.1.1", "::1", "0.0.0.0", "::ffff:127.0.0.1", "10.64.0.10"] {
            let found = of(&[(SYSTEM_FILE, &[stub]), (resolved, &["10.0.0.2"])]);
            assert_eq!(found, (resolved.to_owned(), None, 1), "{stub}");
        }
        let manager = "/run/NetworkManager/no-stub-resolv.conf";
        let found = of(&[(SYSTEM_FILE, &["127.0.0.1"]), (resolved, &[]), (manager, &["10.0.0.3"])]);
        assert_eq!(found, (manager.to_owned(), None, 1), "an empty file is no choice");
    }

    #[test]
    fn servers_beside_a_loop_are_written_into_a_file_of_the_cluster() {
        let found = of(&[(SYSTEM_FILE, &["127.0.0.1", "10.0.0.2"])]);
        assert_eq!(found, ("/etc/kubernetes/resolv.conf".to_owned(), Some(vec!["10.0.0.2".to_owned()]), 1));
    }

    #[test]
    fn without_a_server_that_pods_reach_queries_go_to_the_host() {
        for files in [&[(SYSTEM_FILE, &["127.0.0.53"][..])], &[(SYSTEM_FILE, &[][..])]] {
            let written = Some(vec![ADDRESS.to_string()]);
            assert_eq!(of(files), ("/etc/kubernetes/resolv.conf".to_owned(), written, 0));
        }
    }

    #[test]
    fn names_the_loops_by_file() {
        let facts =
            host(&[(SYSTEM_FILE, &["127.0.0.53", "10.0.0.2"]), ("/run/dnsmasq/resolv.conf", &["10.0.0.2"])]);
        assert_eq!(looping(&facts, services()), BTreeMap::from([(SYSTEM_FILE, vec!["127.0.0.53"])]));
    }
}
