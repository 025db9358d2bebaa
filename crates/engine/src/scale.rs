//! Adds and removes workers: from the stored cluster to the target of the change.

use kubeon_plan::{DesiredCluster, HostSpec, Refusal, RefusedField};

use crate::cluster_request::HostRequest;
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster, members};
use crate::error::EngineError;
use crate::login_merge::refuse_unused_flags;
use crate::login_request::HostLoginRequest;
use crate::remedy::EngineRemedy;
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::selector::{Member, Selector};

/// Hosts to add to a cluster.
#[derive(Debug, Clone, Default)]
pub struct AddedHosts {
    /// Masters; they are refused.
    pub masters: Vec<HostRequest>,
    /// Workers.
    pub workers: Vec<HostRequest>,
    /// Refusals found while the hosts were read.
    pub refusals: Vec<Refusal>,
}

/// The target of a cluster with further workers.
///
/// # Errors
/// Refuses masters, hosts that belong to the cluster already, and login flags that no host uses. All reasons
/// are reported at once.
pub fn with_workers(
    engine: &Engine<'_>,
    state: StoredCluster,
    added: AddedHosts,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let spec = spec_with(&state, &added)?;
    let mut target = ClusterTarget::changed(engine, state, spec, options)?;
    for HostRequest { address, login, .. } in added.workers {
        target.logins.insert(address, HostLoginRequest { flags: login, ..HostLoginRequest::default() });
    }
    target.limit_to_changed_workers();
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

fn spec_with(state: &StoredCluster, added: &AddedHosts) -> Result<DesiredCluster, EngineError> {
    let mut refusals = added.refusals.clone();
    refusals.extend(added.masters.iter().map(|master| {
        let reason = "adding masters is not supported yet: -w adds workers";
        Refusal::new(RefusedField::Master, master.address, reason)
    }));
    let mut spec = state.spec.clone();
    for worker in added.workers.iter().cloned() {
        let address = worker.address;
        if spec.hosts().any(|host| host.address == address) {
            let reason = format!("is a node of {} already (Cluster ip is duplicate)", state.name);
            refusals.push(Refusal::new(RefusedField::Worker, address, reason));
        } else {
            spec.workers.push(HostSpec::from(worker));
        }
    }
    if refusals.is_empty() {
        return Ok(spec);
    }
    Err(EngineError::refusals(state.name.as_str(), refusals, &[]))
}

/// The target of a cluster without the workers of a selector.
///
/// # Errors
/// Refuses a selector that matches no node or a master, and login flags that no host uses.
pub fn without_workers(
    engine: &Engine<'_>,
    state: StoredCluster,
    selector: &str,
    inventory: &InventoryFiles,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let flags = options.logins.clone();
    let spec = spec_without(&state, selector)?;
    let mut target = ClusterTarget::changed(engine, state, spec, options)?;
    target.limit_to_changed_workers();
    target.logins = merge_inventory_logins(inventory, &flags, &target.state, target.logins)?;
    refuse_unused_flags(&flags, &target.spec.masters, &target.logins)?;
    Ok(target)
}

fn spec_without(state: &StoredCluster, selector: &str) -> Result<DesiredCluster, EngineError> {
    let members = members(&state.spec);
    let selector = Selector::parse(&format!("{}@{}", state.name, selector.trim_start_matches('@')))?;
    let chosen = selector.choose(&members).map_err(|error| with_leaving_workers(error, state))?;
    let masters: Vec<&Member> = chosen.iter().filter(|member| member.master).collect();
    if masters.len() == state.spec.masters.len() {
        return Err(EngineError::refused(format!("Selector[{selector}] no master exists after delete")));
    }
    if let Some(master) = masters.first() {
        let error = EngineError::refused(format!(
            "removing masters is not supported yet: {} is a master",
            master.name
        ));
        return Err(error.remedy(EngineRemedy::RemoveWorkersOnly(state.name.clone())));
    }
    let mut spec = state.spec.clone();
    spec.workers.retain(|host| !chosen.iter().any(|member| member.address == host.address.ip()));
    Ok(spec)
}

/// Adds the leaving workers to an error, because they are not selectable any more.
fn with_leaving_workers(error: EngineError, state: &StoredCluster) -> EngineError {
    let names: Vec<String> = state
        .leaving
        .iter()
        .map(|(address, name)| name.as_ref().map_or_else(|| address.to_string(), ToString::to_string))
        .collect();
    if names.is_empty() {
        return error;
    }
    error.row("leaving", names.join(" ")).remedy(EngineRemedy::CompleteChange(state.name.clone()))
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;
    use crate::login_request::LoginRequest;

    fn state() -> StoredCluster {
        let spec = cluster(&["10.0.0.1", "10.0.0.2"], &["10.0.0.3", "10.0.0.4"]);
        StoredCluster::new(spec.name.clone(), spec)
    }

    fn host(address: &str) -> HostRequest {
        HostRequest {
            address: address.parse().unwrap(),
            internal_address: None,
            name: None,
            labels: std::collections::BTreeMap::new(),
            login: LoginRequest::default(),
        }
    }

    fn workers(spec: &DesiredCluster) -> Vec<String> {
        spec.workers.iter().map(|host| host.address.to_string()).collect()
    }

    #[test]
    fn workers_are_added_at_the_end() {
        let added = AddedHosts { workers: vec![host("10.0.0.6"), host("10.0.0.5")], ..AddedHosts::default() };
        let spec = spec_with(&state(), &added).unwrap();
        assert_eq!(workers(&spec), ["10.0.0.3", "10.0.0.4", "10.0.0.6", "10.0.0.5"]);
    }

    #[test]
    fn all_reasons_against_added_hosts_are_reported_at_once() {
        let added = AddedHosts {
            masters: vec![host("10.0.0.9")],
            workers: vec![host("10.0.0.1"), host("10.0.0.5"), host("10.0.0.5")],
            refusals: vec![Refusal::argument("-w x", "is not an address")],
        };
        let error = spec_with(&state(), &added).unwrap_err();
        let fields: Vec<_> = error.refused.unwrap().others.into_iter().map(|refusal| refusal.field).collect();
        use RefusedField::{Argument, Master, Worker};
        assert_eq!(fields, [Argument, Master, Worker, Worker]);
    }

    #[test]
    fn only_workers_are_removed() {
        let state = state();
        assert_eq!(workers(&spec_without(&state, "10.0.0.3").unwrap()), ["10.0.0.4"]);
        assert!(workers(&spec_without(&state, "@w*").unwrap()).is_empty());
        let title = |selector| spec_without(&state, selector).unwrap_err().title;
        assert!(title("@cp*").ends_with("no master exists after delete"), "{}", title("@cp*"));
        assert!(title("cp1").starts_with("removing masters is not supported yet"), "{}", title("cp1"));
    }

    #[test]
    fn a_leaving_worker_is_named_when_no_node_matches() {
        let mut state = state();
        let leaving = state.spec.workers.pop().unwrap();
        state.leaving.insert(leaving.address, leaving.name);
        let error = spec_without(&state, "10.0.0.4").unwrap_err();
        assert!(error.rows.iter().any(|(subject, _)| subject == "leaving"), "{error}");
    }
}
