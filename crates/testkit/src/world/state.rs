//! Everything there is, and what follows by itself from it.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use serde_json::Value;

use super::effect::Effect;
use super::fault::Faults;
use super::host::SimulatedHost;
use crate::hosts::{HostBuilder, NOW};

/// The world's content.
pub(super) struct State {
    pub hosts: BTreeMap<HostAddress, SimulatedHost>,
    /// What the etcd of each cluster holds, by the cluster's identity.
    pub clusters: BTreeMap<String, Cluster>,
    pub now: i64,
    pub log: Vec<String>,
    pub harms: Vec<String>,
    pub trace: Vec<String>,
    pub opened: BTreeMap<HostAddress, usize>,
    pub faults: Faults<String>,
    pub opening_faults: Faults<HostAddress>,
    pub lost_blobs: BTreeSet<String>,
    pub slow: Slow,
    /// Hosts that the load balancer cannot be reached from.
    pub blocked: BTreeSet<HostAddress>,
    /// The process that lives now.
    pub life: u64,
    pub dead: bool,
    /// Effects until it dies.
    pub left: Option<usize>,
    pub random: Option<u64>,
}

/// What serves well, and yet answers no look in time.
#[derive(Debug, Default)]
pub(super) struct Slow {
    pub etcd: bool,
    pub nodes: bool,
}

/// A cluster as its etcd knows it.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// The first members' names, once they had a quorum.
    pub formed: Option<Vec<String>>,
    /// Members that started at least once.
    pub started: BTreeSet<String>,
    pub objects: BTreeMap<String, Value>,
    /// Nodes that joined, by name.
    pub nodes: BTreeMap<String, HostAddress>,
    /// Nodes that keep ordinary pods off.
    pub tainted: BTreeSet<String>,
    /// Nodes that take no new pods.
    pub drained: BTreeSet<String>,
}

impl State {
    pub(super) fn of(hosts: impl IntoIterator<Item = HostBuilder>) -> Self {
        Self {
            hosts: hosts.into_iter().map(|host| (host.address, SimulatedHost::of(host))).collect(),
            clusters: BTreeMap::new(),
            now: NOW,
            log: Vec::new(),
            harms: Vec::new(),
            trace: Vec::new(),
            opened: BTreeMap::new(),
            faults: BTreeMap::new(),
            opening_faults: BTreeMap::new(),
            lost_blobs: BTreeSet::new(),
            slow: Slow::default(),
            blocked: BTreeSet::new(),
            life: 0,
            dead: false,
            left: None,
            random: None,
        }
    }

    pub(super) fn host_mut(&mut self, host: HostAddress) -> &mut SimulatedHost {
        self.hosts.get_mut(&host).unwrap_or_else(|| panic!("the world has no host {host}"))
    }

    pub(super) fn host(&self, host: HostAddress) -> &SimulatedHost {
        self.hosts.get(&host).unwrap_or_else(|| panic!("the world has no host {host}"))
    }

    /// Makes one effect happen. Answers whether anything changed; what changed nothing was no effect.
    pub(super) fn happen(&mut self, at: HostAddress, effect: Effect) -> Result<bool, String> {
        let line = match effect {
            Effect::Object { path, body } => self.put(at, path, body)?,
            Effect::Taint { node, present } => self.taint(at, &node, present)?,
            Effect::Drain(node) => self.drain(at, node)?,
            Effect::Uncordon(node) => self.uncordon(at, &node)?,
            Effect::RemoveNode(node) => self.remove_node(at, &node)?,
            Effect::Halt { name, watches } => self.halt(at, &name, &watches),
            Effect::Start { name, watches } => self.start(at, &name, watches)?,
            other => self.host_mut(at).take(other)?,
        };
        let Some(line) = line else { return Ok(false) };
        let name = self.host(at).name();
        self.log.push(format!("{name} {line}"));
        self.settle();
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            self.dead |= *left == 0;
        }
        Ok(true)
    }

    fn put(&mut self, at: HostAddress, path: String, body: Value) -> Result<Option<String>, String> {
        let Some(uid) = self.uid(at).filter(|_| self.api_ready(at)) else {
            return Err("the API server does not answer".to_owned());
        };
        let objects = &mut self.clusters.entry(uid).or_default().objects;
        let verb = match objects.get(&path) {
            Some(there) if *there == body => return Ok(None),
            Some(_) => "rewrite object",
            None => "create object",
        };
        let line = format!("{verb} {path}");
        objects.insert(path, body);
        Ok(Some(line))
    }

    /// The cluster of the host, where its API server answers.
    fn cluster_at(&mut self, at: HostAddress) -> Result<&mut Cluster, String> {
        match self.uid(at).filter(|_| self.api_ready(at)) {
            Some(uid) => Ok(self.clusters.entry(uid).or_default()),
            None => Err("the API server does not answer".to_owned()),
        }
    }

    fn taint(&mut self, at: HostAddress, node: &str, present: bool) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        if !cluster.nodes.contains_key(node) {
            return Err(format!("there is no node {node}"));
        }
        let changed =
            if present { cluster.tainted.insert(node.to_owned()) } else { cluster.tainted.remove(node) };
        Ok(changed.then(|| format!("{} node {node}", if present { "taint" } else { "untaint" })))
    }

    fn drain(&mut self, at: HostAddress, node: String) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        let line = format!("drain node {node}");
        Ok((cluster.nodes.contains_key(&node) && cluster.drained.insert(node)).then_some(line))
    }

    fn uncordon(&mut self, at: HostAddress, node: &str) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        if !cluster.nodes.contains_key(node) {
            return Err(format!("there is no node {node}"));
        }
        Ok(cluster.drained.remove(node).then(|| format!("uncordon node {node}")))
    }

    /// A node whose kubelet runs must have been drained before.
    fn remove_node(&mut self, at: HostAddress, node: &str) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        let Some(gone) = cluster.nodes.remove(node) else { return Ok(None) };
        let drained = cluster.drained.remove(node);
        cluster.tainted.remove(node);
        cluster.objects.remove(&format!("/api/v1/nodes/{node}"));
        if !drained && self.host(gone).runs("kubelet.service") {
            self.harms.push(format!("node {node} is removed with its pods"));
        }
        Ok(Some(format!("drop node {node}")))
    }

    fn start(&mut self, at: HostAddress, name: &str, watches: Vec<String>) -> Result<Option<String>, String> {
        let host = self.host_mut(at);
        let wanted = host.unit_fingerprint(name, &watches);
        let unit = host.units.get(name).ok_or_else(|| format!("{name} has no unit file"))?;
        if unit.running.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        host.can_start(&unit.text)?;
        if name == "etcd.service" {
            self.start_etcd(at)?;
        }
        if let Some(unit) = self.host_mut(at).units.get_mut(name) {
            unit.running = Some(wanted);
            unit.watches = watches;
        }
        Ok(Some(format!("start {name}")))
    }

    /// The first half of a restart. What others rest on may be down on one host at a time only.
    fn halt(&mut self, at: HostAddress, name: &str, watches: &[String]) -> Option<String> {
        let host = self.host(at);
        let wanted = host.unit_fingerprint(name, watches);
        if host.units.get(name)?.running.as_ref()? == &wanted {
            return None;
        }
        let uid = self.uid(at).unwrap_or_default();
        let before = (self.quorum(&uid), self.any_api(at));
        self.host_mut(at).units.get_mut(name)?.running = None;
        let masters = self
            .hosts
            .values()
            .filter(|host| host.uid() == Some(uid.as_str()) && host.etcd.is_some())
            .count();
        if masters > 1 && before.0 && !self.quorum(&uid) {
            self.harms.push(format!(
                "{} restarts {name}, which leaves etcd without a quorum",
                self.host(at).name()
            ));
        }
        if masters > 1 && before.1 && !self.any_api(at) {
            self.harms.push(format!("{} restarts {name}, which leaves no API server", self.host(at).name()));
        }
        Some(format!("restart {name}"))
    }

    /// A member without data starts as part of a new cluster. Doing that twice, or with other peers, makes a
    /// second cluster beside the one that exists: the harm that loses data.
    fn start_etcd(&mut self, at: HostAddress) -> Result<(), String> {
        let uid = self.uid(at).ok_or("etcd starts on a host that nobody claimed")?;
        let host = self.host(at);
        let text = host.units.get("etcd.service").map(|unit| unit.text.clone()).unwrap_or_default();
        if host.etcd.is_some() {
            return Ok(());
        }
        let name = host.name();
        let peers = first_members(&text);
        if !peers.contains(&name) {
            return Err(format!("etcd: {name} is not among the initial cluster {peers:?}"));
        }
        let known = self.clusters.entry(uid.clone()).or_default();
        if known.formed.is_some() && known.started.contains(&name) {
            self.harms.push(format!(
                "{name} starts its etcd member again with its data lost while the cluster exists"
            ));
        }
        known.started.insert(name.clone());
        let others = self.hosts.values().filter(|host| host.uid() == Some(uid.as_str()));
        if let Some(other) = others.filter_map(|host| host.etcd.as_ref()).find(|other| **other != peers) {
            self.harms
                .push(format!("{name} starts an etcd member with peers {peers:?}, others have {other:?}"));
        }
        self.host_mut(at).etcd = Some(peers);
        Ok(())
    }

    /// What follows by itself: a quorum forms a cluster, a kubelet that reaches the API joins, a cluster
    /// whose last member's data is gone is gone.
    pub(super) fn settle(&mut self) {
        let members: BTreeMap<String, Vec<String>> = self
            .hosts
            .values()
            .filter_map(|host| Some((host.uid()?.to_owned(), host.etcd.clone()?)))
            .collect();
        self.clusters.retain(|uid, _| members.contains_key(uid));
        for (uid, peers) in members {
            if self.quorum(&uid) {
                self.clusters.entry(uid).or_default().formed.get_or_insert(peers);
            }
        }
        let joining: Vec<HostAddress> =
            self.hosts.keys().copied().filter(|host| self.may_join(*host)).collect();
        for at in joining {
            let host = self.host_mut(at);
            host.joined = true;
            let (name, uid) = (host.name(), host.uid().unwrap_or_default().to_owned());
            self.clusters.entry(uid).or_default().nodes.insert(name, at);
        }
    }

    /// The next number of the drawn sequence (splitmix64), where there is one.
    pub(super) fn draw(&mut self) -> Option<u64> {
        let seed = self.random.as_mut()?;
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}

/// The names in `--initial-cluster=NAME=URL,NAME=URL`.
fn first_members(unit: &str) -> Vec<String> {
    let list = unit.split_whitespace().find_map(|word| word.strip_prefix("--initial-cluster="));
    let mut names: Vec<String> = list
        .unwrap_or_default()
        .split(',')
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .collect();
    names.sort_unstable();
    names
}
