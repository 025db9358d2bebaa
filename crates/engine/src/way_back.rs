//! The way back from an upgrade that is not complete.

use kubeon_api::Version;
use kubeon_store::Status;

use crate::engine::StoredCluster;
use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// The way back from an upgrade that is not complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WayBack {
    /// The version that the cluster keeps.
    pub keeps: Version,
    /// The version that is given up.
    pub given_up: Version,
    /// The state of the cluster that goes back.
    pub state: StoredCluster,
}

/// The way back of a cluster. The links of the programs point to the old ones again; no data is lost.
///
/// # Errors
/// Refuses when no upgrade is open, and after the cluster began to change to another minor version: etcd and the stored objects
/// do not go back.
pub fn way_back(mut state: StoredCluster) -> Result<WayBack, EngineError> {
    let name = state.name.clone();
    let (Some(keeps), Status::Upgrading) = (state.version, state.status) else {
        let error = EngineError::refused(format!("{name} has no upgrade to abort"));
        return Err(match state.status {
            Status::ChangingNodes => error
                .row("cause", "its nodes change to another version")
                .remedy(EngineRemedy::CompleteChange(name)),
            _ => error,
        });
    };
    let given_up = state.trial.unwrap_or(state.spec.version);
    if given_up == keeps {
        let error = EngineError::refused(format!("the upgrade of {name} is aborted already"));
        return Err(error.remedy(EngineRemedy::CompleteChange(name)));
    }
    if state.trial.is_none() && (given_up.major, given_up.minor) != (keeps.major, keeps.minor) {
        let error = EngineError::refused(format!("{name} cannot go back to {keeps} any more"));
        let reason = format!(
            "every master that answered ran the control plane of {given_up}, and the cluster began to change to it"
        );
        let remedy = EngineRemedy::CompleteOrRestore { cluster: name, version: keeps };
        return Err(error.row("cause", reason).remedy(remedy));
    }
    (state.trial, state.upgrading_to, state.spec.version) = (None, None, keeps);
    // The programs that the upgrade recorded are not those of the version that the cluster keeps.
    state.bundle.clear();
    Ok(WayBack { keeps, given_up, state })
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

    #[test]
    fn an_upgrade_can_be_aborted_until_the_cluster_changes_to_another_minor_version() {
        let opened = |trial: Option<&str>, version_of_spec: &str| {
            let mut open = at("v1.36.3");
            (open.status, open.trial) = (Status::Upgrading, trial.map(version));
            open.spec.version = version(version_of_spec);
            open
        };
        let mut chained = opened(Some("v1.37.2"), "v1.36.3");
        chained.upgrading_to = Some(version("v1.38.1"));
        let back = way_back(chained).unwrap();
        assert_eq!(back.state.upgrading_to, None);
        assert_eq!((back.keeps, back.given_up), (version("v1.36.3"), version("v1.37.2")));
        assert_eq!((back.state.trial, back.state.spec.version), (None, version("v1.36.3")));
        assert_eq!(way_back(opened(None, "v1.36.4")).unwrap().state.spec.version, version("v1.36.3"));
        assert!(way_back(opened(None, "v1.37.2")).unwrap_err().to_string().contains("cannot go back"));
        assert!(way_back(opened(None, "v1.36.3")).unwrap_err().to_string().contains("aborted already"));
        assert!(way_back(at("v1.36.3")).unwrap_err().to_string().contains("no upgrade to abort"));
        let mut nodes = at("v1.36.3");
        nodes.status = Status::ChangingNodes;
        let error = format!("{:?}", way_back(nodes).unwrap_err());
        assert!(error.contains("CompleteChange"), "{error}");
    }
}
