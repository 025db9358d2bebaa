//! Changes of a cluster after its hosts were written to: masters and workers may come and go, and labels and some settings may
//! change.

use kubeon_api::kubernetes_cluster::fixed_because;
use kubeon_api::{HostAddress, HostName, HostRole};
use kubeon_plan::{DesiredCluster, HostSpec, Refusal, RefusedField};

use crate::engine::StoredCluster;
use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// How to handle workers that are leaving and are requested again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingWorkerPolicy {
    /// Refuse the request: the removal must finish first.
    Refuse,
    /// Keep the workers and undo the removal. Until that is done, they stay marked as leaving.
    TakeBack,
}

impl LeavingWorkerPolicy {
    /// The policy for a user who takes leaving workers back or not.
    pub fn of(take_back: bool) -> Self {
        if take_back { Self::TakeBack } else { Self::Refuse }
    }
}

/// Marks hosts that are no longer requested as leaving and new masters as joining. Returns the names of the hosts that
/// leave from now on.
///
/// # Errors
/// Refuses every other change and names the fields.
pub fn apply(
    state: &mut StoredCluster,
    requested: &DesiredCluster,
    policy: LeavingWorkerPolicy,
) -> Result<Vec<String>, EngineError> {
    let same_but_hosts = DesiredCluster {
        masters: state.spec.masters.clone(),
        workers: state.spec.workers.clone(),
        etcd_hosts: state.spec.etcd_hosts.clone(),
        ..requested.clone()
    };
    let settings = state.spec.settings.with_changes(&requested.settings);
    if same_but_hosts != (DesiredCluster { settings, ..state.spec.clone() }) {
        return Err(conflict(state, requested));
    }
    let changes_masters = addresses(&requested.masters) != addresses(&state.spec.masters);
    let changes_etcd = addresses(&requested.etcd_hosts) != addresses(&state.spec.etcd_hosts);
    if (changes_masters || changes_etcd) && state.version.is_none() {
        let error = EngineError::refused(format!("the masters of {} cannot change yet", state.name));
        let reason = "its creation is not complete";
        return Err(error.row("cause", reason).remedy(EngineRemedy::CompleteOrDestroy(state.name.clone())));
    }
    let mut refusals = Vec::new();
    refusals.extend(requested.masters.iter().filter_map(|host| master_refusal(state, host)));
    let mut is_leaving = false;
    for host in &requested.workers {
        match worker_refusal(state, host, policy) {
            Some(WorkerRefusal::Leaving(refusal)) => {
                is_leaving = true;
                refusals.push(refusal);
            }
            Some(WorkerRefusal::Other(refusal)) => refusals.push(refusal),
            None => {}
        }
    }
    refusals.extend(no_master_stays(state, requested));
    refusals.extend(etcd_refusals(state, requested));
    if !refusals.is_empty() {
        let remedy = is_leaving.then(|| EngineRemedy::CompleteOrTakeBack(state.name.clone()));
        return Err(EngineError::refusals(state.name.as_str(), refusals, &[]).remedy(remedy));
    }
    Ok(mark(state, requested))
}

fn addresses(hosts: &[HostSpec]) -> Vec<HostAddress> {
    let mut addresses: Vec<_> = hosts.iter().map(|host| host.address).collect();
    addresses.sort_unstable();
    addresses
}

/// A worker that cannot be as requested.
enum WorkerRefusal {
    /// It is leaving.
    Leaving(Refusal),
    /// Another reason.
    Other(Refusal),
}

fn worker_refusal(
    state: &StoredCluster,
    host: &HostSpec,
    policy: LeavingWorkerPolicy,
) -> Option<WorkerRefusal> {
    let refuse = |reason: String| Refusal::new(RefusedField::Worker, host.address, reason);
    if state.spec.masters.iter().any(|master| master.address == host.address) {
        let reason = format!("is a master of {}: remove it first, then add it as a worker", state.name);
        return Some(WorkerRefusal::Other(refuse(reason)));
    }
    if runs_etcd_alone(state, host) {
        let reason = format!("is a host of etcd of {}: remove it first, then add it as a worker", state.name);
        return Some(WorkerRefusal::Other(refuse(reason)));
    }
    let stored = state.spec.workers.iter().find(|stored| stored.address == host.address);
    let leaving = state.leaving.get(&host.address);
    // A worker in both lists was taken back by an earlier request.
    let must_leave = policy == LeavingWorkerPolicy::Refuse
        || state.leaving_masters.contains_key(&host.address)
        || state.leaving_etcd_hosts.contains_key(&host.address);
    if leaving.is_some() && stored.is_none() && must_leave {
        return Some(WorkerRefusal::Leaving(refuse(format!("is being removed from {}", state.name))));
    }
    let name = stored.map_or_else(|| leaving.cloned().flatten(), |stored| stored.name.clone());
    kept(state, host, stored, name).map(|reason| WorkerRefusal::Other(refuse(reason)))
}

fn master_refusal(state: &StoredCluster, host: &HostSpec) -> Option<Refusal> {
    let refuse = |reason: String| Refusal::new(RefusedField::Master, host.address, reason);
    if state.spec.workers.iter().any(|worker| worker.address == host.address) {
        let reason = format!("is a worker of {}: remove it first, then add it as a master", state.name);
        return Some(refuse(reason));
    }
    if runs_etcd_alone(state, host) {
        let reason = format!("is a host of etcd of {}: remove it first, then add it as a master", state.name);
        return Some(refuse(reason));
    }
    if state.leaving.contains_key(&host.address) {
        return Some(refuse(format!("is being removed from {}: complete the removal first", state.name)));
    }
    let stored = state.spec.masters.iter().find(|stored| stored.address == host.address);
    kept(state, host, stored, stored.and_then(|stored| stored.name.clone())).map(refuse)
}

fn runs_etcd_alone(state: &StoredCluster, host: &HostSpec) -> bool {
    state.spec.etcd_hosts.iter().any(|stored| stored.address == host.address)
}

/// Why a host cannot have the requested name or internal address.
fn kept(
    state: &StoredCluster,
    host: &HostSpec,
    stored: Option<&HostSpec>,
    name: Option<HostName>,
) -> Option<String> {
    let address = stored.map(HostSpec::cluster_address);
    if let Some(address) = address.filter(|address| *address != host.cluster_address()) {
        return Some(format!("has the internal address {address} in {}: a node keeps it", state.name));
    }
    let named = name.filter(|name| host.name.as_ref() != Some(name))?;
    Some(format!("is named {named} in {}: a node keeps its name", state.name))
}

/// The members of etcd that exist are the only ones that new members can join.
fn no_master_stays(state: &StoredCluster, requested: &DesiredCluster) -> Option<Refusal> {
    let complete = |host: &&HostSpec| !state.joining_masters.contains(&host.address);
    let mut members = state.spec.masters.iter().filter(complete);
    let stays = |member: &HostSpec| requested.masters.iter().any(|host| host.address == member.address);
    let address = state.spec.masters.first()?.address;
    let reason = format!(
        "no master of {} would stay: add the new masters first, then remove the old ones (no master exists after delete)",
        state.name
    );
    (!members.any(stays)).then(|| Refusal::new(RefusedField::Master, address, reason))
}

/// Why the hosts of etcd alone cannot be as requested. Members join and leave those that exist.
fn etcd_refusals(state: &StoredCluster, requested: &DesiredCluster) -> Vec<Refusal> {
    let (stored, wanted) = (&state.spec.etcd_hosts, &requested.etcd_hosts);
    let refuse = |host: &HostSpec, reason: String| Refusal::new(RefusedField::EtcdHost, host.address, reason);
    let Some(first) = stored.first() else {
        let reason = || format!("etcd runs on the masters of {}, and stays there", state.name);
        return wanted.first().map(|host| refuse(host, reason())).into_iter().collect();
    };
    let complete = |host: &&HostSpec| !state.joining_etcd_hosts.contains(&host.address);
    let stays = |host: &HostSpec| wanted.iter().any(|other| other.address == host.address);
    if !stored.iter().filter(complete).any(stays) {
        let reason = format!(
            "no member of etcd of {} would stay: add the new hosts first, then remove the old ones",
            state.name
        );
        return vec![refuse(first, reason)];
    }
    let refusal = |host: &HostSpec| {
        if state.spec.nodes().any(|node| node.address == host.address) {
            return Some(refuse(host, format!("is a node of {}: remove it first", state.name)));
        }
        if state.leaving.contains_key(&host.address) {
            let reason = format!("is being removed from {}: complete the removal first", state.name);
            return Some(refuse(host, reason));
        }
        let known = stored.iter().find(|known| known.address == host.address);
        let name = known.and_then(|known| known.name.clone());
        kept(state, host, known, name).map(|reason| refuse(host, reason))
    };
    wanted.iter().filter_map(refusal).collect()
}

fn mark(state: &mut StoredCluster, requested: &DesiredCluster) -> Vec<String> {
    let stays = |host: &HostSpec, hosts: &[HostSpec]| hosts.iter().any(|other| other.address == host.address);
    let mut names = Vec::new();
    let mut leaving = Vec::new();
    for host in state.spec.workers.iter().filter(|host| !stays(host, &requested.workers)) {
        leaving.push((host.clone(), HostRole::Worker));
    }
    for host in state.spec.masters.iter().filter(|host| !stays(host, &requested.masters)) {
        leaving.push((host.clone(), HostRole::Master));
    }
    for host in state.spec.etcd_hosts.iter().filter(|host| !stays(host, &requested.etcd_hosts)) {
        leaving.push((host.clone(), HostRole::Etcd));
    }
    let new_members: Vec<HostAddress> = requested
        .etcd_hosts
        .iter()
        .filter(|host| !stays(host, &state.spec.etcd_hosts))
        .map(|host| host.address)
        .collect();
    let joining: Vec<HostAddress> = requested
        .masters
        .iter()
        .filter(|host| !stays(host, &state.spec.masters))
        .map(|host| host.address)
        .collect();
    for (host, role) in leaving {
        names.push(host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string));
        state.leaving.insert(host.address, host.name.clone());
        match role {
            HostRole::Master => state.remove_master(host.address, host.cluster_address()),
            HostRole::Etcd => state.remove_etcd_host(host.address, host.cluster_address()),
            _ => {}
        }
    }
    joining.into_iter().for_each(|host| state.add_master(host));
    new_members.into_iter().for_each(|host| state.add_etcd_host(host));
    names
}

/// The refusal of a different cluster with the same name. It lists the differences.
fn conflict(state: &StoredCluster, requested: &DesiredCluster) -> EngineError {
    let mut error =
        EngineError::refused(format!("Input cluster[{}] exist and is not what is asked for", state.name));
    for (field, stored, requested) in differences(&state.spec, requested) {
        error = error.row(field, format!("is {stored}, requested {requested}"));
    }
    for field in requested.settings.differences(&state.spec.settings) {
        if let Some(why) = fixed_because(field) {
            error = error.row(field, format!("cannot change: {why}"));
        }
    }
    let same_but_version = DesiredCluster { version: state.spec.version, ..requested.clone() };
    if same_but_version == state.spec {
        let (cluster, version) = (state.name.clone(), requested.version);
        return error.remedy(EngineRemedy::Upgrade { cluster, version });
    }
    error.remedy(EngineRemedy::KeepOrDestroy(state.name.clone()))
}

fn differences(stored: &DesiredCluster, requested: &DesiredCluster) -> Vec<(String, String, String)> {
    let (Ok(serde_json::Value::Object(stored)), Ok(serde_json::Value::Object(requested))) =
        (serde_json::to_value(stored), serde_json::to_value(requested))
    else {
        return Vec::new();
    };
    let text = |value: Option<&serde_json::Value>| value.map_or_else(String::new, short);
    let differing = stored.iter().filter(|(field, value)| requested.get(*field) != Some(*value));
    differing.map(|(field, value)| (field.clone(), short(value), text(requested.get(field)))).collect()
}

/// The addresses of a host, or a short form of another value.
fn host_or_short(value: &serde_json::Value) -> String {
    match (value.get("address"), value.get("internalAddress")) {
        (Some(address), None) => short(address),
        (Some(address), Some(internal)) => format!("{} ({})", short(address), short(internal)),
        (None, _) => short(value),
    }
}

/// A short form of a value: hosts as addresses.
fn short(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) if items.is_empty() => "none".to_owned(),
        serde_json::Value::Array(items) => items.iter().map(host_or_short).collect::<Vec<_>>().join(" "),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kubeon_plan::sim::cluster;

    use super::*;

    fn state() -> StoredCluster {
        let spec = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.4"]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        state.version = Some(state.spec.version);
        state
    }

    fn reasons(state: &mut StoredCluster, masters: &[&str], workers: &[&str]) -> Vec<String> {
        let error = apply(state, &cluster(masters, workers), LeavingWorkerPolicy::Refuse).unwrap_err();
        error.refused.unwrap().others.into_iter().map(|refusal| refusal.reason).collect()
    }

    #[test]
    fn masters_join_and_leave() {
        let mut state = state();
        let requested = cluster(&["10.0.0.2", "10.0.0.3"], &["10.0.0.4"]);
        let names = apply(&mut state, &requested, LeavingWorkerPolicy::Refuse).unwrap();
        assert_eq!(names, ["10.0.0.1"]);
        let (old, new): (HostAddress, HostAddress) =
            ("10.0.0.1".parse().unwrap(), "10.0.0.3".parse().unwrap());
        assert_eq!(state.leaving_masters.get(&old), Some(&old));
        assert_eq!(state.joining_masters, BTreeSet::from([new]));
        // The new master is given up before it joined.
        state.spec = requested;
        let fewer = cluster(&["10.0.0.2"], &["10.0.0.4"]);
        assert_eq!(apply(&mut state, &fewer, LeavingWorkerPolicy::Refuse).unwrap(), ["10.0.0.3"]);
        assert!(state.joining_masters.is_empty() && state.leaving_masters.contains_key(&new));
    }

    #[test]
    fn a_host_changes_its_role_in_two_changes() {
        let found = reasons(&mut state(), &["10.0.0.1", "10.0.0.2", "10.0.0.4"], &[]);
        assert_eq!(found, ["is a worker of demo: remove it first, then add it as a master"]);
        let found = reasons(&mut state(), &["10.0.0.1"], &["10.0.0.2"]);
        assert_eq!(found, ["is a master of demo: remove it first, then add it as a worker"]);
    }

    #[test]
    fn a_host_of_etcd_changes_its_role_in_two_changes() {
        let mut state = state();
        let hosts = ["10.0.0.5", "10.0.0.6"].map(|host| HostSpec::at(host.parse().unwrap()));
        state.spec.etcd_hosts = hosts.into();
        let reasons = |masters: &[&str], workers: &[&str]| {
            let requested = DesiredCluster {
                etcd_hosts: state.spec.etcd_hosts[1..].to_vec(),
                ..cluster(masters, workers)
            };
            let error = apply(&mut state.clone(), &requested, LeavingWorkerPolicy::TakeBack).unwrap_err();
            error.refused.unwrap().others.into_iter().map(|refusal| refusal.reason).collect::<Vec<_>>()
        };
        let found = reasons(&["10.0.0.1", "10.0.0.2"], &["10.0.0.4", "10.0.0.5"]);
        assert_eq!(found, ["is a host of etcd of demo: remove it first, then add it as a worker"]);
        let found = reasons(&["10.0.0.1", "10.0.0.2", "10.0.0.5"], &["10.0.0.4"]);
        assert_eq!(found, ["is a host of etcd of demo: remove it first, then add it as a master"]);
    }

    #[test]
    fn one_master_stays() {
        let found = reasons(&mut state(), &["10.0.0.3"], &["10.0.0.4"]);
        assert!(found[0].starts_with("no master of demo would stay"), "{found:?}");
    }

    #[test]
    fn the_masters_of_an_incomplete_cluster_stay() {
        let mut state = state();
        state.version = None;
        let error = apply(&mut state, &cluster(&["10.0.0.1"], &["10.0.0.4"]), LeavingWorkerPolicy::TakeBack);
        assert!(error.unwrap_err().title.contains("cannot change yet"));
    }

    #[test]
    fn a_leaving_master_is_not_taken_back() {
        let mut state = state();
        let fewer = cluster(&["10.0.0.1"], &["10.0.0.4"]);
        apply(&mut state, &fewer, LeavingWorkerPolicy::Refuse).unwrap();
        state.spec = fewer;
        let again = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.4"]);
        assert!(apply(&mut state, &again, LeavingWorkerPolicy::TakeBack).is_err());
    }
}
