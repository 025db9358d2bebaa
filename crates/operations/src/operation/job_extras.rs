//! What a Job of an image of ours gets beside contract A's, when it runs playbooks or calls what they call: the bundle of
//! the version that is wanted, and what an earlier Job of the cluster left.

use kubeon_api::kubeonkube::{ActionType, ClusterOperationSpec};
use kubeon_api::{Cluster, ClusterOperation, DataRef};
use kubeon_render::job::{Mount, MountSource};

use super::inputs::{Inputs, Obstacle, References, actions, kept_as};
use super::name;
use crate::cluster_object::owner;
use crate::names;
use crate::persisted::{self, PersistedObject};
use crate::view::View;
use crate::write::{ObjectKind, Write};

/// Playbooks that need no bundle: they put nothing on hosts.
const WITHOUT_BUNDLE: [&str; 2] = ["ping.yml", "reset.yml"];
/// The programs of our image that keep a state, and the variables that a script finds them by.
const OURS: [&str; 4] = ["ansible-playbook", "kubeon", "KUBEON_PROGRAM", "KUBEON_HOME"];

/// What is added to the Job.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct JobExtras {
    /// Made or handed over before the Job.
    pub secrets: Vec<Write>,
    pub mounts: Vec<Mount>,
    /// For the runner.
    pub arguments: Vec<String>,
}

/// What the Job is to be given; nothing for an image that is not ours, or without a playbook or command that needs it: it
/// costs two writes, and the time of an image.
pub(crate) fn job_extras(
    s: &View<'_>,
    operation: &ClusterOperation,
    cluster: &Cluster,
    inputs: &Inputs,
    references: &References,
    job: &DataRef,
) -> Result<JobExtras, Obstacle> {
    let spec = &operation.spec;
    let (playbooks, called) = (playbooks(spec), scripts(spec, inputs, references).any(calls_ours));
    if (playbooks.is_empty() && !called) || !s.settings.is_runner(&spec.image) {
        return Ok(JobExtras::default());
    }
    let version = match version(inputs, references) {
        // What a command makes of an inventory is for the command to say.
        Err(_) if playbooks.is_empty() => None,
        version => version?,
    };
    let cluster_name = spec.cluster.as_str();
    let label = persisted::cluster(&job.namespace, cluster_name);
    let (state, kubeconfig) = (names::cluster_state(cluster_name), names::cluster_kubeconfig(cluster_name));
    let mut job_extras = JobExtras::default();
    for secret in [&state, &kubeconfig] {
        let kept = PersistedObject {
            kind: ObjectKind::Secret,
            name: secret,
            cluster: &label,
            owner: Some(owner(cluster)),
        };
        job_extras.secrets.extend(persisted::hand_over(s, kept, job, name(operation))?);
    }
    let source = MountSource::Secret { name: state.clone(), optional: true };
    job_extras.mounts.push(Mount { volume: "state", source, path: "/state".to_owned(), key: None });
    let brings = called || playbooks.iter().any(|playbook| !WITHOUT_BUNDLE.contains(playbook));
    if let Some(image) = s.settings.bundle_image.as_deref().filter(|_| brings) {
        let version = version.unwrap_or_else(|| s.settings.default_version.clone());
        job_extras.mounts.push(Mount::bundle(image, &version));
    }
    let flags =
        [("secret-namespace", &job.namespace), ("state-secret", &state), ("kubeconfig-secret", &kubeconfig)];
    job_extras.arguments = flags.iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
    Ok(job_extras)
}

fn playbooks(spec: &ClusterOperationSpec) -> Vec<&str> {
    let playbooks = actions(spec).filter(|action| action.action_type == ActionType::Playbook);
    playbooks.map(|action| action.action.trim()).collect()
}

/// What people wrote that a shell runs: commands, files that they bring along, a script in place of the one that is made.
fn scripts<'s>(
    spec: &'s ClusterOperationSpec,
    inputs: &'s Inputs,
    references: &References,
) -> impl Iterator<Item = &'s str> {
    let commands = actions(spec).filter(|action| action.action_type == ActionType::Shell);
    let brought = inputs.files.iter().filter(|(key, _)| key.starts_with(&kept_as("/bin/")));
    let own = references.script.as_ref().and_then(|_| inputs.files.get("entrypoint.sh"));
    let files = brought.map(|(_, text)| text).chain(own).map(String::as_str);
    commands.map(|action| action.action.as_str()).chain(files)
}

/// Whether a word of it is a program of ours. A comment that names one is as good.
fn calls_ours(script: &str) -> bool {
    let in_a_word = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    script.split(|c: char| !in_a_word(c)).any(|word| OURS.contains(&word))
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
