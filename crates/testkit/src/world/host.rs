//! One simulated host: its content and its running programs.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::{Digest, HostAddress, Version};
use kubeon_wire::{
    API_WAY_FOUND, CertificateFact, Claim, Facts, Fence, HostsEntry, JournalEntry, KubeletFacts, Op,
    ResultState,
};

use super::effect::{Effect, FileOnDisk, HostContent};
use super::pods::{is_pod, service_of};
use crate::hosts::HostBuilder;
use crate::text::{fingerprint, sha256_like};

/// The folder of programs from the bundle for hosts that lack them.
const TOOLS: &str = "/var/lib/kubeon/tools";
/// The session installs it before the first step.
const NODE_PROGRAM: &str = "/var/lib/kubeon/node/current";
const BOOTSTRAP: &str = "/var/lib/kubelet/bootstrap/client.crt";

/// A simulated host.
#[derive(Clone)]
pub(super) struct SimulatedHost {
    pub address: HostAddress,
    base: Facts,
    pub up: bool,
    /// Whether its network is cut: its programs run, and nobody reaches it.
    pub isolated: bool,
    /// Whether the user declared that it is lost: the cluster goes on without it, whatever runs there.
    pub declared_lost: bool,
    pub accepts_logins: bool,
    /// How often it lost power or its network. Each loss breaks all sessions.
    pub cuts: usize,
    pub claim: Option<Claim>,
    pub kernel: BTreeMap<String, String>,
    pub names: Option<Vec<HostsEntry>>,
    pub files: BTreeMap<String, FileOnDisk>,
    pub parts: BTreeSet<Digest>,
    pub links: BTreeMap<String, String>,
    pub units: BTreeMap<String, Unit>,
    pub images: BTreeSet<String>,
    pub journal: BTreeMap<String, JournalRecord>,
    /// The etcd data: the names of the members at its first start.
    pub etcd: Option<Vec<String>>,
    /// The members for which the etcd data was made out of a snapshot.
    pub restored: Option<Vec<String>>,
    /// Whether its kubelet has its certificate.
    pub joined: bool,
}

/// A unit.
#[derive(Clone)]
pub(super) struct Unit {
    pub text: String,
    pub watches: Vec<String>,
    /// The fingerprint of the configuration with which it was started; `None` if it is not running.
    pub running: Option<String>,
    /// What its programs were when it was last started.
    pub started: Option<StartedPrograms>,
}

/// The programs of a unit at its last start.
#[derive(Clone)]
pub(super) struct StartedPrograms {
    /// Where their links pointed.
    pub links: String,
    pub version: Version,
    /// The version that they serve: an older one while they emulate it.
    pub serves: Version,
}

/// A journal entry, with the operation to check whether the result still exists.
#[derive(Clone, PartialEq)]
pub(super) struct JournalRecord {
    pub digest: String,
    pub op: Op,
}

impl SimulatedHost {
    pub(super) fn of(builder: HostBuilder) -> Self {
        let HostBuilder { address, facts, unknown } = builder;
        let claim = facts.claim.clone();
        Self {
            address,
            base: facts,
            up: unknown.is_none(),
            isolated: false,
            declared_lost: false,
            accepts_logins: true,
            cuts: 0,
            claim,
            kernel: BTreeMap::new(),
            names: None,
            files: BTreeMap::new(),
            parts: BTreeSet::new(),
            links: BTreeMap::new(),
            units: BTreeMap::new(),
            images: BTreeSet::new(),
            journal: BTreeMap::new(),
            etcd: None,
            restored: None,
            joined: false,
        }
    }

    /// Gives it another address. Its etcd member, which listened at the old one, ends.
    pub(super) fn readdress(&mut self, to: HostAddress) {
        let from = std::mem::replace(&mut self.address, to);
        let links = self.base.links.iter_mut().map(|link| &mut link.address);
        let own = self.base.addresses.iter_mut().chain(links);
        own.filter(|address| **address == from.ip()).for_each(|address| *address = to.ip());
        self.units.get_mut("etcd.service").into_iter().for_each(|unit| unit.running = None);
    }

    pub(super) fn name(&self) -> String {
        self.base.hostname.clone()
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.claim.as_ref().map(|claim| claim.uid.as_str())
    }

    pub(super) fn runs(&self, unit: &str) -> bool {
        self.up && self.units.get(unit).is_some_and(|unit| unit.running.is_some())
    }

    /// Whether other hosts and the command reach it.
    pub(super) fn is_reachable(&self) -> bool {
        self.up && !self.isolated
    }

    /// Applies an effect that concerns only this host. Returns the line for the log if the host changed.
    pub(super) fn apply(&mut self, effect: Effect) -> Result<Option<String>, String> {
        Ok(match effect {
            Effect::Claim(fence) => self.set_claim(fence),
            Effect::Kernel { key, value } => put(&mut self.kernel, "set", "reset", key, value),
            Effect::RestoreParameter(key) => self.kernel.remove(&key).map(|_| format!("restore {key}")),
            Effect::Names(entries) => {
                let before = self.names.replace(entries);
                (before != self.names).then(|| "write the hosts block".to_owned())
            }
            Effect::File { path, file } => put(&mut self.files, "write", "rewrite", path, file),
            Effect::Part(digest) => {
                let line = format!("unpack {}", &digest.as_str()[..12]);
                self.parts.insert(digest).then_some(line)
            }
            Effect::Link { path, target } => put(&mut self.links, "link", "relink", path, target),
            Effect::Unit { name, text } => self.write_unit(name, text),
            Effect::Image { name, part } => self.import(name, &part)?,
            Effect::Journal { id, digest, op } => {
                let same =
                    self.journal.get(&id).is_some_and(|entry| entry.digest == digest && entry.op == op);
                let line = format!("record {id}");
                self.journal.insert(id, JournalRecord { digest, op });
                (!same).then_some(line)
            }
            Effect::Stop(name) => self.units.remove(&name).map(|_| format!("stop {name}")),
            Effect::Remove(content) => self.remove(content).then(|| format!("remove {content:?}")),
            Effect::Erase(path) => self.files.remove(&path).map(|_| format!("remove {path}")),
            Effect::Forget { name, files } => {
                let before = self.journal.len();
                self.journal.retain(|_, record| !concerns(&record.op, &name, &files));
                (self.journal.len() != before).then(|| format!("forget {name}"))
            }
            Effect::ForgetChecks(steps) => {
                let before = self.journal.len();
                self.journal.retain(|id, _| !steps.contains(id));
                (self.journal.len() != before).then(|| format!("forget {}", steps.join(" ")))
            }
            Effect::Down(name) => {
                let running = self.units.get_mut(&name).and_then(|unit| unit.running.take());
                running.map(|_| format!("halt {name}"))
            }
            Effect::Halt { .. }
            | Effect::AddLearner(_)
            | Effect::WriteMembers
            | Effect::Promote
            | Effect::MoveMember { .. }
            | Effect::RemoveMember(_)
            | Effect::RestoreMember(_)
            | Effect::Start { .. }
            | Effect::Object { .. }
            | Effect::RemoveObject(_)
            | Effect::ForgetClusterRecord(_)
            | Effect::ClusterRecord { .. }
            | Effect::Taint { .. }
            | Effect::NodeTaints { .. }
            | Effect::Drain(_)
            | Effect::Uncordon(_)
            | Effect::RemoveNode(_) => {
                return Err("concerns more than one host".to_owned());
            }
        })
    }

    fn set_claim(&mut self, fence: Fence) -> Option<String> {
        let Fence { cluster, uid, generation, version, role } = fence;
        let before = self.claim.replace(Claim { cluster, uid, generation, version, role });
        (before != self.claim).then(|| format!("claim, generation {generation}"))
    }

    fn write_unit(&mut self, name: String, text: String) -> Option<String> {
        let line = match self.units.get(&name) {
            Some(unit) if unit.text == text => return None,
            Some(_) => format!("rewrite unit {name}"),
            None => format!("write unit {name}"),
        };
        match self.units.get_mut(&name) {
            Some(unit) => unit.text = text,
            None => drop(
                self.units.insert(name, Unit { text, watches: Vec::new(), running: None, started: None }),
            ),
        }
        Some(line)
    }

    fn import(&mut self, name: String, part: &Digest) -> Result<Option<String>, String> {
        if !self.parts.contains(part) {
            return Err(format!("the archive of {name} is not unpacked"));
        }
        if !self.runs("containerd.service") {
            return Err("containerd does not answer".to_owned());
        }
        let line = format!("import {name}");
        Ok(self.images.insert(name).then_some(line))
    }

    fn remove(&mut self, content: HostContent) -> bool {
        match content {
            HostContent::Images => clear(&mut self.images),
            HostContent::Links => clear(&mut self.links),
            HostContent::Files => clear(&mut self.files) | std::mem::take(&mut self.joined),
            HostContent::Parts => clear(&mut self.parts),
            HostContent::Etcd => self.etcd.take().is_some() | self.restored.take().is_some(),
            HostContent::Kernel => clear(&mut self.kernel),
            HostContent::Names => self.names.take().is_some(),
            HostContent::Journal => clear(&mut self.journal),
            HostContent::Claim => self.claim.take().is_some(),
        }
    }

    /// Whether a program can start: it is unpacked and selected, and every file in its arguments exists.
    pub(super) fn can_start(&self, unit: &str) -> Result<(), String> {
        if unit.contains("[Timer]") {
            return Ok(());
        }
        if is_pod(unit) {
            let kubelet = self.runs("kubelet.service");
            return kubelet.then_some(()).ok_or_else(|| "no kubelet runs the static pod".to_owned());
        }
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let Some(program) = command.and_then(|command| command.split_whitespace().next()) else {
            return Err("the unit starts nothing".to_owned());
        };
        if let Some((link, target)) =
            self.links.iter().find(|(path, _)| program.starts_with(&format!("{path}/")))
        {
            let digest = target.rsplit('/').next().unwrap_or_default();
            if !self.parts.iter().any(|part| part.as_str() == digest) {
                return Err(format!("{link} points to {target}, which is not unpacked"));
            }
        } else if program.starts_with("/var/lib/kubeon/") && program != NODE_PROGRAM && !self.has(program) {
            return Err(format!("{program} does not exist"));
        }
        let absent = self.base.programs.iter().find(|(name, present)| {
            !**present
                && calls(program, name)
                && !(unit.contains(TOOLS) && self.has(&format!("{TOOLS}/{name}")))
        });
        if let Some((name, _)) = absent {
            return Err(format!("{program}: exec: {name}: executable file not found in $PATH"));
        }
        let paths = unit.match_indices("=/etc/").map(|(at, _)| &unit[at + 1..]);
        match paths
            .map(|rest| rest.split_once(|end: char| end.is_ascii_whitespace()).map_or(rest, |(path, _)| path))
            .find(|path| !self.is_created_at_runtime(path) && !self.has(path))
        {
            Some(missing) => Err(format!("{program}: {missing} does not exist")),
            None => Ok(()),
        }
    }

    /// Whether a program creates the file itself.
    fn is_created_at_runtime(&self, path: &str) -> bool {
        path == "/etc/kubernetes/kubelet.conf"
    }

    /// Whether the path exists, written by kubeon or created by a running program.
    pub(super) fn has(&self, path: &str) -> bool {
        match path {
            // A kubelet writes it before it asks for its certificate.
            "/etc/kubernetes/kubelet.conf" => self.joined || self.runs("kubelet.service"),
            "/var/lib/kubelet/pki/kubelet-client-current.pem" => self.joined,
            API_WAY_FOUND => self.runs("apiserver-startup.service"),
            "/run/flannel/subnet.env" => self.runs("flanneld.service") && self.joined,
            _ => self.files.contains_key(path) || self.links.contains_key(path),
        }
    }

    /// The fingerprint of the configuration of a unit: its text and the files that it watches.
    pub(super) fn unit_fingerprint(&self, name: &str, watches: &[String]) -> String {
        let mut all = self.units.get(name).map(|unit| unit.text.clone()).unwrap_or_default();
        for path in watches {
            all.push_str(path);
            all.push_str(self.files.get(path).map_or("", |file| &file.text));
            all.push_str(self.links.get(path).map_or("", String::as_str));
        }
        fingerprint(&all)
    }

    /// The facts of the host, without the report of its API server.
    pub(super) fn facts(&self, now: i64) -> Facts {
        let ports = [("etcd.service", 2379), ("kube-apiserver.service", 6443), ("kubelet.service", 10250)];
        let mut facts = self.base.clone();
        facts.clock_seconds = now;
        facts.claim = self.claim.clone();
        facts.node_program = self.claim.is_some().then(|| sha256_like("kubeon-node").parse().unwrap());
        facts.parts = self.parts.iter().cloned().collect();
        facts.busy_ports = ports.iter().filter(|(unit, _)| self.runs(unit)).map(|(_, port)| *port).collect();
        // The probe reads only known folders.
        let certificates = self.files.range(pki("")..).take_while(|(path, _)| path.starts_with(&pki("")));
        facts.certificates = certificates.filter_map(|(path, file)| certificate(path, &file.text)).collect();
        facts.kubelet = KubeletFacts { bootstrap: self.bootstrap(), own: self.own(now) };
        facts.journal = self.journal.iter().map(|(id, entry)| self.entry(id, entry)).collect();
        facts
    }

    /// The certificate with which its kubelet requests its own certificate.
    pub(super) fn bootstrap(&self) -> Option<CertificateFact> {
        certificate(BOOTSTRAP, &self.files.get(BOOTSTRAP)?.text)
    }

    /// The own certificate of the kubelet, which it renews in time.
    fn own(&self, now: i64) -> Option<CertificateFact> {
        let path = "/var/lib/kubelet/pki/kubelet-client-current.pem".to_owned();
        self.joined.then(|| CertificateFact { path, not_before: now, not_after: now + 365 * 86_400 })
    }

    fn entry(&self, id: &str, record: &JournalRecord) -> JournalEntry {
        let stopped = self.stopped(&record.op).map(ResultState::Stopped);
        let drifted = || self.drift(&record.op).map(ResultState::Drifted);
        let state = stopped.or_else(drifted).unwrap_or(ResultState::UpToDate);
        JournalEntry { id: id.to_owned(), digest: record.digest.clone(), state }
    }

    fn stopped(&self, op: &Op) -> Option<String> {
        let Op::Service { name, .. } = op else { return None };
        let runs = self.units.get(&service_of(name)).is_some_and(|unit| unit.running.is_some());
        (!runs).then(|| format!("{name} is not running"))
    }

    fn drift(&self, op: &Op) -> Option<String> {
        match op {
            Op::Kernel { modules, parameters, optional: _ } => {
                let module = modules.iter().find(|name| !self.kernel.contains_key(&format!("module {name}")));
                let parameter = parameters.iter().find(|(key, value)| self.kernel.get(*key) != Some(value));
                module
                    .map(|name| format!("{name} is not loaded"))
                    .or(parameter.map(|(key, _)| format!("{key} differs")))
            }
            Op::Hosts { entries } => {
                (self.names.as_ref() != Some(entries)).then(|| "the names differ".to_owned())
            }
            Op::Files { files } => files.iter().find_map(|file| {
                let (kubeon_wire::Content::Text(wanted) | kubeon_wire::Content::Sealed(wanted)) =
                    &file.content
                else {
                    return Some(format!("{} was never resolved", file.path));
                };
                let matches = self
                    .files
                    .get(&file.path)
                    .is_some_and(|found| found.text == *wanted && found.mode == file.mode);
                (!matches).then(|| format!("{} differs", file.path))
            }),
            Op::Part { name, digest, .. } => {
                (!self.parts.contains(digest)).then(|| format!("{name} is missing"))
            }
            Op::Links { links } => links
                .iter()
                .find(|link| self.links.get(&link.path) != Some(&link.target))
                .map(|link| format!("{} points elsewhere", link.path)),
            Op::Service { name, unit, watches, ready: _ } => match self.units.get(&service_of(name)) {
                Some(found) if found.text != *unit => Some(format!("{name} differs")),
                Some(Unit { running: None, .. }) | None => None,
                Some(Unit { running: Some(with), .. }) => {
                    let differs = *with != self.unit_fingerprint(&service_of(name), watches);
                    differs.then(|| format!("{name} was started with an older configuration"))
                }
            },
            Op::Image { name, part: _ } => {
                (!self.images.contains(name)).then(|| format!("{name} is missing"))
            }
            // The result is stored in the cluster, or there is none.
            _ => None,
        }
    }
}

/// Whether the operation wrote the unit or one of the files.
fn concerns(op: &Op, unit: &str, paths: &[String]) -> bool {
    match op {
        Op::Service { name, .. } => service_of(name) == unit,
        Op::Files { files } => files.iter().any(|file| paths.contains(&file.path)),
        _ => false,
    }
}

fn clear<T: Default + PartialEq>(content: &mut T) -> bool {
    std::mem::take(content) != T::default()
}

fn put<V: PartialEq>(
    map: &mut BTreeMap<String, V>,
    first: &str,
    again: &str,
    key: String,
    value: V,
) -> Option<String> {
    let verb = match map.get(&key) {
        Some(current) if *current == value => return None,
        Some(_) => again,
        None => first,
    };
    let line = format!("{verb} {key}");
    map.insert(key, value);
    Some(line)
}

/// Whether the program calls the other one. kube-proxy and flannel call nft and iptables, whatever the kernel
/// supports.
fn calls(program: &str, other: &str) -> bool {
    ["nft", "iptables"].contains(&other)
        && ["/kube-proxy", "/flanneld"].iter().any(|name| program.ends_with(name))
}

/// The path of a certificate or key of the cluster.
pub(super) fn pki(name: &str) -> String {
    format!("/etc/kubernetes/pki/{name}")
}

/// The dates of a certificate that the simulated secrets created.
fn certificate(path: &str, text: &str) -> Option<CertificateFact> {
    // The dates stand at the end, and every look reads all files: this is much faster than splitting the words.
    let number = |key: &str| text.rsplit_once(key)?.1.split_whitespace().next()?.parse().ok();
    Some(CertificateFact {
        path: path.to_owned(),
        not_before: number("not-before=")?,
        not_after: number("not-after=")?,
    })
}
