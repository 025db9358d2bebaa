//! Cluster requests from a file. Flags provide logins that the file does not declare.

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode};
use kubeon_api::{HostAddress, HostRole, KubernetesCluster, KubernetesClusterSpec, Version};
use kubeon_plan::{DesiredCluster, HostSpec, Note, Refusal};

use crate::cluster_request::{ClusterRequest, NamedSettings, settings, validated, version_or};
use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, LoginRequest, LoginRequests};
use crate::remedy::EngineRemedy;

/// Builds a request from a file; flags may provide logins.
///
/// # Errors
/// Refuses with all reasons at once.
pub fn from_file(
    cluster: &KubernetesCluster,
    flags: &LoginRequests,
    supported: &[Version],
) -> Result<ClusterRequest, EngineError> {
    let mut refusals = Vec::new();
    let name = cluster.cluster_name().map_err(|error| EngineError::refused(error.to_string()))?;
    let declared = &cluster.spec.cluster;
    let settings = settings(declared, &mut refusals)?;
    let unknown = unknown_secret(declared, flags);
    let remedy = unknown.as_ref().map(|(_, remedy)| remedy.clone());
    refusals.extend(unknown.map(|(refusal, _)| refusal));
    if cluster.spec.paused {
        refusals.push(Refusal::setting("spec.paused", "is true, so no host may be changed; set it to false"));
    }
    let hosts = declared.hosts().map_err(|error| EngineError::refused(format!("{name}: {error}")))?;
    let (mut masters, mut workers, mut etcd_hosts) = (Vec::new(), Vec::new(), Vec::new());
    let etcd_is_on_masters = declared.etcd_is_on_masters();
    for host in hosts {
        let runs_node = host.roles.master || host.roles.worker;
        if !etcd_is_on_masters && host.roles.etcd && runs_node {
            let reason = "runs a node too: etcd runs on all masters (omit etcdList), or on hosts that run nothing else";
            refusals.push(Refusal::setting(format!("spec.cluster.etcdList {}", host.ip), reason));
        }
        let labels = host.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let spec = HostSpec { name: host.name, labels, taints: host.taints, ..HostSpec::at(host.ip) };
        let spec = spec.with_internal_address(host.internal_address);
        let hosts = match host.roles {
            roles if roles.master => &mut masters,
            roles if roles.worker => &mut workers,
            _ => &mut etcd_hosts,
        };
        hosts.push(spec);
    }
    let version = version_or(declared.kube_version, supported.iter().max())?;
    let spec = DesiredCluster { name: name.clone(), version, masters, workers, etcd_hosts, settings };
    let (spec, mut notes) =
        validated(spec, supported, refusals, name.as_str(), false).map_err(|error| error.remedy(remedy))?;
    notes.extend(remarks(&cluster.spec).map(|text| Note { host: None, text: text.to_owned() }));
    let named = NamedSettings::by_file(declared);
    Ok(ClusterRequest { spec, named, notes, logins: logins(declared, flags) })
}

fn names_a_secret(declared: &DeclaredCluster) -> bool {
    declared.auth_config.as_ref().is_some_and(|auth| auth.credentials_ref.is_some())
}

/// A Secret of the meta cluster cannot be read on this machine: flags must provide the login of every host.
fn unknown_secret(declared: &DeclaredCluster, flags: &LoginRequests) -> Option<(Refusal, EngineRemedy)> {
    if !names_a_secret(declared) {
        return None;
    }
    let has_workers = !declared.node_list.is_empty();
    let masters = flags.of(&HostRole::Master).has_credentials();
    let workers = !has_workers || flags.of(&HostRole::Worker).has_credentials();
    let role = match (masters, workers) {
        (true, true) => return None,
        (true, false) => Some(HostRole::Worker),
        (false, true) if has_workers => Some(HostRole::Master),
        (false, _) => None,
    };
    let reason = "names a Secret of a meta cluster, which cannot be read here";
    let refusal = Refusal::setting("spec.cluster.authConfig.credentialsRef", reason);
    Some((refusal, EngineRemedy::GiveLogin { role }))
}

/// Remarks about fields that have an effect only in a meta cluster.
fn remarks(spec: &KubernetesClusterSpec) -> impl Iterator<Item = &'static str> {
    let declared = &spec.cluster;
    let timeout = "spec.cluster.timeout_mins limits operations in a meta cluster only; here every step has its own time limit";
    let secret = "spec.cluster.authConfig.credentialsRef names a Secret of a meta cluster; here the login of each host must be given";
    let snapshots = "spec.snapshots has an effect in a meta cluster only; here a timer may run kubeon etcd save NAME FOLDER --keep NUMBER";
    let plan = "spec.plan has an effect in a meta cluster only; here: kubeon plan -f FILE --out PLAN, then kubeon create -f FILE --approved-plan PLAN";
    let windows = "spec.maintenanceWindows has an effect in a meta cluster only; here changes begin at once";
    let placement = "spec.jobPlacement has an effect in a meta cluster only; here no pod runs an operation";
    let remarks = [
        (declared.timeout_mins.is_some(), timeout),
        (names_a_secret(declared), secret),
        (spec.snapshots.is_some(), snapshots),
        (spec.plan, plan),
        (!spec.maintenance_windows.is_empty(), windows),
        (spec.job_placement.is_some(), placement),
    ];
    remarks.into_iter().filter(|(applies, _)| *applies).map(|(_, text)| text)
}

/// The login of each host: its own settings, else the settings of the file for all hosts, else the flags.
fn logins(declared: &DeclaredCluster, flags: &LoginRequests) -> BTreeMap<HostAddress, HostLoginRequest> {
    let is_master = |host: HostAddress| declared.master_list.iter().any(|master| master.ip == host);
    let login_of = |(host, node): (HostAddress, DeclaredNode)| {
        let role = HostRole::of(is_master(host));
        (host, login(declared, &node, flags.of(&role)))
    };
    declared.by_address().into_iter().map(login_of).collect()
}

fn login(declared: &DeclaredCluster, node: &DeclaredNode, flags: LoginRequest) -> HostLoginRequest {
    let auth = declared.auth_config.clone().unwrap_or_default();
    let user = node.user.as_ref().map(ToString::to_string);
    let own = LoginRequest { port: node.port, user, ..LoginRequest::default() };
    let shared =
        LoginRequest { user: auth.username.as_ref().map(ToString::to_string), ..LoginRequest::default() };
    // Flags replace the Secret. The Secret has priority over the fields next to its reference.
    let rest = if auth.credentials_ref.is_some() { flags.or(shared) } else { shared.or(flags) };
    HostLoginRequest {
        flags: own.or(rest),
        private_key: auth.private_ssh_key,
        password: auth.password,
        sudo_password: None,
        formerly: None,
    }
}
