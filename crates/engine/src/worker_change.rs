//! Changes of a cluster after its hosts were written to: only the list of workers may change.

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

/// Marks workers that are no longer requested as leaving, and returns their names.
///
/// # Errors
/// Refuses every other change and names the fields.
pub fn apply(
    state: &mut StoredCluster,
    requested: &DesiredCluster,
    policy: LeavingWorkerPolicy,
) -> Result<Vec<String>, EngineError> {
    let same_but_workers = DesiredCluster { workers: state.spec.workers.clone(), ..requested.clone() };
    if same_but_workers != state.spec {
        return Err(conflict(state, requested));
    }
    let refuse = |host: &HostSpec, reason: String| Refusal::new(RefusedField::Worker, host.address, reason);
    let mut is_leaving = false;
    let refusals: Vec<Refusal> = requested
        .workers
        .iter()
        .filter_map(|host| {
            let stored = state.spec.workers.iter().find(|stored| stored.address == host.address);
            let leaving = state.leaving.get(&host.address);
            // A worker in both lists was taken back by an earlier request.
            if leaving.is_some() && stored.is_none() && policy == LeavingWorkerPolicy::Refuse {
                is_leaving = true;
                return Some(refuse(host, format!("is being removed from {}", state.name)));
            }
            let address = stored.map(HostSpec::cluster_address);
            if let Some(address) = address.filter(|address| *address != host.cluster_address()) {
                let reason = format!("has the internal address {address} in {}: a node keeps it", state.name);
                return Some(refuse(host, reason));
            }
            let name = stored.map_or_else(|| leaving.cloned().flatten(), |stored| stored.name.clone());
            let named = name.filter(|name| host.name.as_ref() != Some(name))?;
            Some(refuse(host, format!("is named {named} in {}: a node keeps its name", state.name)))
        })
        .collect();
    if !refusals.is_empty() {
        let remedy = is_leaving.then(|| EngineRemedy::CompleteOrTakeBack(state.name.clone()));
        return Err(EngineError::refusals(state.name.as_str(), refusals, &[]).remedy(remedy));
    }
    let stays =
        |host: &&HostSpec| requested.workers.iter().any(|requested| requested.address == host.address);
    let mut names = Vec::new();
    for host in state.spec.workers.iter().filter(|host| !stays(host)) {
        names.push(host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string));
        state.leaving.insert(host.address, host.name.clone());
    }
    Ok(names)
}

/// The refusal of a different cluster with the same name. It lists the differences.
fn conflict(state: &StoredCluster, requested: &DesiredCluster) -> EngineError {
    let mut error =
        EngineError::refused(format!("Input cluster[{}] exist and is not what is asked for", state.name));
    for (field, stored, requested) in differences(&state.spec, requested) {
        let requested = if field == "masters" {
            format!("{requested}: changing masters is not supported yet")
        } else {
            requested
        };
        error = error.row(field, format!("is {stored}, requested {requested}"));
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
