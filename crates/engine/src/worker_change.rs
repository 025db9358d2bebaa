//! What may change about a cluster that is on its hosts: which workers it has.

use kubeon_plan::{DesiredCluster, Refusal};

use crate::engine::StoredCluster;
use crate::error::EngineError;

/// What is done about workers that are leaving and requested again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Back {
    /// That is finished first, then they are added.
    Refused,
    /// They stay: what was begun is undone. Until that is done they are written down as leaving.
    Taken,
}

impl Back {
    /// As a flag says.
    pub fn of(taken: bool) -> Self {
        if taken { Self::Taken } else { Self::Refused }
    }
}

/// Marks workers that are no longer requested as leaving, and returns their names.
///
/// # Errors
/// Refuses every other change, by name.
pub fn apply(
    state: &mut StoredCluster,
    requested: &DesiredCluster,
    back: Back,
) -> Result<Vec<String>, EngineError> {
    let same_but_workers = DesiredCluster { workers: state.spec.workers.clone(), ..requested.clone() };
    if same_but_workers != state.spec {
        return Err(exists(state, requested));
    }
    let refusals: Vec<Refusal> = requested
        .workers
        .iter()
        .filter_map(|host| {
            let subject = format!("-w {}", host.address);
            let stored = state.spec.workers.iter().find(|stored| stored.address == host.address);
            let leaving = state.leaving.get(&host.address);
            // One that is in both was taken back before.
            if leaving.is_some() && stored.is_none() && back == Back::Refused {
                let reason = format!(
                    "is on its way out of {0}: finish that with kubeon create {0}, then add it; or keep it, with create --take-back",
                    state.name
                );
                return Some(Refusal::argument(subject, reason));
            }
            let name = stored.map_or_else(|| leaving.cloned().flatten(), |stored| stored.name.clone());
            let named = name.filter(|name| host.name.as_ref() != Some(name))?;
            Some(Refusal::argument(
                subject,
                format!("is named {named} in {}: a node keeps its name", state.name),
            ))
        })
        .collect();
    if !refusals.is_empty() {
        return Err(EngineError::refusals(state.name.as_str(), refusals, &[]));
    }
    let stays = |host: &&kubeon_plan::HostSpec| {
        requested.workers.iter().any(|requested| requested.address == host.address)
    };
    let mut names = Vec::new();
    for host in state.spec.workers.iter().filter(|host| !stays(host)) {
        names.push(host.name.as_ref().map_or_else(|| host.address.to_string(), ToString::to_string));
        state.leaving.insert(host.address, host.name.clone());
    }
    Ok(names)
}

/// Refuses to make another cluster of the same name, and says what differs.
fn exists(state: &StoredCluster, requested: &DesiredCluster) -> EngineError {
    let mut stop =
        EngineError::refused(format!("Input cluster[{}] exist and is not what is asked for", state.name));
    for (field, has, wants) in differences(&state.spec, requested) {
        let wants =
            if field == "masters" { format!("{wants}: changing masters is not there yet") } else { wants };
        stop = stop.row(field, format!("is {has}, asked for {wants}"));
    }
    stop.row("way out", format!("kubeon create {0} (as it is), or kubeon destroy {0} first", state.name))
}

fn differences(has: &DesiredCluster, wants: &DesiredCluster) -> Vec<(String, String, String)> {
    let (Ok(serde_json::Value::Object(has)), Ok(serde_json::Value::Object(wants))) =
        (serde_json::to_value(has), serde_json::to_value(wants))
    else {
        return Vec::new();
    };
    let text = |value: Option<&serde_json::Value>| value.map_or_else(String::new, short);
    let differing = has.iter().filter(|(field, value)| wants.get(*field) != Some(*value));
    differing.map(|(field, value)| (field.clone(), short(value), text(wants.get(field)))).collect()
}

/// A value in few words: hosts by address.
fn short(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Array(items) if items.is_empty() => "none".to_owned(),
        serde_json::Value::Array(items) => items
            .iter()
            .map(|item| item.get("address").map_or_else(|| short(item), short))
            .collect::<Vec<_>>()
            .join(" "),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
