//! The etcd members of the simulated clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use kubeon_api::{HostAddress, is_majority};
use kubeon_wire::EtcdFact;

use super::effect::FileOnDisk;
use super::host::SimulatedHost;
use super::state::{Cluster, State};

/// The file with which a member starts.
const MEMBERSHIP: &str = "/etc/kubernetes/etcd-membership.env";
const SERVICE: &str = "etcd.service";
const API_SERVER: &str = "kube-apiserver.service";

impl State {
    /// A member without data starts as part of a new cluster, or as a learner of one that exists. If it starts a new
    /// cluster twice or with other peers, it creates a second cluster: a harm that loses data.
    pub(super) fn start_etcd(&mut self, at: HostAddress) -> Result<(), String> {
        let uid = self.uid(at).ok_or("etcd starts on a host without a claim")?;
        let host = self.host(at);
        let text = host.files.get(MEMBERSHIP).map(|file| file.text.clone()).unwrap_or_default();
        if host.etcd.is_some() {
            return Ok(());
        }
        let (name, restored) = (host.name(), host.restored.clone());
        let peers = first_members(&text);
        if !peers.contains(&name) {
            return Err(format!("etcd: {name} is not among the initial cluster {peers:?}"));
        }
        let known = self.clusters.entry(uid.clone()).or_default();
        if text.contains("ETCD_INITIAL_CLUSTER_STATE=existing") {
            let listed = known.listed();
            if peers != listed {
                return Err(format!("etcd: the initial cluster {peers:?} is not the cluster {listed:?}"));
            }
        } else {
            if known.formed.is_some() && known.started.contains(&name) {
                let text = "starts its etcd member again with its data lost while the cluster exists";
                self.harms.push(format!("{name} {text}"));
            }
            let others = self.hosts.values().filter(|host| host.uid() == Some(uid.as_str()));
            for other in others.filter(|host| host.etcd.is_some()) {
                if let Some(other) = other.etcd.as_ref().filter(|other| **other != peers) {
                    let text = format!("starts an etcd member with peers {peers:?}, others have {other:?}");
                    self.harms.push(format!("{name} {text}"));
                }
                if other.restored != restored {
                    let text = "starts an etcd member with other data than";
                    self.harms.push(format!("{name} {text} {}", other.name()));
                }
            }
            if let Some(members) = restored.filter(|members| *members != peers) {
                let text = format!("starts an etcd member with peers {peers:?}, its data is for {members:?}");
                self.harms.push(format!("{name} {text}"));
            }
        }
        let cluster = self.clusters.entry(uid).or_default();
        cluster.peers.insert(name.clone(), at);
        cluster.started.insert(name);
        self.host_mut(at).etcd = Some(peers);
        Ok(())
    }

    /// Makes the data of the host's member out of the snapshot. It is a harm if that replaces the data of a member that started.
    pub(super) fn restore_member(
        &mut self,
        at: HostAddress,
        members: Vec<String>,
    ) -> Result<Option<String>, String> {
        self.snapshot.as_ref().ok_or("there is no snapshot")?;
        let host = self.host_mut(at);
        if host.runs(SERVICE) {
            return Err(format!("{SERVICE} is active on this host: its data is not replaced"));
        }
        let (name, started) = (host.name(), host.etcd.is_some());
        let before = host.restored.replace(members);
        let changed = before != host.restored;
        if started {
            self.harms.push(format!("{name} replaces the data of a member that started"));
        }
        Ok(changed.then(|| "make the data of a member out of the snapshot".to_owned()))
    }

    /// The cluster has its first quorum. If its members were restored, it has the content of the snapshot.
    pub(super) fn form(&mut self, uid: &str, members: Vec<String>) {
        let is_restored = self.hosts.values().any(|host| host.uid() == Some(uid) && host.restored.is_some());
        let content = self.snapshot.clone().filter(|_| is_restored);
        let cluster = self.clusters.entry(uid.to_owned()).or_default();
        if cluster.formed.is_some() {
            return;
        }
        if let Some(Cluster { objects, nodes, tainted, taints, drained, records, .. }) = content {
            *cluster = Cluster { objects, nodes, tainted, taints, drained, records, ..cluster.clone() };
        }
        cluster.formed = Some(members);
    }

    fn member_host(&self, uid: &str, name: &str) -> Option<&SimulatedHost> {
        let is_member =
            |host: &&SimulatedHost| host.uid() == Some(uid) && host.etcd.is_some() && host.name() == name;
        self.hosts.values().find(is_member)
    }

    /// The members with a vote: those that the cluster has, or the initial ones before its first quorum.
    pub(super) fn voters(&self, uid: &str) -> Vec<String> {
        let formed = self.clusters.get(uid).and_then(|cluster| cluster.formed.clone());
        let initial = || {
            let mut hosts = self.hosts.values().filter(|host| host.uid() == Some(uid));
            hosts.find_map(|host| host.etcd.clone()).unwrap_or_default()
        };
        formed.unwrap_or_else(initial)
    }

    /// Whether more than half of the members with a vote run and reach each other.
    pub(super) fn quorum(&self, uid: &str) -> bool {
        let voters = self.voters(uid);
        let runs = |name: &&String| self.member_host(uid, name).is_some_and(|host| host.runs(SERVICE));
        let reached = |name: &&String| voters.len() == 1 || self.is_reached(uid, name);
        voters.iter().filter(runs).filter(reached).count() * 2 > voters.len()
    }

    /// Whether the other members reach a member: they know its address, and its network is not cut.
    fn is_reached(&self, uid: &str, name: &str) -> bool {
        let known = self.clusters.get(uid).and_then(|cluster| cluster.peers.get(name));
        let host = self.member_host(uid, name);
        let address = host.map(|host| host.address);
        host.is_none_or(|host| !host.isolated) && known.is_none_or(|known| address == Some(*known))
    }

    /// Asks the other members before the member of the host restarts, as the host does: they must be a quorum without it. A member that
    /// does not serve, and one of fewer than three, may restart at any time. A refusal is a harm if no host of a member is lost: only
    /// that excuses the order of the plan.
    ///
    /// # Errors
    /// The number of members that would serve.
    pub(super) fn may_restart_member(&mut self, at: HostAddress) -> Result<(), String> {
        let Some(uid) = self.uid(at).filter(|_| self.etcd_serves(at)) else { return Ok(()) };
        let (voters, own) = (self.voters(&uid), self.host(at).name());
        let serves = |name: &&String| {
            let runs = self.member_host(&uid, name).is_some_and(|host| host.runs(SERVICE));
            **name != own && runs && self.is_reached(&uid, name)
        };
        let (serving, total) = (voters.iter().filter(serves).count(), voters.len());
        if total < 3 || is_majority(serving, total) {
            return Ok(());
        }
        let refusal = format!(
            "etcd member {own} is not restarted: without it {serving} of {total} members would serve, that is no quorum"
        );
        let is_reachable =
            |name: &String| self.member_host(&uid, name).is_some_and(SimulatedHost::is_reachable);
        if voters.iter().all(is_reachable) {
            self.harms.push(refusal.clone());
        }
        Err(refusal)
    }

    /// Whether the member of the host serves clients.
    pub(super) fn etcd_serves(&self, at: HostAddress) -> bool {
        let host = self.host(at);
        let Some(uid) = host.uid().filter(|uid| self.quorum(uid)) else { return false };
        let voters = self.voters(uid);
        let name = host.name();
        host.runs(SERVICE) && voters.contains(&name) && (voters.len() == 1 || self.is_reached(uid, &name))
    }

    /// Whether the API server of the host reaches etcd: the member of the host, or else one of those that its unit names.
    pub(super) fn reaches_etcd(&self, at: HostAddress) -> bool {
        if self.host(at).units.contains_key(SERVICE) {
            return self.etcd_serves(at);
        }
        self.used_members(at).any(|member| self.etcd_serves(member))
    }

    /// The hosts of the members that the API server of a host uses and reaches.
    fn used_members(&self, at: HostAddress) -> impl Iterator<Item = HostAddress> {
        let unit = self.host(at).units.get(API_SERVER);
        self.hosts.keys().copied().filter(move |member| {
            let url = format!("https://{}:2379", member.ip());
            self.reaches(at, *member) && unit.is_some_and(|unit| unit.text.contains(&url))
        })
    }

    /// The number of masters: that of the members with a vote, unless etcd has hosts of its own.
    pub(super) fn masters(&self, uid: &str) -> usize {
        let is_master =
            |host: &&SimulatedHost| host.uid() == Some(uid) && host.runs(API_SERVER) && host.is_reachable();
        let alone = |host: &&SimulatedHost| !host.units.contains_key(SERVICE);
        let masters: Vec<&SimulatedHost> = self.hosts.values().filter(is_master).collect();
        if masters.iter().any(alone) { masters.len() } else { self.voters(uid).len() }
    }

    /// The report of the etcd member of the host, or of one that its API server uses. A member answers no client before its first
    /// quorum, and no learner does.
    pub(super) fn etcd(&self, at: HostAddress) -> EtcdFact {
        let host = self.host(at);
        if host.units.contains_key(API_SERVER) && !host.units.contains_key(SERVICE) {
            let serving = self.used_members(at).find(|member| self.etcd_serves(*member));
            return serving.map(|member| self.etcd(member)).unwrap_or_default();
        }
        if !host.runs(SERVICE) {
            return EtcdFact::Down;
        }
        let uid = host.uid().unwrap_or_default();
        let formed = self.clusters.get(uid).and_then(|cluster| cluster.formed.as_ref());
        let Some(formed) = formed.filter(|formed| !self.slow.etcd && formed.contains(&host.name())) else {
            return EtcdFact::Unknown;
        };
        let health = |name: &String| {
            // A host without power or network does not answer. A host whose member is not running refuses the
            // connection.
            let Some(member) = self.member_host(uid, name) else { return Some(false) };
            let reached = formed.len() == 1 || self.is_reached(uid, name);
            member.is_reachable().then(|| member.runs(SERVICE) && reached && self.quorum(uid))
        };
        EtcdFact::Members(formed.iter().map(|name| (name.clone(), health(name))).collect())
    }

    /// The members without a vote that the member of the host lists.
    pub(super) fn learners(&self, at: HostAddress) -> BTreeSet<String> {
        let uid = self.host(at).uid().filter(|_| matches!(self.etcd(at), EtcdFact::Members(_)));
        let cluster = uid.and_then(|uid| self.clusters.get(uid));
        cluster.map(|cluster| cluster.learners.clone()).unwrap_or_default()
    }

    pub(super) fn add_learner(&mut self, at: HostAddress, name: String) -> Result<Option<String>, String> {
        let uid = self.uid(at).filter(|uid| self.quorum(uid)).ok_or("no member of etcd answers")?;
        let cluster = self.clusters.entry(uid).or_default();
        if cluster.listed().contains(&name) {
            return Ok(None);
        }
        let line = format!("add learner {name}");
        cluster.learners.insert(name);
        Ok(Some(line))
    }

    /// Writes the list of members with which the member of the host starts, unless it started before.
    pub(super) fn write_members(&mut self, at: HostAddress) -> Result<Option<String>, String> {
        let uid = self.uid(at).filter(|uid| self.quorum(uid)).ok_or("no member of etcd answers")?;
        if self.host(at).etcd.is_some() {
            return Ok(None);
        }
        let listed = self.clusters.entry(uid).or_default().listed();
        let pairs: Vec<String> = listed.iter().map(|name| format!("{name}=https://{name}:2380")).collect();
        let text = format!("ETCD_INITIAL_CLUSTER={}\nETCD_INITIAL_CLUSTER_STATE=existing\n", pairs.join(","));
        let file = FileOnDisk { mode: 0o600, text, secret: false };
        let before = self.host_mut(at).files.insert(MEMBERSHIP.to_owned(), file.clone());
        Ok((before != Some(file)).then(|| format!("write {MEMBERSHIP} of a learner")))
    }

    pub(super) fn promote(&mut self, at: HostAddress) -> Result<Option<String>, String> {
        let uid = self.uid(at).filter(|uid| self.quorum(uid)).ok_or("no member of etcd answers")?;
        let host = self.host(at);
        let (name, runs) = (host.name(), host.runs(SERVICE));
        let cluster = self.clusters.entry(uid.clone()).or_default();
        if !cluster.learners.contains(&name) {
            return Ok(None);
        }
        if !runs {
            return Err("can only promote a learner member which is in sync with leader".to_owned());
        }
        cluster.learners.remove(&name);
        let formed = cluster.formed.get_or_insert_default();
        formed.push(name.clone());
        formed.sort_unstable();
        if !self.quorum(&uid) {
            self.harms.push(format!("{name} gets a vote, which leaves etcd without a quorum"));
        }
        Ok(Some(format!("promote {name}")))
    }

    /// The addresses at which the members reach each other, as the member of the host lists them.
    pub(super) fn member_addresses(&self, at: HostAddress) -> BTreeMap<String, Ipv4Addr> {
        let uid = self.host(at).uid().filter(|_| matches!(self.etcd(at), EtcdFact::Members(_)));
        let peers = uid.and_then(|uid| self.clusters.get(uid)).into_iter().flat_map(|cluster| &cluster.peers);
        peers.map(|(name, host)| (name.clone(), host.ip())).collect()
    }

    /// Tells the members the new address of one of them.
    pub(super) fn move_member(
        &mut self,
        at: HostAddress,
        name: &str,
        address: Ipv4Addr,
    ) -> Result<Option<String>, String> {
        let uid = self.uid(at).filter(|_| self.etcd_serves(at)).ok_or("the member does not answer")?;
        let peers = &mut self.clusters.entry(uid).or_default().peers;
        let before = peers.insert(name.to_owned(), HostAddress::from(address));
        Ok((before != Some(HostAddress::from(address))).then(|| format!("member {name} is at {address}")))
    }

    /// Removes a member. Its program ends if it learns it. As etcd, it refuses a removal that leaves no quorum.
    pub(super) fn remove_member(&mut self, at: HostAddress, name: &str) -> Result<Option<String>, String> {
        let uid = self.uid(at).filter(|_| self.etcd_serves(at)).ok_or("the member does not answer")?;
        let voters: Vec<String> = self.voters(&uid).into_iter().filter(|voter| voter != name).collect();
        let serves = |name: &&String| {
            let runs = self.member_host(&uid, name).is_some_and(|host| host.runs(SERVICE));
            runs && (voters.len() == 1 || self.is_reached(&uid, name))
        };
        if voters.iter().filter(serves).count() * 2 <= voters.len() {
            return Err(format!("the removal of {name} would leave no quorum"));
        }
        let cluster = self.clusters.entry(uid.clone()).or_default();
        cluster.started.remove(name);
        cluster.peers.remove(name);
        let learner = cluster.learners.remove(name);
        let voter = cluster.formed.as_ref().is_some_and(|formed| formed.iter().any(|voter| voter == name));
        cluster.formed = Some(voters);
        let host = self.member_host(&uid, name).filter(|host| !host.isolated).map(|host| host.address);
        if let Some(unit) = host.and_then(|host| self.host_mut(host).units.get_mut(SERVICE)) {
            unit.running = None;
        }
        Ok((learner || voter).then(|| format!("remove member {name}")))
    }

    /// Ends the member of a host that is none any more.
    pub(super) fn end_removed_member(&mut self, at: HostAddress) {
        let host = self.host(at);
        let (name, cluster) = (host.name(), host.uid().and_then(|uid| self.clusters.get(uid)));
        let removed = cluster.is_some_and(|known| known.formed.is_some() && !known.listed().contains(&name));
        if removed && let Some(unit) = self.host_mut(at).units.get_mut(SERVICE) {
            unit.running = None;
        }
    }
}

impl Cluster {
    /// The names of all members.
    fn listed(&self) -> Vec<String> {
        let mut names: Vec<String> = self.formed.iter().flatten().chain(&self.learners).cloned().collect();
        names.sort_unstable();
        names
    }
}

/// The names in `ETCD_INITIAL_CLUSTER=NAME=URL,NAME=URL`.
fn first_members(environment: &str) -> Vec<String> {
    let list = environment.lines().find_map(|line| line.strip_prefix("ETCD_INITIAL_CLUSTER="));
    let mut names: Vec<String> = list
        .unwrap_or_default()
        .split(',')
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .collect();
    names.sort_unstable();
    names
}
