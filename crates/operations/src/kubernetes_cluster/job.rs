//! The Job of a derived operation, contract B, 2.4. Its environment contains no secret; the key is in a
//! mounted Secret.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubeon_api::kubernetes_cluster::AuthConfig;
use kubeon_api::{
    ClusterOperation, DataRef, JobPlacement, KubernetesCluster, KubernetesClusterSpec, PrivateKey,
    PrivateKeyError, labels, upgrade_way,
};
use kubeon_render::job::{Mount, MountSource, OperationJob, Program, job};

use super::bundle_mounts::derived_from;
use super::cluster_action::ClusterAction;
use super::object_access::{namespace, object_name, running_version};
use super::persisted_objects::{observer_secret, persisted_objects, state_missing_text};
use super::snapshots::ObjectStoreInputs;
use super::{bundle_mounts, callback, inventory, snapshots};
use crate::names::{self, HOSTS_ANNOTATION, OPERATION_LABEL};
use crate::operation::finish::{End, finish};
use crate::operation::inputs::{KEY, Obstacle, check_place};
use crate::operation::placement::placement;
use crate::operation::wait::{Wait, report_wait};
use crate::operation::{OperationChanges, archive, name, start as common, uid};
use crate::persisted;
use crate::settings::JOB_TTL_SECONDS;
use crate::view::{Data, View};
use crate::write::{Change, NeedsReads, ObjectKind, ObjectRef, Write};

/// The most bytes in an environment variable; Linux refuses 128 KiB.
const MOST_IN_ENV: usize = 96 * 1024;
/// How many names are tried for a ConfigMap, because five digits may already be taken.
const ATTEMPTS: u8 = 16;
/// Seconds until Kubernetes removes the Job that took the cluster down, contract B.
const TEARDOWN_TTL_SECONDS: i32 = 3600;

/// The folder where the ConfigMap is mounted.
const CONF: &str = "/conf";

type Values = BTreeMap<String, Vec<u8>>;

pub(super) fn start(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<OperationChanges, NeedsReads> {
    match prepared(s, object, operation) {
        Ok(changes) => Ok(changes),
        Err(Obstacle::Read(reads)) => Err(reads),
        Err(Obstacle::Wait(wait)) => Ok(report_wait(s, operation, &wait)),
        Err(Obstacle::Refuse(word, text)) => Ok(finish(s, operation, End::failed(word, text))),
    }
}

fn prepared(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<OperationChanges, Obstacle> {
    let mut spec = operation_spec(object, operation)?;
    check_place(s)?;
    let placement = placement(&s.settings.placement, object.spec.job_placement.as_ref())?;
    let credentials = credentials(s, object)?;
    set_account(&mut spec, &credentials);
    common::check_refusal(s, operation)?;
    check_state(s, object, operation)?;
    let (ns, action) = (namespace(object), operation.spec.main.action.as_str());
    let at = DataRef::new(ns, names::derived_job(action, ns, object_name(object), name(operation)));
    let other_version = spec.cluster.kube_version != running_version(object);
    let snapshots = snapshots::inputs(s, object, operation, other_version)?;
    let approved = approved_plan(s, operation)?;
    let map = config(s, object, operation, &spec, &at)?;
    let mut copies = vec![map.clone()];
    let mut secret = None;
    if !credentials.is_empty() {
        let parts: Vec<&[u8]> =
            credentials.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]).collect();
        let copy = names::secret_copy(name(operation), &names::hash(&parts, 10));
        let owner = archive::owner(operation);
        let labels = [(OPERATION_LABEL.to_owned(), uid(operation).to_owned())].into();
        copies.push(Write {
            why: "the Job uses the credentials as they are now".to_owned(),
            target: ObjectRef::new(ObjectKind::Secret, ns, &copy),
            change: Change::Create(common::secret(ns, &copy, &credentials, "Opaque", labels, owner).into()),
            operation: Some(name(operation).to_owned()),
        });
        secret = Some(copy);
    }
    copies.retain(|copy| s.objects.meta(&copy.target).is_none());
    copies.extend(persisted_data(s, object, operation, &at)?);
    let inputs = JobInputs { map: map.target.name.clone(), secret, snapshots, approved, placement };
    let job = the_job(s, object, operation, &spec, &at, inputs);
    let job_write = Write {
        why: "the operation starts".to_owned(),
        target: ObjectRef::new(ObjectKind::Job, &at.namespace, &at.name),
        change: Change::Create(job.into()),
        operation: Some(name(operation).to_owned()),
    };
    let mut progress = OperationChanges { claims: true, ..OperationChanges::default() };
    progress.changes.stages = vec![copies, vec![job_write]];
    Ok(progress)
}

/// The creation of a cluster does not continue when the state of an earlier Job was deleted, because nothing
/// else records the changes on the hosts.
fn check_state(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<(), Obstacle> {
    let state = names::state(namespace(object), object_name(object));
    let state = ObjectRef::new(ObjectKind::Secret, namespace(object), state);
    let of_same_cluster = |other: &ClusterOperation| {
        derived_from(other) == object.metadata.uid.as_ref() && name(other) != name(operation)
    };
    let has_had_job = |other: &ClusterOperation| {
        of_same_cluster(other) && other.status.as_ref().is_some_and(|status| status.job_ref.is_some())
    };
    let has_had_job = s.operations.iter().any(|other| has_had_job(other));
    // Scaling is refused by the engine, which finds the cluster of another state on the hosts.
    let needs_state = matches!(
        ClusterAction::of(operation),
        Some(
            ClusterAction::Create
                | ClusterAction::Rollback
                | ClusterAction::Renew
                | ClusterAction::Repair
                | ClusterAction::Snapshot
        )
    );
    if needs_state && has_had_job && s.objects.meta(&state).is_none() {
        return Err(Obstacle::Wait(Wait::Missing(state_missing_text(object, &state))));
    }
    Ok(())
}

/// The ConfigMap of the plan that the operation applies. The Job of the plan wrote it.
fn approved_plan(s: &View<'_>, operation: &ClusterOperation) -> Result<Option<String>, Obstacle> {
    let Some(approved) = &operation.spec.approves else { return Ok(None) };
    let planned = s.operations.iter().find(|other| name(other) == approved);
    let job = planned.and_then(|planned| planned.status.as_ref()?.job_ref.as_ref());
    let target = job.map(|job| ObjectRef::new(ObjectKind::ConfigMap, &job.namespace, names::plan(&job.name)));
    match target.filter(|target| s.objects.meta(target).is_some()) {
        Some(target) => Ok(Some(target.name)),
        None => Err(Obstacle::Refuse(
            "NoPlan",
            format!("the plan of {approved} was deleted; it is made again on request"),
        )),
    }
}

/// The objects that outlive the Job. They have no owner, because the teardown of a deleted cluster needs
/// them.
fn persisted_data(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    at: &DataRef,
) -> Result<Vec<Write>, Obstacle> {
    let (ns, cluster) = (namespace(object), object_name(object));
    let label = persisted::cluster(ns, cluster);
    let mut writes = Vec::new();
    for target in persisted_objects(ns, cluster) {
        let object = persisted::PersistedObject {
            kind: target.kind,
            name: &target.name,
            cluster: &label,
            cluster_uid: None,
            owner: None,
        };
        writes.extend(persisted::assign(s, object, at, crate::operation::name(operation))?);
    }
    Ok(writes)
}

/// The spec that the operation was created for. When it has no version, the running version is used, not the
/// newest one.
fn operation_spec(
    object: &KubernetesCluster,
    operation: &ClusterOperation,
) -> Result<KubernetesClusterSpec, Obstacle> {
    let annotations = operation.metadata.annotations.as_ref();
    let text =
        annotations.and_then(|all| all.get(labels::APPLIED_SPEC)).map(String::as_str).unwrap_or_default();
    let mut spec: KubernetesClusterSpec = serde_json::from_str(text).map_err(|error| {
        Obstacle::Refuse("NoSpec", format!("its annotation {} cannot be read: {error}", labels::APPLIED_SPEC))
    })?;
    spec.cluster.kube_version = spec.cluster.kube_version.or(running_version(object));
    Ok(spec)
}

/// The credentials of the hosts: the referenced Secret, else the fields of the object.
fn credentials(s: &View<'_>, object: &KubernetesCluster) -> Result<Values, Obstacle> {
    let Some(auth) = &object.spec.cluster.auth_config else { return Ok(Values::new()) };
    let Some(reference) = &auth.credentials_ref else { return Ok(inline(auth)) };
    let ns = reference.namespace.as_ref().map_or(namespace(object), |name| name.as_str());
    let at = DataRef::new(ns, reference.name.as_str());
    let missing = |text: String| Obstacle::Wait(Wait::Missing(format!("authConfig.credentialsRef {text}")));
    if ns != namespace(object) {
        let text =
            format!("authConfig.credentialsRef {at} must be in the namespace of the KubernetesCluster");
        return Err(Obstacle::Refuse("OtherNamespace", text));
    }
    let target = ObjectRef::new(ObjectKind::Secret, &at.namespace, &at.name);
    if s.objects.meta(&target).is_none() {
        return Err(missing(format!("{at} not found")));
    }
    match s.data_of(&target)? {
        Data::Values { values, .. } => {
            let mut values = usable(values, &at)?;
            if let Some(user) = &auth.username {
                values.entry("username".to_owned()).or_insert_with(|| user.as_str().as_bytes().to_vec());
            }
            Ok(values)
        }
        Data::Denied(why) => Err(missing(format!("{at} cannot be read: {why}"))),
        _ => Err(missing(format!("{at} not found"))),
    }
}

/// Sets the account. The Secret has precedence over the field beside the reference. The runner reports an
/// invalid account.
fn set_account(spec: &mut KubernetesClusterSpec, credentials: &Values) {
    let account =
        credentials.get("username").and_then(|name| std::str::from_utf8(name).ok()?.trim().parse().ok());
    if let (Some(auth), Some(name)) = (&mut spec.cluster.auth_config, account) {
        auth.username = Some(name);
    }
}

/// The credentials in a Secret, with the key in the form of a key file.
fn usable(values: &Values, at: &DataRef) -> Result<Values, Obstacle> {
    let mut values = values.clone();
    let Some(key) = values.get(KEY) else {
        if values.contains_key("password") {
            return Ok(values);
        }
        let text = format!("authConfig.credentialsRef {at} has neither key {KEY} nor password");
        return Err(Obstacle::Wait(Wait::Missing(text)));
    };
    let refuse =
        |why: &str| Obstacle::Refuse("NoKey", format!("{KEY} of authConfig.credentialsRef {at}: {why}"));
    let text = std::str::from_utf8(key).map_err(|_| refuse("it is not text"))?;
    let key: PrivateKey = text.parse().map_err(|error: PrivateKeyError| refuse(&error.to_string()))?;
    values.insert(KEY.to_owned(), key.pem().as_bytes().to_vec());
    Ok(values)
}

fn inline(auth: &AuthConfig) -> Values {
    let mut values = Values::new();
    if let Some(user) = &auth.username {
        values.insert("username".to_owned(), user.as_str().as_bytes().to_vec());
    }
    if let Some(key) = &auth.private_ssh_key {
        values.insert(KEY.to_owned(), key.pem().as_bytes().to_vec());
    }
    if let Some(password) = &auth.password {
        let name = if auth.private_ssh_key.is_some() { "passphrase" } else { "password" };
        values.insert(name.to_owned(), password.expose().as_bytes().to_vec());
    }
    values
}

fn updates(operation: &ClusterOperation) -> bool {
    ClusterAction::of(operation) == Some(ClusterAction::Update)
}

fn takes_down(operation: &ClusterOperation) -> bool {
    ClusterAction::of(operation) == Some(ClusterAction::Terminate)
}

/// The ConfigMap `kube-<action>-<5 hex>`: the Job's name, the declared cluster, the inventory.
fn config(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    spec: &KubernetesClusterSpec,
    at: &DataRef,
) -> Result<Write, Obstacle> {
    let free = |target: &ObjectRef| {
        s.objects.meta(target).is_none_or(|meta| meta.owners.iter().any(|owner| owner == uid(operation)))
    };
    let action = operation.spec.main.action.as_str();
    let mut targets = (0..ATTEMPTS).map(|attempt| {
        ObjectRef::new(
            ObjectKind::ConfigMap,
            &at.namespace,
            names::derived_config(action, name(operation), attempt),
        )
    });
    let target = targets.find(free).ok_or_else(|| {
        Obstacle::Refuse("NoName", format!("{ATTEMPTS} names of its ConfigMap are taken in {}", at.namespace))
    })?;
    let mut spec = spec.clone();
    if let Some(auth) = &mut spec.cluster.auth_config {
        // The Secret is mounted beside the ConfigMap; the runner has no access to the meta cluster's Secret.
        auth.credentials_ref = None;
    }
    let desired = KubernetesCluster {
        metadata: ObjectMeta {
            name: Some(object_name(object).to_owned()),
            namespace: Some(namespace(object).to_owned()),
            ..ObjectMeta::default()
        },
        spec: spec.clone(),
        status: None,
    };
    let desired = serde_json::to_value(desired)
        .map_err(|error| Obstacle::Refuse("NoText", format!("the declaration cannot be written: {error}")))?;
    // A teardown gets only the name of the cluster, so its inventory has the logins. For other operations the
    // spec has them, and a ConfigMap of 5,000 hosts is nearly full.
    let hosts = if takes_down(operation) { inventory::with_logins } else { inventory::yaml };
    let mut data = BTreeMap::from([
        ("job-name".to_owned(), at.name.clone()),
        ("cluster.json".to_owned(), desired.to_string()),
        ("hosts.yml".to_owned(), hosts(&spec.cluster)),
    ]);
    if let Some(authorities) = callback::authorities(s.settings) {
        data.insert(callback::AUTHORITIES.to_owned(), authorities.to_owned());
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(target.name.clone()),
            namespace: Some(target.namespace.clone()),
            labels: Some([(OPERATION_LABEL.to_owned(), uid(operation).to_owned())].into()),
            owner_references: Some(vec![archive::owner(operation)]),
            ..ObjectMeta::default()
        },
        immutable: Some(true),
        data: Some(data),
        ..ConfigMap::default()
    };
    Ok(Write {
        why: "the Job uses the declaration as it is now".to_owned(),
        target,
        change: Change::Create(map.into()),
        operation: Some(name(operation).to_owned()),
    })
}

/// How many versions follow the one of the operation on the way to the declared one; empty if none does. Its Job has no bundles of
/// them, and checks the disks of the hosts for them, too.
fn later_versions(s: &View<'_>, object: &KubernetesCluster, spec: &KubernetesClusterSpec) -> String {
    let ends = spec.cluster.kube_version.zip(object.spec.cluster.kube_version);
    let way = ends
        .filter(|(next, wanted)| next < wanted)
        .and_then(|(next, wanted)| upgrade_way(next, wanted, &s.settings.versions).ok());
    way.map_or_else(String::new, |way| way.len().to_string())
}

/// The environment of contract B, in the order of the contract.
fn environment(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    spec: &KubernetesClusterSpec,
) -> Vec<(String, String)> {
    let cluster = &spec.cluster;
    let vip = cluster.external_load_balancer.as_ref().map(|endpoint| endpoint.as_str().to_owned());
    let all = [
        ("MASTER_HOSTS", inventory::joined(&cluster.master_list)),
        ("MASTER_VIP", vip.unwrap_or_default()),
        ("ETCD_HOSTS", inventory::joined(cluster.etcd())),
        ("OPERATION", operation.spec.main.action.clone()),
        ("HOSTS_YAML", inventory::yaml(cluster)),
        ("CLUSTER_NAME", object_name(object).to_owned()),
        ("CLUSTER_NAMESPACE", namespace(object).to_owned()),
        ("NODE_HOSTS", annotation(operation, HOSTS_ANNOTATION)),
        ("IGNORE_CHECKS", annotation(operation, labels::IGNORE_CHECKS)),
        ("WITHOUT", annotation(operation, labels::WITHOUT)),
        ("PLAN", if operation.spec.plan { "true" } else { "" }.to_owned()),
        ("LATER_VERSIONS", if updates(operation) { later_versions(s, object, spec) } else { String::new() }),
    ];
    let optional = ["IGNORE_CHECKS", "WITHOUT", "PLAN", "LATER_VERSIONS"];
    let is_present = |name: &str, value: &str| !optional.contains(&name) || !value.is_empty();
    // A value that is too long for the environment is only in /conf.
    all.into_iter()
        .filter(|(name, value)| value.len() <= MOST_IN_ENV && is_present(name, value))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn annotation(operation: &ClusterOperation, key: &str) -> String {
    operation.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
}

/// What the Job reads, besides what every Job of a cluster reads.
struct JobInputs {
    /// The ConfigMap of the operation.
    map: String,
    /// The copy of the credentials.
    secret: Option<String>,
    /// The object store.
    snapshots: Option<ObjectStoreInputs>,
    /// The ConfigMap of the plan that it applies.
    approved: Option<String>,
    /// Where and with which limits its pod runs.
    placement: JobPlacement,
}

fn the_job(
    s: &View<'_>,
    object: &KubernetesCluster,
    operation: &ClusterOperation,
    spec: &KubernetesClusterSpec,
    at: &DataRef,
    inputs: JobInputs,
) -> Job {
    let folder = |volume, source, path: &str| Mount { volume, source, path: path.to_owned(), key: None };
    let state = names::state(namespace(object), object_name(object));
    let known_hosts = names::known_hosts(namespace(object), object_name(object));
    let map_of = |name, optional| MountSource::ConfigMap { name, mode: None, optional };
    let mut mounts = vec![
        folder("conf", map_of(inputs.map, false), CONF),
        folder("state", MountSource::Secret { name: state, optional: true }, "/state"),
        folder("known-hosts", map_of(known_hosts, true), "/known-hosts"),
        folder("earlier-log", map_of(names::log(&at.name), true), "/earlier-log"),
    ];
    mounts.extend(
        inputs.secret.map(|name| folder("auth", MountSource::Secret { name, optional: false }, "/auth")),
    );
    mounts.extend(inputs.approved.map(|name| folder("approved-plan", map_of(name, false), "/approved-plan")));
    mounts.extend(bundle_mounts::of_job(s, object, operation, spec));
    mounts.extend(callback::token(s.settings, operation));
    let store = inputs.snapshots.map(|store| (store.variables, store.mount)).unzip();
    mounts.extend(store.1);
    let is_teardown = takes_down(operation);
    // The Job that takes the cluster down has no owner, because the deletion of the object would delete the
    // Job.
    let owner = (!is_teardown).then(|| OwnerReference {
        api_version: "ecs.yun.com/v1".to_owned(),
        kind: ObjectKind::KubernetesCluster.as_str().to_owned(),
        name: object_name(object).to_owned(),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    });
    let mut annotations = common::annotations(operation, s.queue_key);
    annotations.remove(labels::APPLIED_SPEC);
    annotations.remove(HOSTS_ANNOTATION);
    job(&OperationJob {
        name: &at.name,
        namespace: &at.namespace,
        owner,
        labels: common::labels(operation),
        annotations,
        container: &at.name,
        image: s.settings.runner_images.last().map_or(operation.spec.image.as_str(), String::as_str),
        program: Program::Runner {
            operation: name(operation).to_owned(),
            action: "kubeon",
            more: common::log_arguments(operation, &at.name)
                .into_iter()
                .chain([format!(
                    "--observer-secret={}",
                    observer_secret(&at.namespace, object_name(object)).name
                )])
                .chain(callback::arguments(s.settings, operation, CONF))
                .collect(),
        },
        env: environment(s, object, operation, spec)
            .into_iter()
            .chain(s.settings.trusted_keys_variable())
            .chain(store.0.unwrap_or_default())
            .collect(),
        mounts,
        resources: operation.spec.resources.clone(),
        placement: &inputs.placement,
        deadline_seconds: operation.spec.active_deadline_seconds,
        ttl_seconds: Some(if is_teardown { TEARDOWN_TTL_SECONDS } else { JOB_TTL_SECONDS }),
    })
}
