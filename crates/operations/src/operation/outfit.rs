//! What a Job of an image of ours gets beside contract A's, when it runs playbooks: the bundle of the version that is
//! wanted, and what an earlier Job of the cluster left.

use kubeon_api::kubeonkube::ClusterOperationSpec;
use kubeon_api::{Cluster, ClusterOperation, DataRef};
use kubeon_render::job::{Mount, Source};

use super::inputs::{Inputs, Obstacle, References, actions};
use super::name;
use crate::cluster::owner;
use crate::keep::{self, Kept};
use crate::names;
use crate::snapshot::Snapshot;
use crate::write::{Kind, Write};

/// Playbooks that need no bundle: they put nothing on hosts.
const WITHOUT_BUNDLE: [&str; 2] = ["ping.yml", "reset.yml"];

/// What is added to the Job.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outfit {
    /// Made or handed over before the Job.
    pub secrets: Vec<Write>,
    pub mounts: Vec<Mount>,
    /// For the runner.
    pub arguments: Vec<String>,
}

/// What the Job is to be given; nothing for an image that is not ours, or without a playbook.
pub(crate) fn outfit(
    s: &Snapshot<'_>,
    operation: &ClusterOperation,
    cluster: &Cluster,
    inputs: &Inputs,
    references: &References,
    job: &DataRef,
) -> Result<Outfit, Obstacle> {
    let playbooks = playbooks(&operation.spec);
    if playbooks.is_empty() || !s.settings.is_runner(&operation.spec.image) {
        return Ok(Outfit::default());
    }
    let version = version(inputs, references)?;
    let cluster_name = operation.spec.cluster.as_str();
    let label = keep::cluster(&job.namespace, cluster_name);
    let (state, kubeconfig) = (names::cluster_state(cluster_name), names::cluster_kubeconfig(cluster_name));
    let mut outfit = Outfit::default();
    for secret in [&state, &kubeconfig] {
        let kept = Kept { kind: Kind::Secret, name: secret, cluster: &label, owner: Some(owner(cluster)) };
        outfit.secrets.extend(keep::hand_over(s, kept, job, name(operation))?);
    }
    let source = Source::Secret { name: state.clone(), optional: true };
    outfit.mounts.push(Mount { volume: "state", source, path: "/state".to_owned(), key: None });
    let brings = playbooks.iter().any(|playbook| !WITHOUT_BUNDLE.contains(playbook));
    if let Some(image) = s.settings.bundle_image.as_deref().filter(|_| brings) {
        let version = version.unwrap_or_else(|| s.settings.default_version.clone());
        outfit.mounts.push(Mount::bundle(image, &version));
    }
    let flags =
        [("secret-namespace", &job.namespace), ("state-secret", &state), ("kubeconfig-secret", &kubeconfig)];
    outfit.arguments = flags.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
    Ok(outfit)
}

fn playbooks(spec: &ClusterOperationSpec) -> Vec<&str> {
    let playbooks = actions(spec).filter(|action| action.action_type == "playbook");
    playbooks.map(|action| action.action.trim()).collect()
}

/// The version that inventory and variables ask for. Both are looked at before a Job is made for them.
fn version(inputs: &Inputs, references: &References) -> Result<Option<String>, Obstacle> {
    let file = |key: &str| inputs.files.get(key).map(String::as_str).unwrap_or_default();
    match kubeon_inventory::outline(file("hosts.yml"), file("group_vars.yml")) {
        Ok(outline) => Ok(outline.version.map(|version| version.to_string())),
        Err(mistakes) => {
            let said: Vec<String> = mistakes.0.iter().map(ToString::to_string).collect();
            let text = format!(
                "hostsConfRef {} or varsConfRef {}: {}",
                references.hosts,
                references.vars,
                said.join("; ")
            );
            Err(Obstacle::Refuse("InvalidInventory", text))
        }
    }
}
