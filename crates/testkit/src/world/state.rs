//! The state of the world, and the consequences that follow without a step.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::HostAddress;
use serde_json::Value;

use super::effect::Effect;
use super::fault::{Faults, HostLoss};
use super::host::SimulatedHost;
use crate::hosts::{HostBuilder, NOW};

/// The state of the world.
#[derive(Clone)]
pub(super) struct State {
    pub hosts: BTreeMap<HostAddress, SimulatedHost>,
    /// The content of the etcd of each cluster, by the identity of the cluster.
    pub clusters: BTreeMap<String, Cluster>,
    /// The content with which restored members begin.
    pub snapshot: Option<Cluster>,
    pub now: i64,
    pub log: Vec<String>,
    pub harms: Vec<String>,
    /// Units that were stopped for a restart and have not started again, and the command that stopped them.
    pub restarting: BTreeMap<(HostAddress, String), u64>,
    pub trace: Vec<String>,
    pub opened: BTreeMap<HostAddress, usize>,
    /// Hosts that were probed or to which a session was opened, whether they answered or not.
    pub contacted: BTreeSet<HostAddress>,
    pub faults: Faults<String>,
    pub opening_faults: Faults<HostAddress>,
    pub lost_blobs: BTreeSet<String>,
    pub slow: Slow,
    /// Hosts that cannot reach the load balancer.
    pub blocked: BTreeSet<HostAddress>,
    /// The number of the current process.
    pub life: u64,
    pub dead: bool,
    /// The number of effects until the process dies.
    pub left: Option<usize>,
    /// The number of effects until a host is lost, the host, and how.
    pub loss: Option<(usize, HostAddress, HostLoss)>,
    /// The states after the effects of the current process.
    pub recording: Option<Recording>,
    pub random: Option<u64>,
    /// The generation that the command persisted; `None` if it persists none.
    pub persisted_generation: Option<u64>,
}

/// The states after the effects that follow the first ones.
#[derive(Clone)]
pub(super) struct Recording {
    /// The number of effects that are not recorded.
    pub skip: usize,
    pub states: Vec<State>,
}

/// Services that work but do not answer the probe in time.
#[derive(Debug, Clone, Default)]
pub(super) struct Slow {
    pub etcd: bool,
    pub nodes: bool,
}

/// The content of the etcd of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Cluster {
    /// The names of the members with a vote, after their first quorum.
    pub formed: Option<Vec<String>>,
    /// The names of the members without a vote.
    pub learners: BTreeSet<String>,
    /// Members that were started at least once.
    pub started: BTreeSet<String>,
    /// The hosts at which the members reach each other, by name.
    pub peers: BTreeMap<String, HostAddress>,
    pub objects: BTreeMap<String, Value>,
    /// Nodes that joined, by name.
    pub nodes: BTreeMap<String, HostAddress>,
    /// Nodes with the control plane taint.
    pub tainted: BTreeSet<String>,
    /// The declared taints of nodes, by name.
    pub taints: BTreeMap<String, Vec<String>>,
    /// Cordoned nodes.
    pub drained: BTreeSet<String>,
    /// Recorded steps: by the path of the object and the id, the digest.
    pub records: BTreeMap<(String, String), String>,
}

/// The units of etcd and of the control plane.
const CONTROL_PLANE: [&str; 4] =
    ["etcd.service", "kube-apiserver.service", "kube-controller-manager.service", "kube-scheduler.service"];

impl State {
    pub(super) fn of(hosts: impl IntoIterator<Item = HostBuilder>) -> Self {
        Self {
            hosts: hosts.into_iter().map(|host| (host.address, SimulatedHost::of(host))).collect(),
            clusters: BTreeMap::new(),
            snapshot: None,
            now: NOW,
            log: Vec::new(),
            harms: Vec::new(),
            restarting: BTreeMap::new(),
            trace: Vec::new(),
            opened: BTreeMap::new(),
            contacted: BTreeSet::new(),
            faults: BTreeMap::new(),
            opening_faults: BTreeMap::new(),
            lost_blobs: BTreeSet::new(),
            slow: Slow::default(),
            blocked: BTreeSet::new(),
            life: 0,
            dead: false,
            left: None,
            loss: None,
            recording: None,
            random: None,
            persisted_generation: None,
        }
    }

    pub(super) fn host_mut(&mut self, host: HostAddress) -> &mut SimulatedHost {
        self.hosts.get_mut(&host).unwrap_or_else(|| panic!("the world has no host {host}"))
    }

    pub(super) fn host(&self, host: HostAddress) -> &SimulatedHost {
        self.hosts.get(&host).unwrap_or_else(|| panic!("the world has no host {host}"))
    }

    /// Applies one effect. Returns whether the world changed. An effect without a change is not logged and
    /// not counted.
    pub(super) fn apply(&mut self, at: HostAddress, effect: Effect) -> Result<bool, String> {
        if let Effect::Claim(fence) = &effect
            && self.persisted_generation.is_some_and(|persisted| persisted < fence.generation)
        {
            self.harms.push(format!("generation {} reaches a host before it is persisted", fence.generation));
        }
        let line = match effect {
            Effect::Object { path, body } => self.put(at, path, body)?,
            Effect::RemoveObject(path) => self.remove_object(at, path)?,
            Effect::ForgetClusterRecord(id) => self.forget_record(at, id)?,
            Effect::ClusterRecord { object, id, digest } => self.record(at, object, id, digest)?,
            Effect::Taint { node, present } => self.taint(at, &node, present)?,
            Effect::NodeTaints { node, taints } => self.give_taints(at, node, taints)?,
            Effect::Drain(node) => self.drain(at, node)?,
            Effect::Uncordon(node) => self.uncordon(at, &node)?,
            Effect::RemoveNode(node) => self.remove_node(at, &node)?,
            Effect::AddLearner(name) => self.add_learner(at, name)?,
            Effect::WriteMembers => self.write_members(at)?,
            Effect::Promote => self.promote(at)?,
            Effect::MoveMember { name, address } => self.move_member(at, &name, address)?,
            Effect::RemoveMember(name) => self.remove_member(at, &name)?,
            Effect::RestoreMember(members) => self.restore_member(at, members)?,
            Effect::Halt { name, watches } => self.halt(at, &name, &watches)?,
            Effect::Start { name, watches } => self.start(at, &name, watches)?,
            other => self.host_mut(at).apply(other)?,
        };
        let Some(line) = line else { return Ok(false) };
        let name = self.host(at).name();
        self.log.push(format!("{name} {line}"));
        self.settle();
        self.count_effect();
        Ok(true)
    }

    /// Persists the generation of a plan on the machine of the command: an effect like those on hosts.
    pub(super) fn persist_generation(&mut self, generation: u64) {
        if self.persisted_generation.replace(generation) == Some(generation) {
            return;
        }
        self.log.push(format!("command persist generation {generation}"));
        self.count_effect();
    }

    fn count_effect(&mut self) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            self.dead |= *left == 0;
        }
        if let Some((left, host, loss)) = self.loss.take() {
            match left.saturating_sub(1) {
                0 => self.lose(host, loss),
                left => self.loss = Some((left, host, loss)),
            }
        }
        // The recording is taken out, so that no state contains another one.
        if let Some(mut recording) = self.recording.take() {
            match recording.skip.checked_sub(1) {
                Some(skip) => recording.skip = skip,
                None => recording.states.push(self.clone()),
            }
            self.recording = Some(recording);
        }
    }

    /// The host loses power or its network: its sessions break. Without power, its programs stop.
    pub(super) fn lose(&mut self, at: HostAddress, loss: HostLoss) {
        let host = self.host_mut(at);
        match loss {
            HostLoss::Power => host.up = false,
            HostLoss::Network => host.isolated = true,
        }
        host.cuts += 1;
        // What was about to start there does not.
        self.restarting.retain(|(host, _), _| *host != at);
        self.loss = None;
        self.settle();
    }

    /// The host has power and its network again. A member that was removed meanwhile learns it and ends.
    pub(super) fn heal(&mut self, at: HostAddress) {
        let host = self.host_mut(at);
        (host.up, host.isolated) = (true, false);
        self.end_removed_member(at);
        self.settle();
    }

    /// Whether one host reaches another one.
    pub(super) fn reaches(&self, from: HostAddress, to: HostAddress) -> bool {
        from == to || self.host(from).is_reachable() && self.host(to).is_reachable()
    }

    fn put(&mut self, at: HostAddress, path: String, body: Value) -> Result<Option<String>, String> {
        let Some(uid) = self.uid(at).filter(|_| self.api_ready(at)) else {
            return Err("the API server does not answer".to_owned());
        };
        let objects = &mut self.clusters.entry(uid).or_default().objects;
        let verb = match objects.get(&path) {
            Some(current) if *current == body => return Ok(None),
            Some(_) => "rewrite object",
            None => "create object",
        };
        let line = format!("{verb} {path}");
        objects.insert(path, body);
        Ok(Some(line))
    }

    /// The cluster of the host.
    ///
    /// # Errors
    /// When the API server of the host does not answer.
    fn cluster_at(&mut self, at: HostAddress) -> Result<&mut Cluster, String> {
        match self.uid(at).filter(|_| self.api_ready(at)) {
            Some(uid) => Ok(self.clusters.entry(uid).or_default()),
            None => Err("the API server does not answer".to_owned()),
        }
    }

    fn taint(&mut self, at: HostAddress, node: &str, present: bool) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        if !cluster.nodes.contains_key(node) {
            return Err(format!("node {node} does not exist"));
        }
        let changed =
            if present { cluster.tainted.insert(node.to_owned()) } else { cluster.tainted.remove(node) };
        Ok(changed.then(|| format!("{} node {node}", if present { "taint" } else { "untaint" })))
    }

    fn give_taints(
        &mut self,
        at: HostAddress,
        node: String,
        taints: Vec<String>,
    ) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        if !cluster.nodes.contains_key(&node) {
            return Err(format!("node {node} does not exist"));
        }
        let line = format!("taint node {node} with {}", taints.join(" "));
        let before = if taints.is_empty() {
            cluster.taints.remove(&node)
        } else {
            cluster.taints.insert(node, taints.clone())
        };
        Ok((before.unwrap_or_default() != taints).then_some(line))
    }

    fn record(
        &mut self,
        at: HostAddress,
        object: String,
        id: String,
        digest: String,
    ) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        let node = object.strip_prefix("/api/v1/nodes/");
        if let Some(node) = node.filter(|node| !cluster.nodes.contains_key(*node)) {
            return Err(format!("node {node} does not exist"));
        }
        let line = format!("record {id}");
        let before = cluster.records.insert((object, id), digest.clone());
        Ok((before != Some(digest)).then_some(line))
    }

    fn remove_object(&mut self, at: HostAddress, path: String) -> Result<Option<String>, String> {
        let removed = self.cluster_at(at)?.objects.remove(&path);
        Ok(removed.map(|_| format!("delete object {path}")))
    }

    fn forget_record(&mut self, at: HostAddress, id: String) -> Result<Option<String>, String> {
        let records = &mut self.cluster_at(at)?.records;
        let before = records.len();
        records.retain(|(_, recorded), _| *recorded != id);
        Ok((records.len() < before).then(|| format!("forget {id}")))
    }

    fn drain(&mut self, at: HostAddress, node: String) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        let line = format!("drain node {node}");
        Ok((cluster.nodes.contains_key(&node) && cluster.drained.insert(node)).then_some(line))
    }

    fn uncordon(&mut self, at: HostAddress, node: &str) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        if !cluster.nodes.contains_key(node) {
            return Err(format!("node {node} does not exist"));
        }
        Ok(cluster.drained.remove(node).then(|| format!("uncordon node {node}")))
    }

    /// Deletes a node. If its kubelet runs and it was not drained, this is a harm, unless the user declared that the host is lost.
    fn remove_node(&mut self, at: HostAddress, node: &str) -> Result<Option<String>, String> {
        let cluster = self.cluster_at(at)?;
        let Some(host) = cluster.nodes.remove(node) else { return Ok(None) };
        let drained = cluster.drained.remove(node);
        cluster.tainted.remove(node);
        cluster.taints.remove(node);
        let object = format!("/api/v1/nodes/{node}");
        cluster.objects.remove(&object);
        cluster.records.retain(|(recorded, _), _| *recorded != object);
        let host = self.host(host);
        if !drained && !host.declared_lost && host.runs("kubelet.service") {
            self.harms.push(format!("node {node} is removed while its pods run"));
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
        let programs = self.host(at).programs(name, &watches);
        if let Some(unit) = self.host_mut(at).units.get_mut(name) {
            unit.running = Some(wanted);
            unit.watches = watches;
            unit.started = programs;
        }
        let restarted = self.restarting.remove(&(at, name.to_owned())) == Some(self.life);
        let harms = self.skews(at, name, restarted);
        self.harms.extend(harms);
        Ok(Some(format!("start {name}")))
    }

    /// The first half of a restart. It is a harm if etcd loses its quorum or no API server is left.
    ///
    /// # Errors
    /// If the other members of etcd are no quorum without the member that restarts.
    fn halt(&mut self, at: HostAddress, name: &str, watches: &[String]) -> Result<Option<String>, String> {
        let host = self.host(at);
        let running = host.units.get(name).and_then(|unit| unit.running.as_ref());
        if running.is_none_or(|running| *running == host.unit_fingerprint(name, watches)) {
            return Ok(None);
        }
        if name == "etcd.service" {
            self.may_restart_member(at)?;
        }
        let uid = self.uid(at).unwrap_or_default();
        let before = (self.quorum(&uid), self.any_api(at));
        // The only member of etcd pauses all API servers.
        let is_only_member = name == "etcd.service" && self.voters(&uid).len() == 1;
        let masters = if is_only_member { 1 } else { self.masters(&uid) };
        self.host_mut(at).units.get_mut(name).into_iter().for_each(|unit| unit.running = None);
        if self.voters(&uid).len() > 1 && before.0 && !self.quorum(&uid) {
            self.harms.push(format!(
                "{} restarts {name}, which leaves etcd without a quorum",
                self.host(at).name()
            ));
        }
        if masters > 1 && before.1 && !self.any_api(at) {
            self.harms.push(format!("{} restarts {name}, which leaves no API server", self.host(at).name()));
        }
        self.interrupt(at, name);
        Ok(Some(format!("restart {name}")))
    }

    /// It is a harm if the nodes of two hosts are interrupted at the same time, or two hosts of etcd alone. What a killed command left
    /// stopped on a worker starts in the worker's turn, after the masters. A kubelet that it left stopped starts after all API servers,
    /// so control planes do not wait for it.
    fn interrupt(&mut self, at: HostAddress, name: &str) {
        let uid = self.host(at).uid();
        let runs = |host: HostAddress, unit: &str| self.host(host).units.contains_key(unit);
        let is_master = |host: HostAddress| runs(host, "kube-scheduler.service");
        let is_node = |host: HostAddress| runs(host, "kubelet.service");
        let is_left = |host: HostAddress, unit: &str, command: u64| {
            let of_worker = is_master(at) && !is_master(host);
            let of_kubelet = unit == "kubelet.service" && CONTROL_PLANE.contains(&name);
            command < self.life && (of_worker || of_kubelet)
        };
        let mut others = self.restarting.iter().filter(|((host, unit), command)| {
            let of_cluster = *host != at && self.host(*host).uid() == uid;
            of_cluster && is_node(*host) == is_node(at) && !is_left(*host, unit, **command)
        });
        if let Some(((other, unit), _)) = others.next() {
            let (name_here, name_there) = (self.host(at).name(), self.host(*other).name());
            let harm = format!("{name_here} restarts {name} while {name_there} restarts {unit}");
            self.harms.push(harm);
        }
        self.restarting.insert((at, name.to_owned()), self.life);
    }

    /// Applies the consequences of a change: a quorum forms a cluster, a kubelet that reaches the API server
    /// joins, and a cluster without member data is deleted.
    pub(super) fn settle(&mut self) {
        let members: BTreeMap<String, Vec<String>> = self
            .hosts
            .values()
            .filter_map(|host| Some((host.uid()?.to_owned(), host.etcd.clone()?)))
            .collect();
        self.clusters.retain(|uid, _| members.contains_key(uid));
        for (uid, peers) in members {
            if self.quorum(&uid) {
                self.form(&uid, peers);
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

    /// The next random number (splitmix64), if the world is shuffled.
    pub(super) fn draw(&mut self) -> Option<u64> {
        let seed = self.random.as_mut()?;
        *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}
