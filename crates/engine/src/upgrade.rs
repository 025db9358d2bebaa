//! The way to another version: one minor version at a time, and what would stand against it.

use futures::future::try_join_all;
use kubeon_api::{NoWay, Version, upgrade_way};
use kubeon_plan::{Refusal, RefusedField};
use kubeon_store::Status;
use serde_json::Value;

use crate::bundles;
use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::node_version::require_upgradable;
use crate::ready_master::ReadyMaster;
use crate::remedy::EngineRemedy;
use crate::removed_apis::removed_between;
use crate::request_inventory::{InventoryFiles, merge_inventory_logins};
use crate::stored_versions;
use crate::upgrade_checks::{UpgradeFinding, nodes_not_ready, of_masters, stored};
use crate::version_wait::refuse_silent_masters;

/// What the target of an upgrade is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradePurpose {
    /// To make it.
    Make,
    /// To show its plan.
    Show,
}

/// What a cluster uses that an upgrade takes away or waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpgradeObstacles {
    /// APIs that clients requested lately and that the new version does not serve, such as `policy/v1beta1 podsecuritypolicies`.
    pub removed_apis: Vec<String>,
    /// Disruption budgets that allow no eviction now, as `NAMESPACE/NAME`.
    pub blocking_budgets: Vec<String>,
    /// Nodes that are not Ready, with the reason.
    pub nodes_not_ready: Vec<String>,
    /// Definitions of custom resources with objects that may be stored in a version that they do not serve, with what to do.
    pub stored_versions: Vec<String>,
    /// What else stands against the upgrade: masters, members, versions, certificates and stored objects.
    pub findings: Vec<UpgradeFinding>,
}

/// The versions on the way from the cluster's version to the wanted one. An upgrade that is not complete is the first of them.
///
/// # Errors
/// Refuses an unknown version, a downgrade, a way with an unknown minor version, and another way while an upgrade is not complete.
pub fn hops(state: &StoredCluster, wanted: Version, known: &[Version]) -> Result<Vec<Version>, EngineError> {
    let Some(now) = state.version else {
        let error = EngineError::refused(format!("{} cannot be upgraded yet", state.name));
        let error = error.row("cause", "its creation is not complete");
        return Err(error.remedy(EngineRemedy::CompleteOrDestroy(state.name.clone())));
    };
    let Some(open) = open_version(state) else {
        let way = way(state, now, wanted, known)?;
        way.first().map_or(Ok(()), |first| require_upgradable(state, *first))?;
        return Ok(way);
    };
    if open == now {
        let error = EngineError::refused(format!("the way of {} back to {now} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteChange(state.name.clone())));
    }
    if wanted < open {
        let error = EngineError::refused(format!("the upgrade of {} to {open} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteOrAbort(state.name.clone())));
    }
    let rest = if wanted == open { Vec::new() } else { way(state, open, wanted, known)? };
    Ok([vec![open], rest].concat())
}

/// The version of a change of version that is not complete.
fn open_version(state: &StoredCluster) -> Option<Version> {
    (state.status == Status::Upgrading).then(|| state.trial.unwrap_or(state.spec.version))
}

fn way(
    state: &StoredCluster,
    from: Version,
    wanted: Version,
    known: &[Version],
) -> Result<Vec<Version>, EngineError> {
    upgrade_way(from, wanted, known).map_err(|no_way| {
        let reason = match no_way {
            NoWay::Unknown(_) => format!("{no_way} ([check] Input version[{wanted}] not support)"),
            _ => no_way.to_string(),
        };
        let refusal = Refusal::new(RefusedField::Version, wanted, reason);
        EngineError::refusals(state.name.as_str(), vec![refusal], &[])
    })
}

/// Whether the control plane tries the version before the cluster changes to it: it can then go back. Programs of one minor
/// version can always go back.
fn is_another_minor(state: &StoredCluster, version: Version) -> bool {
    let now = state.spec.version;
    (now.major, now.minor) != (version.major, version.minor)
}

/// Whether the bundle of the version that runs is on this machine. Its programs and those of the next version are mixed while
/// that is tried.
fn has_own_bundle(engine: &Engine<'_>, state: &StoredCluster) -> bool {
    let found = bundles::find(&engine.environment, state.spec.version);
    if let Err(error) = &found {
        let cause = error.to_string();
        engine
            .output
            .warn(&format!("the new version is not tried first, so the upgrade cannot be aborted: {cause}"));
    }
    found.is_ok()
}

/// The target of a cluster with the first of these versions; the others follow. An inventory gives logins. The control plane tries a
/// minor version first, unless the target is only shown: then it contains every step of the upgrade itself. Nodes that have an older
/// version keep it meanwhile, and then come to the new one. The hosts need disk space for all of them.
///
/// # Errors
/// As for [`ClusterTarget::stored`]; refuses when another change is not complete, and when there is no version.
pub fn target(
    engine: &Engine<'_>,
    mut state: StoredCluster,
    hops: &[Version],
    purpose: UpgradePurpose,
    inventory: &InventoryFiles,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let Some((&version, later)) = hops.split_first() else {
        return Err(EngineError::refused(format!("no version is named for {}", state.name)));
    };
    let settled = state.leaving.is_empty() && state.joining.is_empty() && !state.changes_members();
    if !settled || !matches!(state.status, Status::Running | Status::Upgrading) {
        let error = EngineError::refused(format!("a change of {} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteChange(state.name)));
    }
    if open_version(&state).is_some_and(|open| open != version) {
        let error = EngineError::refused(format!("an upgrade of {} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteOrAbort(state.name)));
    }
    state.upgrading_to = later.last().copied();
    let make = purpose == UpgradePurpose::Make;
    if make && is_another_minor(&state, version) && has_own_bundle(engine, &state) {
        state.trial = Some(version);
    } else {
        (state.trial, state.nodes_at, state.spec.version) = (None, None, version);
    }
    let flags = options.logins.clone();
    let mut target = ClusterTarget::stored(engine, state, options)?;
    target.logins = merge_inventory_logins(inventory, &flags, &target.state, target.logins)?;
    target.later_versions = later.to_vec();
    Ok(target)
}

/// What stands against an upgrade to the version.
///
/// # Errors
/// Refuses when a master does not answer; fails when the API server does not.
pub async fn obstacles(
    state: &StoredCluster,
    master: &ReadyMaster,
    wanted: Version,
) -> Result<UpgradeObstacles, EngineError> {
    refuse_silent_masters(&state.name, wanted, &master.probed)?;
    let requested = master.deprecated_requests().await?;
    let mut removed_apis: Vec<String> =
        requested.lines().filter_map(|line| removed_api(line, wanted)).collect();
    removed_apis.sort_unstable();
    removed_apis.dedup();
    let blocking_budgets = blocking_budgets(&master.disruption_budgets().await?);
    let stored_versions = stored_versions::not_served(&master.custom_definitions().await?);
    let mut findings = of_masters(&master.probed, wanted);
    let now = master.facts.cluster.as_ref().and_then(|cluster| cluster.version);
    let apis = now.into_iter().flat_map(|now| removed_between(now, wanted));
    let objects = apis.map(|api| async move { master.objects_of(api).await.map(|list| (api, list)) });
    for (api, list) in try_join_all(objects).await? {
        findings.extend(stored(&list, api, wanted));
    }
    let nodes_not_ready = nodes_not_ready(&master.probed);
    Ok(UpgradeObstacles { removed_apis, blocking_budgets, nodes_not_ready, stored_versions, findings })
}

/// The API in a line of the metric of deprecated requests, if the version does not serve it any more.
fn removed_api(line: &str, wanted: Version) -> Option<String> {
    let label = |name: &str| {
        let (_, rest) = line.split_once(&format!("{name}=\""))?;
        Some(rest.split_once('"')?.0)
    };
    let (major, minor) = label("removed_release")?.split_once('.')?;
    let removed: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    if removed > (wanted.major, wanted.minor) {
        return None;
    }
    let (group, version, resource) = (label("group")?, label("version")?, label("resource")?);
    let group = if group.is_empty() { String::new() } else { format!("{group}/") };
    Some(format!("{group}{version} {resource}"))
}

fn blocking_budgets(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    let blocks = |item: &&Value| {
        item["status"]["disruptionsAllowed"] == 0
            && item["status"]["expectedPods"].as_u64().is_some_and(|pods| pods > 0)
    };
    let name = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    items.filter(blocks).map(name).collect()
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn at(now: &str) -> StoredCluster {
        let mut spec = cluster(&["10.0.0.1"], &[]);
        spec.version = version(now);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        (state.version, state.status) = (Some(version(now)), Status::Running);
        state
    }

    fn known() -> Vec<Version> {
        ["v1.34.9", "v1.35.6", "v1.35.7", "v1.36.3", "v1.37.2"].map(version).into()
    }

    #[test]
    fn an_open_upgrade_can_only_be_continued() {
        let reason = |wanted: &str| {
            let error = hops(&at("v1.36.3"), version(wanted), &known()).unwrap_err();
            error.refused.unwrap().others[0].reason.clone()
        };
        assert!(reason("v1.35.7").contains("a downgrade is not possible"));
        assert!(reason("v1.38.0").contains("[check] Input version[v1.38.0] not support"));
        let mut open = at("v1.36.3");
        (open.status, open.spec.version) = (Status::Upgrading, version("v1.37.2"));
        assert!(hops(&open, version("v1.36.3"), &known()).is_err(), "another upgrade is open");
        assert_eq!(hops(&open, version("v1.37.2"), &known()).unwrap(), [version("v1.37.2")]);
    }

    #[test]
    fn a_way_over_several_versions_is_continued_from_where_it_stopped() {
        let way = |state: &StoredCluster, wanted: &str| -> Result<Vec<String>, String> {
            let way = hops(state, version(wanted), &known()).map_err(|error| error.to_string())?;
            Ok(way.iter().map(ToString::to_string).collect())
        };
        assert_eq!(way(&at("v1.34.9"), "v1.37.2").unwrap(), ["v1.35.7", "v1.36.3", "v1.37.2"]);
        // Killed in the first hop: while it is tried, and after the cluster took it.
        let mut open = at("v1.34.9");
        (open.status, open.trial) = (Status::Upgrading, Some(version("v1.35.7")));
        assert_eq!(way(&open, "v1.37.2").unwrap(), ["v1.35.7", "v1.36.3", "v1.37.2"]);
        (open.trial, open.spec.version) = (None, version("v1.35.7"));
        assert_eq!(way(&open, "v1.37.2").unwrap(), ["v1.35.7", "v1.36.3", "v1.37.2"]);
        assert_eq!(way(&open, "v1.35.7").unwrap(), ["v1.35.7"]);
        assert!(way(&open, "v1.34.9").unwrap_err().contains("to v1.35.7 is not complete"));
        // A catalogue that has a newer patch meanwhile does not change the hop that began.
        (open.trial, open.spec.version) = (Some(version("v1.35.6")), version("v1.34.9"));
        assert_eq!(way(&open, "v1.36.3").unwrap(), ["v1.35.6", "v1.36.3"]);
        // Killed between two hops.
        assert_eq!(way(&at("v1.35.7"), "v1.37.2").unwrap(), ["v1.36.3", "v1.37.2"]);
        let mut aborted = at("v1.34.9");
        aborted.status = Status::Upgrading;
        assert!(way(&aborted, "v1.37.2").unwrap_err().contains("back to v1.34.9 is not complete"));
    }

    #[test]
    fn only_another_minor_version_is_tried() {
        assert!(is_another_minor(&at("v1.36.3"), version("v1.37.2")));
        assert!(!is_another_minor(&at("v1.36.3"), version("v1.36.4")));
    }

    #[test]
    fn requests_of_removed_apis_are_found() {
        let line = r#"apiserver_requested_deprecated_apis{group="flowcontrol.apiserver.k8s.io",removed_release="1.37",resource="flowschemas",subresource="",version="v1beta3"} 1"#;
        assert_eq!(
            removed_api(line, version("v1.37.2")).unwrap(),
            "flowcontrol.apiserver.k8s.io/v1beta3 flowschemas"
        );
        assert_eq!(removed_api(line, version("v1.36.3")), None);
        let never = r#"apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",version="v1"} 1"#;
        assert_eq!(removed_api(never, version("v1.37.2")), None);
    }

    #[test]
    fn budgets_without_allowed_disruptions_block() {
        let item = |name: &str, allowed: u32, pods: u32| {
            serde_json::json!({"metadata": {"name": name, "namespace": "shop"},
                               "status": {"disruptionsAllowed": allowed, "expectedPods": pods}})
        };
        let list = serde_json::json!({"items": [item("a", 0, 2), item("b", 1, 2), item("c", 0, 0)]});
        assert_eq!(blocking_budgets(&list), ["shop/a"]);
    }
}
