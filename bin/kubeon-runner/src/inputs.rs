//! Reads the inputs of an operation: the operation, the cluster, its declaration.

use std::fs;
use std::path::{Path, PathBuf};

use kubeon_api::kubernetes_cluster::HostKeyMode;
use kubeon_api::{Operation, Version, labels};
use serde::Serialize;
use serde_json::Value;

use crate::args::RunnerSettings;
use crate::bundle;
use crate::commands::{ClusterCommands, Declared, KubeonProgram};
use crate::meta::WrittenObject;

/// The reason why the work cannot start. A retry does not help. The first two texts are those of
/// kubernetes-operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// `$OPERATION` is not set.
    #[error("the OPERATION env not found,exit")]
    NoOperation,
    /// There is no declaration.
    #[error("config is not found,exit. {0} contains neither cluster.json nor hosts.yml with group_vars.yml")]
    NoConfig(PathBuf),
    /// `$OPERATION` has an unknown value.
    #[error(
        "the OPERATION env not found,exit. {0:?} is none of creating, scaling-up, scaling-down, updating, renewing, repairing, snapshotting, terminating, prechecking"
    )]
    Operation(String),
    /// `$CLUSTER_NAME` is not set and nothing else names the cluster.
    #[error("CLUSTER_NAME is not set and cluster.json does not name the cluster")]
    NoCluster,
    /// The cluster's name is invalid.
    #[error(transparent)]
    Name(#[from] kubeon_api::NameError),
    /// The account's name is invalid.
    #[error("{0} does not contain a valid account name")]
    Username(PathBuf),
    /// An entry of `$IGNORE_CHECKS` cannot be the name of a check.
    #[error("IGNORE_CHECKS: {0:?} is not the name of a check")]
    Check(String),
    /// An entry of `$WITHOUT` can be neither an address nor a name.
    #[error("WITHOUT: {0:?} is neither an address nor the name of a host")]
    Host(String),
    /// The bundle cannot be used.
    #[error("cannot use the bundle: {0}")]
    Bundle(#[from] std::io::Error),
    /// The folder of the snapshots is not given.
    #[error("SNAPSHOT_FOLDER is not set: spec.snapshots names no object store")]
    NoSnapshotFolder,
    /// The snapshot to which a cluster returns is not given.
    #[error("SNAPSHOT_RESTORE is not set: spec.snapshots.restoreFrom names no snapshot")]
    NoSnapshot,
    /// The Secret of the object store lacks a key, or it cannot be read.
    #[error("the Secret of spec.snapshots has no {0} that can be read: {1}")]
    SnapshotSecret(&'static str, std::io::Error),
    /// The program was not found.
    #[error("cannot find the program kubeon beside kubeon-runner; name it with --kubeon")]
    NoProgram,
}

/// The value of `$OPERATION` for a precheck. The others are those of [`Operation`].
const PRECHECKING: &str = "prechecking";

/// The task of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Check the hosts and change nothing.
    Precheck,
    /// Plan a change, and change nothing.
    Plan(Operation),
    /// Change hosts.
    Change(Operation),
}

/// Reads `$OPERATION`.
///
/// # Errors
/// When it is not set or unknown.
pub(crate) fn task(settings: &RunnerSettings) -> Result<Task, InputError> {
    match settings.environment.operation.as_deref() {
        None => Err(InputError::NoOperation),
        Some(PRECHECKING) => Ok(Task::Precheck),
        Some(word) => match word.parse() {
            Ok(
                change @ (Operation::Creating
                | Operation::ScalingUp
                | Operation::ScalingDown
                | Operation::Updating
                | Operation::Rollbacking
                | Operation::Renewing
                | Operation::Repairing
                | Operation::Snapshotting
                | Operation::Terminating),
            ) => Ok(if settings.environment.plan { Task::Plan(change) } else { Task::Change(change) }),
            _ => Err(InputError::Operation(word.to_owned())),
        },
    }
}

/// The commands of the program for this cluster, with the state in the folder `home`.
///
/// # Errors
/// When an input is missing or invalid.
pub(crate) fn kubeon(settings: &RunnerSettings, home: &Path) -> Result<ClusterCommands, InputError> {
    let flags = &settings.flags;
    let declared = Declared::find(&flags.kubeon.conf);
    let declared = declared.ok_or_else(|| InputError::NoConfig(flags.kubeon.conf.clone()))?;
    let cluster = cluster_name(settings).ok_or(InputError::NoCluster)?;
    let cluster: kubeon_api::ClusterName = cluster.parse()?;
    Ok(ClusterCommands {
        engine: engine(settings, home)?,
        cluster: cluster.to_string(),
        declared,
        version: version(settings),
        auth: flags.auth.clone(),
        username: username(&flags.auth.join("username"))?,
        accepts_new_hosts: !pins_host_keys(settings),
        ignore: checks(settings)?,
        skip_hosts: Vec::new(),
        later_versions: settings.environment.later_versions,
        approved_plan: Some(flags.kubeon.approved_plan.join(labels::JOB_PLAN_KEY))
            .filter(|file| file.is_file()),
    })
}

/// The program, with its state in the folder `home`.
///
/// # Errors
/// When the program or its bundle cannot be used.
pub(crate) fn engine(settings: &RunnerSettings, home: &Path) -> Result<KubeonProgram, InputError> {
    let flags = &settings.flags.kubeon;
    let beside = || Some(settings.environment.program.as_ref()?.parent()?.join("kubeon"));
    Ok(KubeonProgram {
        program: flags.kubeon.clone().or_else(beside).ok_or(InputError::NoProgram)?,
        home: home.to_owned(),
        bundles: bundle::folder(&flags.bundle, &flags.bundle_in_use, home)?,
        pinned_in: None,
    })
}

/// The checks of `$IGNORE_CHECKS`, separated by commas. The program checks that they exist.
fn checks(settings: &RunnerSettings) -> Result<Option<String>, InputError> {
    let Some(text) = &settings.environment.ignore else { return Ok(None) };
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if let Some(name) = names.iter().find(|name| !plain(name) || name.starts_with('-')) {
        return Err(InputError::Check((*name).to_owned()));
    }
    Ok(Some(names.join(",")).filter(|names| !names.is_empty()))
}

fn username(file: &Path) -> Result<Option<String>, InputError> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(None) };
    let name: Result<kubeon_api::LoginName, _> = text.trim().parse();
    match name {
        _ if text.trim().is_empty() => Ok(None),
        Ok(name) => Ok(Some(name.to_string())),
        Err(_) => Err(InputError::Username(file.to_owned())),
    }
}

/// The declared version of Kubernetes.
fn version(settings: &RunnerSettings) -> Option<Version> {
    declared(settings).pointer("/spec/cluster/kubeVersion")?.as_str()?.parse().ok()
}

/// Whether only known host keys are accepted.
fn pins_host_keys(settings: &RunnerSettings) -> bool {
    let mode = declared(settings).pointer("/spec/cluster/authConfig/hostKeys").cloned();
    mode.is_some_and(|mode| mode == HostKeyMode::Pinned.as_str())
}

/// The cluster's name: the environment's, else the declaration's.
#[must_use]
pub(crate) fn cluster_name(settings: &RunnerSettings) -> Option<String> {
    let declared = || Some(declared(settings).pointer("/metadata/name")?.as_str()?.to_owned());
    settings.environment.cluster.clone().or_else(declared)
}

/// The cluster's namespace: the environment's, else the declaration's, else `default`.
#[must_use]
pub(crate) fn namespace(settings: &RunnerSettings) -> String {
    let declared = || Some(declared(settings).pointer("/metadata/namespace")?.as_str()?.to_owned());
    settings.environment.namespace.clone().or_else(declared).unwrap_or_else(|| "default".to_owned())
}

/// The cluster's region: a flag's, else the declaration's, else `default`.
#[must_use]
pub(crate) fn region(settings: &RunnerSettings) -> String {
    let declared = || Some(declared(settings).pointer("/spec/cluster/region")?.as_str()?.to_owned());
    let found = settings.flags.callback.region.clone().or_else(declared);
    found.filter(|region| !region.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// A host in the payload of a callback.
#[derive(Debug, Serialize)]
pub(crate) struct CallbackHost {
    /// Its address, as it was declared.
    ip: String,
}

/// The hosts for the payload of a callback: the hosts under `list` in the declaration, else those of the
/// environment.
#[must_use]
pub(crate) fn hosts(settings: &RunnerSettings, list: &str, listed: Option<&str>) -> Vec<CallbackHost> {
    let declared = declared(settings);
    let entries = declared.pointer(&format!("/spec/cluster/{list}")).and_then(Value::as_array);
    let addresses: Vec<&str> = match entries {
        Some(entries) => entries.iter().filter_map(|entry| entry.get("ip")?.as_str()).collect(),
        None => listed.unwrap_or_default().split(',').filter(|address| !address.is_empty()).collect(),
    };
    addresses.into_iter().map(|ip| CallbackHost { ip: ip.to_owned() }).collect()
}

/// The Secret or ConfigMap of a cluster. Its name is that of the flag, else `NAMESPACE-NAME-suffix`.
#[must_use]
pub(crate) fn object_ref(
    settings: &RunnerSettings,
    cluster: &str,
    named: Option<&String>,
    (kind, suffix): (&'static str, &str),
) -> WrittenObject {
    let cluster_namespace = namespace(settings);
    let name = named.cloned().unwrap_or_else(|| format!("{cluster_namespace}-{cluster}-{suffix}"));
    let namespace = settings.flags.meta.secret_namespace.clone().unwrap_or(cluster_namespace);
    WrittenObject { kind, namespace, name }
}

/// `cluster.json`, or null. The program validates it.
#[must_use]
pub(crate) fn declared(settings: &RunnerSettings) -> Value {
    let text = fs::read(settings.flags.kubeon.conf.join("cluster.json"));
    text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
