//! The hosts to skip when they do not answer. `$WITHOUT` lists their addresses or names; the program accepts
//! only addresses of known hosts. The annotation may still list a removed host, so the runner logs an unknown
//! name and ignores it.

use kubeon_api::{HostAddress, labels};
use serde_json::Value;

use crate::args::RunnerSettings;
use crate::commands::KubeonProgram;
use crate::inputs::{self, InputError, Task};
use crate::outcome::WorkOutcome;

/// The hosts that `$WITHOUT` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SkippedHosts {
    /// Hosts that the program knows.
    pub known: Vec<HostAddress>,
    /// Names that do not belong to a known host.
    pub unknown: Vec<String>,
}

/// A host's address and name.
type AddressAndName = (HostAddress, Option<String>);

/// Reads `$WITHOUT`. The state must be restored before.
///
/// # Errors
/// When an entry is neither an address nor a name.
pub(crate) fn find(
    settings: &RunnerSettings,
    engine: &KubeonProgram,
    cluster: &str,
    task: Task,
) -> Result<SkippedHosts, InputError> {
    let Some(text) = &settings.environment.skip_hosts else { return Ok(SkippedHosts::default()) };
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if let Some(name) = names.iter().find(|name| !plain(name) || name.starts_with('-')) {
        return Err(InputError::Host((*name).to_owned()));
    }
    let terminating = task == Task::Change(kubeon_api::Operation::Terminating);
    let declared = if terminating { Value::Null } else { inputs::declared(settings) };
    Ok(resolve(&names, &hosts(&engine.state(cluster), &declared)))
}

fn resolve(names: &[&str], hosts: &[AddressAndName]) -> SkippedHosts {
    let mut named = SkippedHosts::default();
    for name in names {
        let matches = |(address, host_name): &&AddressAndName| {
            name.parse().is_ok_and(|given: HostAddress| given == *address)
                || host_name.as_deref() == Some(*name)
        };
        match hosts.iter().find(matches) {
            Some((address, _)) if named.known.contains(address) => {}
            Some((address, _)) => named.known.push(*address),
            None => named.unknown.push((*name).to_owned()),
        }
    }
    named
}

/// The hosts that the program knows, from its state and from the declaration.
fn hosts(state: &Value, declared: &Value) -> Vec<AddressAndName> {
    let listed = |value: &Value, list: &str, key: &str| -> Vec<AddressAndName> {
        let entries = value.pointer(list).and_then(Value::as_array).into_iter().flatten();
        let host = |entry: &Value| {
            Some((entry.get(key)?.as_str()?.parse().ok()?, entry["name"].as_str().map(str::to_owned)))
        };
        entries.filter_map(host).collect()
    };
    let leaving = state["leaving"].as_object().into_iter().flatten();
    let leaving =
        leaving.filter_map(|(address, name)| Some((address.parse().ok()?, name.as_str().map(str::to_owned))));
    let mut hosts: Vec<AddressAndName> = leaving.collect();
    // With generation 0 no host was changed, and the program uses the declaration instead.
    if declared.is_null() || state["generation"].as_u64() > Some(0) {
        hosts.extend(
            ["/spec/masters", "/spec/workers", "/spec/etcdHosts"]
                .iter()
                .flat_map(|list| listed(state, list, "address")),
        );
    }
    let lists = ["masterList", "nodeList", "etcdList"].map(|list| format!("/spec/cluster/{list}"));
    hosts.extend(lists.iter().flat_map(|list| listed(declared, list, "ip")));
    hosts
}

impl SkippedHosts {
    /// Adds the names of unknown hosts to the reason of a failed outcome.
    #[must_use]
    pub(crate) fn explain(&self, outcome: WorkOutcome) -> WorkOutcome {
        let Some(reason) = outcome.reason.as_ref().filter(|_| !self.unknown.is_empty()) else {
            return outcome;
        };
        let reason = format!("{}\n{}", reason.trim_end(), self.warning());
        WorkOutcome { reason: Some(reason), ..outcome }
    }

    /// The message about names of unknown hosts.
    #[must_use]
    pub(crate) fn warning(&self) -> String {
        let (annotation, names) = (labels::WITHOUT, self.unknown.join(", "));
        format!("{annotation} names hosts that are not in the cluster: {names}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn state(generation: u64) -> Value {
        let host = |address: &str, name: &str| json!({"address": address, "name": name});
        json!({
            "generation": generation,
            "spec": {
                "masters": [host("10.0.0.1", "h1")], "workers": [host("10.0.0.2", "h2")],
                "etcdHosts": [host("10.0.0.6", "h6")],
            },
            "leaving": {"10.0.0.3": "h3", "10.0.0.4": null},
        })
    }

    fn addresses(named: &SkippedHosts) -> Vec<String> {
        named.known.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hosts_are_known_by_address_and_by_the_name_of_their_node() {
        let declared = json!({"spec": {"cluster": {"nodeList": [{"ip": "10.0.0.5", "name": "edge"}]}}});
        let hosts = hosts(&state(3), &declared);
        let named = resolve(&["h3", "10.0.0.4", "edge", "10.0.0.3", "h2", "h9", "h6"], &hosts);
        assert_eq!(addresses(&named), ["10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.2", "10.0.0.6"]);
        assert_eq!(named.unknown, ["h9"]);
    }

    /// The program refuses to skip a host that it does not know.
    #[test]
    fn before_the_first_change_only_the_declaration_lists_hosts() {
        let declared = json!({"spec": {"cluster": {"nodeList": [{"ip": "10.0.0.5"}]}}});
        assert_eq!(resolve(&["10.0.0.2"], &hosts(&state(0), &declared)).unknown, ["10.0.0.2"]);
        assert_eq!(addresses(&resolve(&["10.0.0.2"], &hosts(&state(0), &Value::Null))), ["10.0.0.2"]);
    }

    #[test]
    fn unknown_names_are_reported_when_the_work_failed() {
        let named = SkippedHosts { known: Vec::new(), unknown: vec!["h9".to_owned()] };
        let reason = named.explain(WorkOutcome::failed(2, "10.0.0.2 does not answer")).reason.unwrap();
        assert_eq!(
            reason,
            "10.0.0.2 does not answer\nkubeon.io/without names hosts that are not in the cluster: h9"
        );
        assert_eq!(named.explain(WorkOutcome::succeeded()), WorkOutcome::succeeded());
    }
}
