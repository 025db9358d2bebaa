//! The start of an operation that a user wrote: copies of its inputs, its claim, its Job.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceRequirements, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kubeon_api::{Cluster, ClusterOperation, DataRef, JobPlacement};
use kubeon_render::entrypoint::entrypoint;
use kubeon_render::job::{Mount, MountSource, OperationJob, Program, job};

use super::inputs::{self, Inputs, Obstacle, References, check_place};
use super::job_extras::{JobExtras, job_extras};
use super::placement::placement;
use super::wait::{Wait, refusal, report_wait};
use super::{OperationChanges, archive, name, owned_by_deleted, shown, status, target, uid};
use crate::names::{self, CLUSTER_LABEL, OPERATION_LABEL, QUEUE_KEY_ANNOTATION};
use crate::object::ObjectPatch;
use crate::operation::finish::{End, finish};
use crate::queue_key::QueueKey;
use crate::settings::{DEFAULT_DEADLINE_SECONDS, JOB_TTL_SECONDS};
use crate::view::{Observed, View};
use crate::write::{Change, NeedsReads, ObjectKind, ObjectRef, Write};

/// The changes for the first operation of a queue key that has no Job yet.
pub(crate) fn decide(
    s: &View<'_>,
    operation: &ClusterOperation,
    cluster: &Observed<std::sync::Arc<Cluster>>,
) -> Result<OperationChanges, NeedsReads> {
    match ready(s, operation, cluster) {
        Ok(ready) => Ok(start(s, operation, ready)),
        Err(Obstacle::Read(reads)) => Err(reads),
        Err(Obstacle::Wait(wait)) => Ok(report_wait(s, operation, &wait)),
        Err(Obstacle::Refuse(word, text)) => Ok(finish(s, operation, End::failed(word, text))),
    }
}

/// The inputs of a start.
struct Ready {
    references: References,
    inputs: Inputs,
    job_extras: JobExtras,
    placement: JobPlacement,
}

fn ready(
    s: &View<'_>,
    operation: &ClusterOperation,
    cluster: &Observed<std::sync::Arc<Cluster>>,
) -> Result<Ready, Obstacle> {
    if let Some((word, text)) = refusal(s, operation) {
        return Err(Obstacle::Refuse(word, text));
    }
    if operation.spec.main.action_type == kubeon_api::kubeonkube::ActionType::Kubeon {
        let text = "actionType kubeon is for operations that kubeon derives from a KubernetesCluster; declare one, or use playbook or shell";
        return Err(Obstacle::Refuse("NotDerived", text.to_owned()));
    }
    // Check the action first: its validity does not depend on the SSH key.
    entrypoint(&operation.spec, false)
        .map_err(|error| Obstacle::Refuse("InvalidAction", error.to_string()))?;
    if operation.spec.paused {
        return Err(Obstacle::Wait(Wait::Until("paused: spec.paused is true".to_owned())));
    }
    let missing = |text: String| Obstacle::Wait(Wait::Missing(text));
    let cluster = match cluster {
        Observed::Found(cluster) if cluster.metadata.deletion_timestamp.is_none() => cluster,
        Observed::Unreadable(why) => {
            return Err(missing(format!("Cluster {} cannot be read: {why}", operation.spec.cluster)));
        }
        Observed::Found(_) | Observed::Absent => {
            return Err(missing(format!("Cluster {} not found", operation.spec.cluster)));
        }
    };
    check_old_job(s, operation)?;
    let placement = placement(&s.settings.placement, cluster.spec.job_placement.as_ref())?;
    let references = inputs::references(operation, cluster)?;
    // Before the reads: hundreds of operations may wait, and each looks at its place every minute.
    check_place(s)?;
    let mut inputs = references.read(s)?;
    check_refusal(s, operation)?;
    if let std::collections::btree_map::Entry::Vacant(script) = inputs.files.entry("entrypoint.sh".to_owned())
    {
        let text = entrypoint(&operation.spec, references.ssh.is_some());
        script.insert(text.map_err(|error| Obstacle::Refuse("InvalidAction", error.to_string()))?);
    }
    let job_extras = job_extras(s, operation, cluster, &inputs, &references, &job_at(s, operation))?;
    Ok(Ready { references, inputs, job_extras, placement })
}

/// The namespace and name of the operation's Job.
fn job_at(s: &View<'_>, operation: &ClusterOperation) -> DataRef {
    DataRef::new(&s.settings.namespace, names::job(name(operation)))
}

/// Waits for the removal of the Job of a deleted operation with the same name. Its removal adds the key to
/// the queue.
fn check_old_job(s: &View<'_>, operation: &ClusterOperation) -> Result<(), Obstacle> {
    let at = job_at(s, operation);
    let owners = s.job(&at).and_then(|job| job.metadata.owner_references.as_deref()).unwrap_or_default();
    let target = ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name);
    match owned_by_deleted(&target, owners, name(operation), uid(operation)) {
        Some(text) => Err(Obstacle::Wait(Wait::Until(text))),
        None => Ok(()),
    }
}

/// The refusal of the API server when the operation was about to start.
pub(crate) fn check_refusal(s: &View<'_>, operation: &ClusterOperation) -> Result<(), Obstacle> {
    match s.refusals.get(name(operation)) {
        Some(refusal) if refusal.permanent => Err(Obstacle::Refuse("Refused", refusal.text.clone())),
        Some(refusal) => Err(Obstacle::Wait(Wait::Missing(refusal.text.clone()))),
        None => Ok(()),
    }
}

fn start(s: &View<'_>, operation: &ClusterOperation, ready: Ready) -> OperationChanges {
    let Ready { references, inputs, job_extras, placement } = ready;
    let map = copy_of_files(s, operation, &inputs.files);
    let mut copies = vec![map.clone()];
    let mut secret = None;
    if let (Some(ssh), Some((values, kind))) = (&references.ssh, &inputs.key) {
        let copy = copy_of_key(s, operation, &ssh.name, values, kind);
        secret = Some(copy.target.name.clone());
        copies.push(copy);
    }
    // An existing copy is the right one: its name contains a hash of its content and its owner.
    copies.retain(|copy| s.objects.meta(&copy.target).is_none());
    copies.extend(job_extras.secrets.iter().cloned());
    let at = job_at(s, operation);
    let job_write = Write {
        why: "the operation starts".to_owned(),
        target: ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name),
        change: Change::Create(
            the_job(s, operation, (&references, job_extras, &placement), &at, &map.target.name, secret)
                .into(),
        ),
        operation: Some(name(operation).to_owned()),
    };
    let mut progress = OperationChanges { claims: true, ..OperationChanges::default() };
    progress.changes.stages = vec![copies, vec![job_write]];
    let mut claimed = status(operation);
    claimed.status = Some(kubeon_api::kubeonkube::OperationResult::Running);
    let claim_time = || super::running::claimed(s, operation).unwrap_or_else(|| super::at(s.now));
    claimed.start_time.get_or_insert_with(claim_time);
    progress.shown = Some((0, shown(operation, &claimed)));
    progress
}

/// The immutable copy of script, inventory and variables. The copy of a deleted operation with the same name
/// has another name and is removed with that operation.
fn copy_of_files(s: &View<'_>, operation: &ClusterOperation, files: &BTreeMap<String, String>) -> Write {
    let mut parts: Vec<&[u8]> = vec![uid(operation).as_bytes()];
    parts.extend(files.iter().flat_map(|(key, text)| [key.as_bytes(), text.as_bytes()]));
    let copy = names::entrypoint(name(operation), &names::hash(&parts, 10));
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(copy.clone()),
            namespace: Some(s.settings.namespace.clone()),
            labels: Some(labels(operation)),
            owner_references: Some(vec![archive::owner(operation)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(files.clone()),
        ..ConfigMap::default()
    };
    Write {
        why: "the Job uses the inputs as they are now".to_owned(),
        target: ObjectRef::new(ObjectKind::ConfigMap, &s.settings.namespace, copy),
        change: Change::Create(map.into()),
        operation: Some(name(operation).to_owned()),
    }
}

/// The immutable copy of the key. Each operation has its own, so that it can be deleted when the Job ends.
fn copy_of_key(
    s: &View<'_>,
    operation: &ClusterOperation,
    original: &str,
    values: &BTreeMap<String, Vec<u8>>,
    kind: &str,
) -> Write {
    let mut parts: Vec<&[u8]> = vec![uid(operation).as_bytes(), kind.as_bytes()];
    parts.extend(values.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]));
    let copy = names::secret_copy(original, &names::hash(&parts, 10));
    let owner = archive::owner(operation);
    let copied_secret = secret(&s.settings.namespace, &copy, values, kind, labels(operation), owner);
    Write {
        why: "the Job uses the key as it is now".to_owned(),
        target: ObjectRef::new(ObjectKind::Secret, &s.settings.namespace, copy),
        change: Change::Create(copied_secret.into()),
        operation: Some(name(operation).to_owned()),
    }
}

/// An immutable Secret.
pub(crate) fn secret(
    namespace: &str,
    name: &str,
    values: &BTreeMap<String, Vec<u8>>,
    kind: &str,
    labels: BTreeMap<String, String>,
    owner: OwnerReference,
) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(labels),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        type_: Some(kind.to_owned()),
        data: Some(values.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()),
        ..Secret::default()
    }
}

/// Annotations of a Job and its pods: those of the operation, the queue key, and the digest of the spec.
pub(crate) fn annotations(operation: &ClusterOperation, queue_key: &QueueKey) -> BTreeMap<String, String> {
    let mut all = operation.metadata.annotations.clone().unwrap_or_default();
    all.retain(|key, _| !key.starts_with("kubectl.kubernetes.io/"));
    all.insert(QUEUE_KEY_ANNOTATION.to_owned(), queue_key.to_string());
    all.insert(names::SPEC_ANNOTATION.to_owned(), operation.spec.whole_digest());
    all
}

/// The arguments with which a runner that is stopped saves its log.
pub(crate) fn log_arguments(operation: &ClusterOperation, job: &str) -> [String; 2] {
    [format!("--job={job}"), format!("--operation-uid={}", uid(operation))]
}

/// Labels that identify a Job and its pods.
pub(crate) fn labels(operation: &ClusterOperation) -> BTreeMap<String, String> {
    [
        (OPERATION_LABEL.to_owned(), uid(operation).to_owned()),
        (CLUSTER_LABEL.to_owned(), names::label(&operation.spec.cluster)),
    ]
    .into()
}

fn the_job(
    s: &View<'_>,
    operation: &ClusterOperation,
    (references, job_extras, placement): (&References, JobExtras, &JobPlacement),
    at: &DataRef,
    map: &str,
    secret: Option<String>,
) -> Job {
    let is_runner = s.settings.is_runner(&operation.spec.image);
    // A runner image runs as a user that is not the owner of the mounted files, only in their group.
    let executable = if is_runner { 0o750 } else { 0o700 };
    let file = |volume, mode, path: &str, key: &str| Mount {
        volume,
        source: MountSource::ConfigMap { name: map.to_owned(), mode, optional: false },
        path: path.to_owned(),
        key: Some(key.to_owned()),
    };
    let mut mounts = vec![
        file("entrypoint", Some(executable), "/bin/entrypoint.sh", "entrypoint.sh"),
        file("hosts-conf", None, "/conf/hosts.yml", "hosts.yml"),
        file("vars-conf", None, "/conf/group_vars.yml", "group_vars.yml"),
    ];
    if let Some(name) = secret {
        mounts.push(Mount {
            volume: "ssh-auth",
            source: MountSource::Secret { name, optional: false },
            path: "/auth/ssh-privatekey".to_owned(),
            key: Some(inputs::KEY.to_owned()),
        });
    }
    let sources = references.sources.iter();
    mounts
        .extend(sources.map(|(_, _, path)| file("actions", Some(executable), path, &inputs::copy_key(path))));
    mounts.extend(job_extras.mounts);
    let spec = &operation.spec;
    let program = if is_runner {
        Program::Runner {
            operation: name(operation).to_owned(),
            action: "script",
            more: log_arguments(operation, &at.name).into_iter().chain(job_extras.arguments).collect(),
        }
    } else {
        Program::Script
    };
    job(&OperationJob {
        name: &at.name,
        namespace: &at.namespace,
        owner: Some(archive::owner(operation)),
        labels: labels(operation),
        annotations: annotations(operation, s.queue_key),
        container: "kubeonkube",
        image: s.settings.image_of_job(&spec.image),
        program,
        env: [("CLUSTER_NAME".to_owned(), spec.cluster.clone())]
            .into_iter()
            .chain(s.settings.trusted_keys_variable())
            .collect(),
        mounts,
        resources: spec.resources.clone().filter(|resources| *resources != ResourceRequirements::default()),
        placement,
        deadline_seconds: spec.active_deadline_seconds.or(Some(DEFAULT_DEADLINE_SECONDS)),
        ttl_seconds: Some(JOB_TTL_SECONDS),
    })
}

/// Adds missing labels and the owner of an operation; `None` when nothing is missing. An operation that the operator made and that
/// ended loses its list of field managers, half of its bytes in etcd: nobody applies it again.
pub(crate) fn metadata_patch(
    operation: &ClusterOperation,
    cluster: Option<&Cluster>,
    has_ended: bool,
) -> Option<Write> {
    let labels = operation.metadata.labels.clone().unwrap_or_default();
    let mut wanted = BTreeMap::new();
    if !labels.contains_key(crate::names::DERIVED_UID_LABEL) {
        wanted.insert(CLUSTER_LABEL, names::label(&operation.spec.cluster));
    }
    if has_ended {
        wanted.insert(names::COMPLETED_LABEL, "done".to_owned());
    }
    wanted.retain(|key, value| labels.get(*key) != Some(value));
    let owners = operation.metadata.owner_references.clone().unwrap_or_default();
    let cluster = cluster.filter(|cluster| {
        cluster.metadata.deletion_timestamp.is_none()
            && !owners.iter().any(|owner| Some(&owner.uid) == cluster.metadata.uid.as_ref())
    });
    if wanted.is_empty() && cluster.is_none() {
        return None;
    }
    let mut metadata = ObjectMeta::default();
    if has_ended && labels.contains_key(crate::names::DERIVED_UID_LABEL) {
        metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
    }
    if !wanted.is_empty() {
        metadata.labels = Some(wanted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    }
    if let Some(cluster) = cluster {
        let mut all = owners.clone();
        let mut owner = crate::cluster_object::owner(cluster);
        let controlled = owners.iter().any(|owner| owner.controller == Some(true));
        owner.controller = Some(!controlled);
        all.push(owner);
        metadata.owner_references = Some(all);
        metadata.resource_version.clone_from(&operation.metadata.resource_version);
    }
    Some(Write {
        why: if has_ended { "the operation ended" } else { "the operation belongs to its cluster" }
            .to_owned(),
        target: target(operation),
        change: Change::Merge(ObjectPatch::of_metadata(metadata)),
        operation: None,
    })
}
