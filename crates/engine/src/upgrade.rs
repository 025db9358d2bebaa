//! The way to another version: one minor version at a time, and what would stand against it.

use kubeon_api::Version;
use kubeon_plan::{Refusal, RefusedField};
use kubeon_store::Status;
use serde_json::Value;

use crate::cluster_target::{ClusterTarget, TargetOptions};
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::ready_master::ReadyMaster;
use crate::remedy::EngineRemedy;

/// What a cluster uses that an upgrade takes away or waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpgradeObstacles {
    /// APIs that clients requested lately and that the new version does not serve, such as `policy/v1beta1 podsecuritypolicies`.
    pub removed_apis: Vec<String>,
    /// Disruption budgets that allow no eviction now, as `NAMESPACE/NAME`.
    pub blocking_budgets: Vec<String>,
}

/// The versions on the way from the cluster's version to the wanted one: the newest known patch of each minor version
/// between, then the wanted one.
///
/// # Errors
/// Refuses an unknown version, a downgrade, and a way with an unknown minor version.
pub fn hops(state: &StoredCluster, wanted: Version, known: &[Version]) -> Result<Vec<Version>, EngineError> {
    let refuse = |reason: String| {
        let refusal = Refusal::new(RefusedField::Version, wanted, reason);
        Err(EngineError::refusals(state.name.as_str(), vec![refusal], &[]))
    };
    let Some(now) = state.version else {
        let error = EngineError::refused(format!("{} cannot be upgraded yet", state.name));
        let error = error.row("cause", "its creation is not complete");
        return Err(error.remedy(EngineRemedy::CompleteOrDestroy(state.name.clone())));
    };
    let open = state.spec.version;
    if state.status == Status::Upgrading && open != wanted {
        let error = EngineError::refused(format!("the upgrade of {} to {open} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteChange(state.name.clone())));
    }
    if wanted < now {
        return refuse(format!(
            "is older than {now}, the version of {}: a downgrade is not possible",
            state.name
        ));
    }
    if !known.contains(&wanted) {
        let known: Vec<String> = known.iter().map(ToString::to_string).collect();
        let known = known.join(", ");
        return refuse(format!(
            "is not in the catalogue; use one of {known} ([check] Input version[{wanted}] not support)"
        ));
    }
    if wanted.major != now.major {
        return refuse(format!("has another major version than {now}"));
    }
    let mut hops = Vec::new();
    for minor in now.minor + 1..wanted.minor {
        let of_minor = known.iter().filter(|version| version.major == now.major && version.minor == minor);
        match of_minor.max() {
            Some(newest) => hops.push(*newest),
            None => {
                return refuse(format!(
                    "needs v{}.{minor} on the way, which is not in the catalogue",
                    now.major
                ));
            }
        }
    }
    hops.push(wanted);
    Ok(hops)
}

/// The target of a cluster with another version.
///
/// # Errors
/// As for [`ClusterTarget::stored`]; refuses when another change is not complete.
pub fn target(
    engine: &Engine<'_>,
    mut state: StoredCluster,
    version: Version,
    options: TargetOptions,
) -> Result<ClusterTarget, EngineError> {
    let settled = state.leaving.is_empty() && state.joining.is_empty() && !state.changes_masters();
    if !settled || !matches!(state.status, Status::Running | Status::Upgrading) {
        let error = EngineError::refused(format!("a change of {} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteChange(state.name)));
    }
    state.spec.version = version;
    ClusterTarget::stored(engine, state, options)
}

/// What stands against an upgrade to the version.
///
/// # Errors
/// When the API server does not answer.
pub async fn obstacles(master: &ReadyMaster, wanted: Version) -> Result<UpgradeObstacles, EngineError> {
    let requested = master.deprecated_requests().await?;
    let mut removed_apis: Vec<String> =
        requested.lines().filter_map(|line| removed_api(line, wanted)).collect();
    removed_apis.sort_unstable();
    removed_apis.dedup();
    let blocking_budgets = blocking_budgets(&master.disruption_budgets().await?);
    Ok(UpgradeObstacles { removed_apis, blocking_budgets })
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
    fn each_minor_version_is_a_hop() {
        let way = |now, wanted| {
            let hops = hops(&at(now), version(wanted), &known()).unwrap();
            hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(way("v1.34.9", "v1.37.2"), "v1.35.7 v1.36.3 v1.37.2");
        assert_eq!(way("v1.35.6", "v1.35.7"), "v1.35.7");
        assert_eq!(way("v1.36.3", "v1.37.2"), "v1.37.2");
    }

    #[test]
    fn a_way_that_cannot_be_gone_is_refused() {
        let reason = |now: &str, wanted: &str, known: &[Version]| {
            let error = hops(&at(now), version(wanted), known).unwrap_err();
            error.refused.unwrap().others[0].reason.clone()
        };
        assert!(reason("v1.36.3", "v1.35.7", &known()).contains("a downgrade is not possible"));
        assert!(reason("v1.36.3", "v1.38.0", &known()).contains("not in the catalogue"));
        let gap = [version("v1.34.9"), version("v1.36.3")];
        assert!(reason("v1.34.9", "v1.36.3", &gap).contains("needs v1.35 on the way"));
        let mut open = at("v1.36.3");
        (open.status, open.spec.version) = (Status::Upgrading, version("v1.37.2"));
        assert!(hops(&open, version("v1.36.3"), &known()).is_err(), "another upgrade is open");
        assert_eq!(hops(&open, version("v1.37.2"), &known()).unwrap(), [version("v1.37.2")]);
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
