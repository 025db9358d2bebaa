//! What lies ready for an operation of the program `kubeon`: which operation, which cluster, with what.

use std::fs;
use std::path::{Path, PathBuf};

use kubeon_api::Operation;
use serde_json::{Value, json};

use crate::args::Settings;
use crate::bundle;
use crate::commands::{Declared, Engine, Kubeon};

/// Why there is nothing to do. Trying again does not help. The first two are the words of kubernetes-operator.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// `$OPERATION` is not set, or to a word that means none.
    #[error("the OPERATION env not found,exit")]
    NoOperation,
    /// Nothing is declared.
    #[error("config is not found,exit. Neither cluster.json nor hosts.yml with group_vars.yml lies in {0}")]
    NoConfig(PathBuf),
    /// A word that means nothing.
    #[error(
        "the OPERATION env not found,exit. {0:?} is none of creating, scaling-up, scaling-down, terminating, prechecking"
    )]
    Operation(String),
    /// `$CLUSTER_NAME` is not set and nothing else names the cluster.
    #[error("which cluster? CLUSTER_NAME is not set")]
    NoCluster,
    /// The cluster's name is none.
    #[error(transparent)]
    Name(#[from] kubeon_api::NameError),
    /// The account's name is none.
    #[error("{0} holds no account's name")]
    Username(PathBuf),
    /// What should be the name of a check is none.
    #[error("IGNORE_CHECKS: {0:?} is no name of a check")]
    Check(String),
    /// What should name a worker cannot.
    #[error("WITHOUT: {0:?} is neither an address nor the name of a host")]
    Host(String),
    /// The bundle cannot be used.
    #[error("the bundle: {0}")]
    Bundle(#[from] std::io::Error),
    /// The program is not there.
    #[error("the program kubeon is not beside this one; name it with --kubeon")]
    NoProgram,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Look whether the hosts are fit, no more.
    Precheck,
    /// Change hosts.
    Change(Operation),
}

/// Reads `$OPERATION`.
///
/// # Errors
/// When it is not set, or is no word for something to do.
pub fn task(settings: &Settings) -> Result<Task, InputError> {
    match settings.environment.operation.as_deref() {
        None => Err(InputError::NoOperation),
        Some("prechecking") => Ok(Task::Precheck),
        Some(word) => match word.parse() {
            Ok(
                operation @ (Operation::Creating
                | Operation::ScalingUp
                | Operation::ScalingDown
                | Operation::Terminating),
            ) => Ok(Task::Change(operation)),
            _ => Err(InputError::Operation(word.to_owned())),
        },
    }
}

/// Finds what the program needs, with its state in the folder `home`.
///
/// # Errors
/// When something is missing or is not what it should be.
pub fn kubeon(settings: &Settings, home: &Path) -> Result<Kubeon, InputError> {
    let flags = &settings.flags;
    let declared = Declared::find(&flags.kubeon.conf);
    let declared = declared.ok_or_else(|| InputError::NoConfig(flags.kubeon.conf.clone()))?;
    let cluster = cluster_name(settings).ok_or(InputError::NoCluster)?;
    let cluster: kubeon_api::ClusterName = cluster.parse()?;
    Ok(Kubeon {
        engine: engine(settings, home)?,
        cluster: cluster.to_string(),
        declared,
        auth: flags.auth.clone(),
        username: username(&flags.auth.join("username"))?,
        ignore: checks(settings)?,
        without: Vec::new(),
    })
}

/// The program, with its state in the folder `home`.
///
/// # Errors
/// When it or its bundle is not there.
pub fn engine(settings: &Settings, home: &Path) -> Result<Engine, InputError> {
    let flags = &settings.flags.kubeon;
    let beside = || Some(settings.environment.program.as_ref()?.parent()?.join("kubeon"));
    Ok(Engine {
        program: flags.kubeon.clone().or_else(beside).ok_or(InputError::NoProgram)?,
        home: home.to_owned(),
        bundles: bundle::folder(&flags.bundle, home)?,
        pinned_in: None,
    })
}

/// Checks that may fail, if they are named; which ones there are is for the program to say.
fn checks(settings: &Settings) -> Result<Option<String>, InputError> {
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

/// The cluster's name: the environment's, else that of what is declared.
#[must_use]
pub fn cluster_name(settings: &Settings) -> Option<String> {
    let declared = || Some(declared(settings).pointer("/metadata/name")?.as_str()?.to_owned());
    settings.environment.cluster.clone().or_else(declared)
}

/// The cluster's namespace: the environment's, else that of what is declared, else `default`.
#[must_use]
pub fn namespace(settings: &Settings) -> String {
    let declared = || Some(declared(settings).pointer("/metadata/namespace")?.as_str()?.to_owned());
    settings.environment.namespace.clone().or_else(declared).unwrap_or_else(|| "default".to_owned())
}

/// The cluster's region: a flag's, else that of what is declared, else `default`.
#[must_use]
pub fn region(settings: &Settings) -> String {
    let declared = || Some(declared(settings).pointer("/spec/cluster/region")?.as_str()?.to_owned());
    let found = settings.flags.callback.region.clone().or_else(declared);
    found.filter(|region| !region.is_empty()).unwrap_or_else(|| "default".to_owned())
}

/// Hosts as a callback names them: those that are declared under `list`, else those that the environment lists.
#[must_use]
pub fn hosts(settings: &Settings, list: &str, listed: Option<&str>) -> Value {
    let declared = declared(settings);
    let entries = declared.pointer(&format!("/spec/cluster/{list}")).and_then(Value::as_array);
    let addresses: Vec<&str> = match entries {
        Some(entries) => entries.iter().filter_map(|entry| entry.get("ip")?.as_str()).collect(),
        None => listed.unwrap_or_default().split(',').filter(|address| !address.is_empty()).collect(),
    };
    addresses.iter().map(|ip| json!({"ip": ip})).collect()
}

/// `cluster.json`, or null. Whether it is sound is for the program to say.
#[must_use]
pub fn declared(settings: &Settings) -> Value {
    let text = fs::read(settings.flags.kubeon.conf.join("cluster.json"));
    text.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}
