//! The version of the nodes. Their programs may be older than the control plane: they go back alone, and come forward again.

use kubeon_api::Version;
use kubeon_plan::{Refusal, RefusedField, belongs_to_node};
use kubeon_store::Status;

use crate::bundles;
use crate::engine::{Engine, StoredCluster};
use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// How many minor versions a kubelet may be older than its API server.
pub(crate) const KUBELET_SKEW: u32 = 3;

/// The version that the cluster had before its own; `None` if it is not known.
#[must_use]
pub fn version_before(state: &StoredCluster) -> Option<Version> {
    let now = state.spec.version;
    let of_snapshots = || {
        let earlier = state.snapshots.values().filter(|saved| saved.version < now);
        earlier.max_by_key(|saved| saved.taken_at).map(|saved| saved.version)
    };
    state.version_before.filter(|before| *before < now).or_else(of_snapshots)
}

/// The cluster whose nodes go back to the version. Its control plane and etcd stay. A way over several versions ends here.
///
/// # Errors
/// Refuses while another change is not complete, a version that is not older or more than three minor versions older than the
/// control plane, one that is not in the catalogue, and one without its bundle.
pub fn back(
    engine: &Engine<'_>,
    mut state: StoredCluster,
    version: Version,
) -> Result<StoredCluster, EngineError> {
    require_settled(&state)?;
    require_within_skew(&state, version, &engine.supported()?)?;
    bundles::find(&engine.environment, version)?;
    begin(&mut state, Some(version));
    Ok(state)
}

/// The cluster whose nodes come to the version of its control plane.
///
/// # Errors
/// Refuses while another change is not complete.
pub fn forward(mut state: StoredCluster) -> Result<StoredCluster, EngineError> {
    require_settled(&state)?;
    begin(&mut state, None);
    Ok(state)
}

fn begin(state: &mut StoredCluster, version: Option<Version>) {
    // The recorded programs of nodes are those of the version that they had. A change that goes on keeps them: another build is
    // still refused.
    if state.nodes_at != version {
        state.bundle.retain(|name, _| !belongs_to_node(name));
    }
    state.set_nodes_at(version);
    (state.status, state.upgrading_to) = (Status::ChangingNodes, None);
}

fn require_settled(state: &StoredCluster) -> Result<(), EngineError> {
    let name = &state.name;
    let refused = |reason: &str, remedy: EngineRemedy| {
        let error = EngineError::refused(format!("the nodes of {name} cannot change their version yet"));
        Err(error.row("cause", reason).remedy(remedy))
    };
    let goes_back = state.trial.is_none() && state.version == Some(state.spec.version);
    match state.status {
        Status::Running | Status::ChangingNodes => {}
        Status::Creating => {
            return refused("its creation is not complete", EngineRemedy::CompleteOrDestroy(name.clone()));
        }
        Status::Destroying => {
            return refused("it is being destroyed", EngineRemedy::CompleteDestroy(name.clone()));
        }
        Status::Upgrading if goes_back => {
            return refused("an upgrade is being aborted", EngineRemedy::CompleteChange(name.clone()));
        }
        Status::Upgrading => {
            return refused("an upgrade is not complete", EngineRemedy::CompleteOrAbort(name.clone()));
        }
    }
    let changes_hosts = !state.leaving.is_empty() || !state.joining.is_empty() || state.changes_members();
    if changes_hosts || !state.taken_over.is_empty() {
        return refused("a change of hosts is not complete", EngineRemedy::CompleteChange(name.clone()));
    }
    Ok(())
}

fn require_within_skew(
    state: &StoredCluster,
    version: Version,
    known: &[Version],
) -> Result<(), EngineError> {
    let now = state.spec.version;
    let refused = |reason: String| {
        let refusal = Refusal::new(RefusedField::Version, version, reason);
        EngineError::refusals(state.name.as_str(), vec![refusal], &[])
    };
    if version >= now {
        let reason = if version == now {
            "is the version of the control plane".to_owned()
        } else {
            format!("is newer than the control plane, which has {now}")
        };
        return Err(refused(reason).remedy(EngineRemedy::Upgrade { cluster: state.name.clone(), version }));
    }
    let reason = if !is_within_skew(version, now) {
        format!(
            "is too old for the control plane {now}: a kubelet may be at most {KUBELET_SKEW} minor versions older"
        )
    } else if known.contains(&version) {
        return Ok(());
    } else {
        "is not in the catalogue".to_owned()
    };
    let possible = known.iter().filter(|known| **known < now && is_within_skew(**known, now));
    let possible: Vec<String> = possible.map(ToString::to_string).collect();
    Err(refused(reason).row("possible", possible.join(", ")))
}

/// Whether a kubelet of the version works with API servers of the other one.
fn is_within_skew(kubelet: Version, served: Version) -> bool {
    kubelet.major == served.major && kubelet.minor + KUBELET_SKEW >= served.minor
}

/// Refuses an upgrade while the nodes change, and one to a version for which the nodes are too old: the control plane changes first.
///
/// # Errors
/// With the command that comes before.
pub(crate) fn require_upgradable(state: &StoredCluster, version: Version) -> Result<(), EngineError> {
    let name = &state.name;
    if state.status == Status::ChangingNodes {
        let error = EngineError::refused(format!("a change of the nodes of {name} is not complete"));
        return Err(error.remedy(EngineRemedy::CompleteChange(name.clone())));
    }
    match state.nodes_at.filter(|nodes| !is_within_skew(*nodes, version)) {
        None => Ok(()),
        Some(nodes) => {
            let title = format!("{name} cannot change to {version} while its nodes have {nodes}");
            let cause =
                format!("a kubelet may be at most {KUBELET_SKEW} minor versions older than an API server");
            let remedy = EngineRemedy::Upgrade { cluster: name.clone(), version: state.spec.version };
            Err(EngineError::refused(title).row("cause", cause).remedy(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::{artifacts, cluster};
    use kubeon_store::SavedSnapshot;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn running(now: &str) -> StoredCluster {
        let mut spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        spec.version = version(now);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        (state.version, state.status) = (Some(version(now)), Status::Running);
        state
    }

    #[test]
    fn the_version_before_is_recorded_or_that_of_the_newest_earlier_snapshot() {
        let mut state = running("v1.37.2");
        assert_eq!(version_before(&state), None);
        for (at, of) in [(1, "v1.35.7"), (3, "v1.37.2"), (2, "v1.36.3")] {
            let taken_at = jiff::Timestamp::from_second(at).unwrap();
            state.remember_snapshot(at.to_string(), SavedSnapshot { taken_at, version: version(of) });
        }
        assert_eq!(version_before(&state), Some(version("v1.36.3")));
        state.version_before = Some(version("v1.36.4"));
        assert_eq!(version_before(&state), Some(version("v1.36.4")));
    }

    #[test]
    fn nodes_go_back_within_three_minor_versions() {
        let known = ["v1.33.1", "v1.34.9", "v1.36.3", "v1.37.1", "v1.37.2"].map(version);
        let refused = |text: &str| {
            let checked = require_within_skew(&running("v1.37.2"), version(text), &known);
            checked.err().map(|error| error.to_string())
        };
        for possible in ["v1.34.9", "v1.36.3", "v1.37.1"] {
            assert_eq!(refused(possible), None);
        }
        for (text, reason) in [
            ("v1.33.1", "at most 3 minor versions older"),
            ("v1.37.2", "is the version of the control plane"),
            ("v1.38.0", "is newer than the control plane"),
            ("v1.36.9", "is not in the catalogue"),
        ] {
            let error = refused(text).unwrap();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn nodes_wait_for_another_change() {
        let remedy = |state: &StoredCluster| require_settled(state).err().and_then(|error| error.remedy);
        let mut state = running("v1.37.2");
        assert_eq!(remedy(&state), None);
        let name = state.name.clone();
        state.status = Status::Upgrading;
        assert_eq!(remedy(&state).as_deref(), Some(&EngineRemedy::CompleteChange(name.clone())), "aborted");
        state.trial = Some(version("v1.38.1"));
        assert_eq!(remedy(&state).as_deref(), Some(&EngineRemedy::CompleteOrAbort(name.clone())));
        (state.trial, state.spec.version) = (None, version("v1.38.1"));
        assert_eq!(remedy(&state).as_deref(), Some(&EngineRemedy::CompleteOrAbort(name.clone())));
        let mut state = running("v1.37.2");
        state.joining.insert("10.0.0.3".parse().unwrap());
        assert_eq!(remedy(&state).as_deref(), Some(&EngineRemedy::CompleteChange(name)));
    }

    #[test]
    fn a_change_forgets_the_recorded_programs_of_nodes_only() {
        let mut state = running("v1.37.2");
        let parts = artifacts("v1.37.2").parts;
        state.bundle = parts.into_iter().map(|(name, part)| (name, part.digest)).collect();
        state.upgrading_to = Some(version("v1.38.1"));
        begin(&mut state, Some(version("v1.36.3")));
        assert!(state.bundle.contains_key("etcd") && !state.bundle.contains_key("kubelet"));
        assert_eq!((state.status, state.upgrading_to), (Status::ChangingNodes, None));
        let of_nodes = artifacts("v1.36.3").parts["kubelet"].digest.clone();
        state.bundle.insert("kubelet".to_owned(), of_nodes);
        begin(&mut state, Some(version("v1.36.3")));
        assert!(state.bundle.contains_key("kubelet"), "the same change goes on");
        let forward = forward(state).unwrap();
        assert!(!forward.bundle.contains_key("kubelet"));
        assert_eq!((forward.status, forward.nodes_at), (Status::ChangingNodes, None));
    }

    #[test]
    fn an_upgrade_does_not_leave_nodes_too_far_behind() {
        let mut state = running("v1.37.2");
        state.set_nodes_at(Some(version("v1.34.9")));
        require_upgradable(&state, version("v1.37.3")).unwrap();
        let error = require_upgradable(&state, version("v1.38.1")).unwrap_err();
        let remedy = EngineRemedy::Upgrade { cluster: state.name.clone(), version: state.spec.version };
        assert_eq!(error.remedy.as_deref(), Some(&remedy), "{error}");
        state.set_nodes_at(Some(version("v1.35.7")));
        require_upgradable(&state, version("v1.38.1")).unwrap();
        state.status = Status::ChangingNodes;
        assert!(require_upgradable(&state, version("v1.37.3")).is_err());
    }
}
