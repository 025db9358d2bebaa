//! The request of a file. Flags say how to log in where the file does not.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode};
use kubeon_api::{HostAddress, KubernetesCluster, Version};
use kubeon_plan::{DesiredCluster, HostSpec, Note, Refusal};

use crate::cluster_request::{ClusterRequest, refuse, settings, validated, version_or};
use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, LoginRequest, LoginRequests, LoginRole};

/// The request that a file makes; flags may say how to log in.
///
/// # Errors
/// Every reason at once.
pub fn from_file(
    cluster: &KubernetesCluster,
    flags: &LoginRequests,
    supported: &[Version],
) -> Result<ClusterRequest, EngineError> {
    let mut refusals = Vec::new();
    let name = cluster.cluster_name().map_err(|error| EngineError::refused(error.to_string()))?;
    let declared = &cluster.spec.cluster;
    let settings = settings(declared, &mut refusals)?;
    refusals.extend(unknown_secret(declared, flags));
    if cluster.spec.paused {
        refusals.push(refuse("spec.paused", "is true: nothing may be changed on the hosts; set it to false"));
    }
    let hosts = declared.hosts().map_err(|error| EngineError::refused(format!("{name}: {error}")))?;
    let (mut masters, mut workers) = (Vec::new(), Vec::new());
    for host in hosts {
        if host.roles.etcd != host.roles.master {
            let reason = "etcd runs on the masters and nowhere else in this version: leave etcdList out";
            refusals.push(refuse(format!("spec.cluster.etcdList {}", host.ip), reason));
        }
        let labels = host.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let spec = HostSpec { address: host.ip, name: host.name, labels };
        if host.roles.master { masters.push(spec) } else { workers.push(spec) }
    }
    let version = version_or(declared.kube_version, supported.iter().max())?;
    let spec = DesiredCluster { name: name.clone(), version, masters, workers, settings };
    let (spec, mut notes) = validated(spec, supported, refusals, name.as_str(), false)?;
    notes.extend(remarks(declared).map(|text| Note { host: None, text: text.to_owned() }));
    Ok(ClusterRequest { spec, notes, logins: logins(declared, flags) })
}

fn names_a_secret(declared: &DeclaredCluster) -> bool {
    declared.auth_config.as_ref().is_some_and(|auth| auth.credentials_ref.is_some())
}

/// A Secret of the meta cluster cannot be read here: flags must give its content for every host.
fn unknown_secret(declared: &DeclaredCluster, flags: &LoginRequests) -> Option<Refusal> {
    if !names_a_secret(declared) {
        return None;
    }
    let has_workers = !declared.node_list.is_empty();
    let masters = flags.of(LoginRole::Master).has_credentials();
    let workers = !has_workers || flags.of(LoginRole::Worker).has_credentials();
    let of = match (masters, workers) {
        (true, true) => return None,
        (true, false) => "default-worker",
        (false, true) if has_workers => "default-master",
        (false, _) => "default",
    };
    let reason = format!("names a Secret of a meta cluster; here give --{of}-pk-file or --{of}-passwd @FILE");
    Some(refuse("spec.cluster.authConfig.credentialsRef", reason))
}

/// What a file says that means less here than in a meta cluster.
fn remarks(declared: &DeclaredCluster) -> impl Iterator<Item = &'static str> {
    let bound =
        "spec.cluster.timeout_mins bounds operations in a meta cluster; here every step has its own bound";
    let secret = "spec.cluster.authConfig.credentialsRef names a Secret of a meta cluster; here the flags say how to log in";
    let remarks = [(declared.timeout_mins.is_some(), bound), (names_a_secret(declared), secret)];
    remarks.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text)
}

/// How to log in to each host: as it says itself, else as the file says of all, else as flags say.
fn logins(declared: &DeclaredCluster, flags: &LoginRequests) -> BTreeMap<HostAddress, HostLoginRequest> {
    let is_master = |host: HostAddress| declared.master_list.iter().any(|master| master.ip == host);
    let login_of = |(host, node): (HostAddress, DeclaredNode)| {
        let role = if is_master(host) { LoginRole::Master } else { LoginRole::Worker };
        (host, login(declared, &node, flags.of(role)))
    };
    declared.by_address().into_iter().map(login_of).collect()
}

fn login(declared: &DeclaredCluster, node: &DeclaredNode, flags: LoginRequest) -> HostLoginRequest {
    let auth = declared.auth_config.clone().unwrap_or_default();
    let user = node.user.as_ref().map(ToString::to_string);
    let own = LoginRequest { port: node.port, user, ..LoginRequest::default() };
    let shared =
        LoginRequest { user: auth.username.as_ref().map(ToString::to_string), ..LoginRequest::default() };
    // Flags replace the Secret, which wins over the fields beside the reference to it.
    let rest = if auth.credentials_ref.is_some() { flags.or(shared) } else { shared.or(flags) };
    HostLoginRequest {
        flags: own.or(rest),
        private_key: auth.private_ssh_key,
        password: auth.password,
        sudo_password: None,
    }
}
