//! Cluster requests: from settings and hosts to a specification. A refusal names all reasons at once.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::kubernetes_cluster::{ClusterSettings, DeclaredCluster, NodeTaint};
use kubeon_api::{ClusterName, HostAddress, HostName, NameError, Version};
use kubeon_plan::{DesiredCluster, HostSpec, Note, PlanRefused, Refusal, RefusedField, Valid};

use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, LoginRequest};

/// A requested cluster.
#[derive(Debug, Clone)]
pub struct ClusterRequest {
    /// The specification, validated without contacting a host, as that of a cluster that may exist already.
    pub spec: Valid<DesiredCluster>,
    /// The settings that the request names. An existing cluster keeps the others that can change.
    pub named: NamedSettings,
    /// Notes for the user.
    pub notes: Vec<Note>,
    /// How to log in to each host.
    pub logins: BTreeMap<HostAddress, HostLoginRequest>,
}

/// The parts of a request, with the refusals that were found while they were read.
#[derive(Debug, Clone, Default)]
pub struct RequestParts {
    /// The settings; its lists of hosts are not used.
    pub declared: DeclaredCluster,
    /// Feature gates of the Kubernetes programs: `Name=true|false`, joined by commas.
    pub feature_gates: String,
    /// Masters in order.
    pub masters: Vec<HostRequest>,
    /// Workers in order.
    pub workers: Vec<HostRequest>,
    /// Masters were given and none could be parsed; `refusals` contains the reason.
    pub unread_masters: bool,
    /// Refusals found so far.
    pub refusals: Vec<Refusal>,
}

/// A requested host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRequest {
    /// The address to log in at.
    pub address: HostAddress,
    /// Its own address in the cluster's network, if the user gives one.
    pub internal_address: Option<HostAddress>,
    /// The node name.
    pub name: Option<HostName>,
    /// The node labels.
    pub labels: BTreeMap<String, String>,
    /// The node taints.
    pub taints: BTreeSet<NodeTaint>,
    /// How to log in.
    pub login: LoginRequest,
}

impl From<HostRequest> for HostSpec {
    fn from(host: HostRequest) -> Self {
        let HostRequest { address, internal_address, name, labels, taints, login: _ } = host;
        Self { name, labels, taints, ..Self::at(address) }.with_internal_address(internal_address)
    }
}

/// Builds a request from its parts.
///
/// # Errors
/// Refuses with all reasons at once.
pub fn from_parts(
    name: &str,
    version: &str,
    parts: RequestParts,
    supported: &[Version],
) -> Result<ClusterRequest, EngineError> {
    let RequestParts { declared, feature_gates, masters, workers, unread_masters, mut refusals } = parts;
    let mut refuse = |field, value: &str, reason: String| refusals.push(Refusal::new(field, value, reason));
    let cluster =
        name.parse::<ClusterName>().map_err(|error| refuse(RefusedField::Name, name, error.to_string())).ok();
    let version = version
        .parse::<Version>()
        .map_err(|error| {
            let reason = format!("Input version [{version}] error: {error}");
            refuse(RefusedField::Version, version, reason);
        })
        .ok();
    let settings = settings(&declared, &mut refusals)?;
    let named = NamedSettings::by_flags(&declared, &feature_gates);
    let login = |host: &HostRequest| {
        (host.address, HostLoginRequest { flags: host.login.clone(), ..HostLoginRequest::default() })
    };
    let logins = masters.iter().chain(&workers).map(login).collect();
    let spec = DesiredCluster {
        // An invalid name or version is refused below. A placeholder allows the other checks to run too.
        name: cluster
            .map_or_else(|| "x".parse(), Ok)
            .map_err(|error: NameError| EngineError::failed(error.to_string()))?,
        version: version_or(version, supported.last())?,
        masters: masters.into_iter().map(HostSpec::from).collect(),
        workers: workers.into_iter().map(HostSpec::from).collect(),
        etcd_hosts: Vec::new(),
        settings: ClusterSettings { feature_gates, ..settings },
    };
    let (spec, notes) = validated(spec, supported, refusals, name, unread_masters)?;
    Ok(ClusterRequest { spec, named, notes, logins })
}

/// Validates a stored specification.
///
/// # Errors
/// Refuses with all reasons why it cannot be planned any more.
pub fn stored_spec(
    spec: DesiredCluster,
    supported: &[Version],
) -> Result<(Valid<DesiredCluster>, Vec<Note>), EngineError> {
    Ok(kubeon_plan::validate_existing(spec, supported)?)
}

pub(crate) fn validated(
    spec: DesiredCluster,
    supported: &[Version],
    mut refusals: Vec<Refusal>,
    name: &str,
    unread_masters: bool,
) -> Result<(Valid<DesiredCluster>, Vec<Note>), EngineError> {
    match kubeon_plan::validate_existing(spec, supported) {
        Ok(valid) if refusals.is_empty() => Ok(valid),
        Ok((_, notes)) => Err(EngineError::refusals(name, refusals, &notes)),
        Err(PlanRefused { refusals: more, notes, .. }) => {
            refusals.extend(more.into_iter().filter(|refusal| {
                !(unread_masters && refusal.field == RefusedField::Master && refusal.value.is_empty())
            }));
            Err(EngineError::refusals(name, refusals, &notes))
        }
    }
}

/// The requested version, else the given version of the catalogue.
pub(crate) fn version_or(
    requested: Option<Version>,
    catalogue: Option<&Version>,
) -> Result<Version, EngineError> {
    requested.or(catalogue.copied()).ok_or_else(|| EngineError::failed("the catalogue contains no version"))
}

/// Which settings that can change a request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedSettings {
    cert_sans: bool,
    max_pods: bool,
    node_ports: bool,
    mtu: bool,
    feature_gates: bool,
    kernel_parameters: bool,
    taints: bool,
    container_runtime: bool,
    extra_args: bool,
}

impl NamedSettings {
    /// A request by flags names what it sets.
    pub(crate) fn by_flags(declared: &DeclaredCluster, feature_gates: &str) -> Self {
        let network = declared.network.as_ref();
        Self {
            cert_sans: declared.api_server.as_ref().is_some_and(|server| !server.cert_sans.is_empty()),
            max_pods: network.is_some_and(|network| network.max_pods.is_some()),
            node_ports: network.is_some_and(|network| network.node_port_range.is_some()),
            mtu: network.is_some_and(|network| network.mtu.is_some()),
            feature_gates: !feature_gates.is_empty() || declared.feature_gates.is_some(),
            kernel_parameters: !declared.kernel_parameters.is_empty(),
            // Each host names its own; no flag removes them.
            taints: false,
            container_runtime: declared.container_runtime.as_ref().is_some_and(|runtime| !runtime.is_empty()),
            extra_args: declared.extra_args.as_ref().is_some_and(|arguments| !arguments.is_empty()),
        }
    }

    /// A file is complete: what it leaves out has its default, but for node ports, which earlier versions let in any range.
    pub(crate) fn by_file(declared: &DeclaredCluster) -> Self {
        let Self { node_ports, .. } = Self::by_flags(declared, "");
        Self {
            cert_sans: true,
            max_pods: true,
            node_ports,
            mtu: true,
            feature_gates: true,
            kernel_parameters: true,
            taints: true,
            container_runtime: true,
            extra_args: true,
        }
    }

    /// Gives the nodes that name no taints their stored ones, and the settings that are not named their stored values.
    pub(crate) fn keep_others(self, requested: &mut DesiredCluster, stored: &DesiredCluster) {
        self.keep_settings(&mut requested.settings, &stored.settings);
        if self.taints {
            return;
        }
        let known: BTreeMap<HostAddress, &HostSpec> =
            stored.nodes().map(|host| (host.address, host)).collect();
        let nodes = requested.masters.iter_mut().chain(&mut requested.workers);
        for host in nodes.filter(|host| host.taints.is_empty()) {
            host.taints = known.get(&host.address).map(|known| known.taints.clone()).unwrap_or_default();
        }
    }

    /// Gives the settings that are not named their stored values.
    pub(crate) fn keep_settings(self, requested: &mut ClusterSettings, stored: &ClusterSettings) {
        let Self { cert_sans, max_pods, node_ports, mtu, feature_gates, .. } = self;
        let Self { container_runtime, extra_args, kernel_parameters, taints: _, .. } = self;
        if !cert_sans {
            requested.cert_sans.clone_from(&stored.cert_sans);
        }
        if !max_pods {
            requested.max_pods = stored.max_pods;
        }
        if !node_ports {
            requested.node_ports = stored.node_ports;
        }
        if !mtu {
            requested.mtu = stored.mtu;
        }
        if !kernel_parameters {
            requested.kernel_parameters.clone_from(&stored.kernel_parameters);
        }
        if !feature_gates {
            requested.feature_gates.clone_from(&stored.feature_gates);
        }
        if !container_runtime {
            requested.container_runtime.clone_from(&stored.container_runtime);
        }
        if !extra_args {
            requested.extra_args.clone_from(&stored.extra_args);
        }
    }
}

pub(crate) fn settings(
    declared: &DeclaredCluster,
    refusals: &mut Vec<Refusal>,
) -> Result<ClusterSettings, EngineError> {
    let settings = declared.settings().or_else(|error| {
        refusals.push(Refusal::new(RefusedField::LoadBalancer, "", error.to_string()));
        declared.settings_without_load_balancer()
    });
    settings.map_err(|error| EngineError::failed(crate::error::chain(&error)))
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;
    use serde_json::json;

    use super::*;

    fn taints(key: &str) -> BTreeSet<NodeTaint> {
        serde_json::from_value(json!([{"key": key, "effect": "NoSchedule"}])).unwrap()
    }

    #[test]
    fn hosts_in_flags_keep_the_taints_that_they_do_not_name() {
        let mut stored = cluster(&["10.0.0.1"], &["10.0.0.2", "10.0.0.3"]);
        stored.workers.iter_mut().for_each(|host| host.taints = taints("old"));
        let mut requested = cluster(&["10.0.0.1"], &["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
        requested.workers[1].taints = taints("new");
        let file = NamedSettings::by_file(&DeclaredCluster::default());
        let mut declared = requested.clone();
        file.keep_others(&mut declared, &stored);
        assert_eq!(declared, requested, "a file is complete");
        NamedSettings::by_flags(&DeclaredCluster::default(), "").keep_others(&mut requested, &stored);
        let found: Vec<_> = requested.nodes().map(|host| host.taints.clone()).collect();
        assert_eq!(found, [BTreeSet::new(), taints("old"), taints("new"), BTreeSet::new()]);
    }
}
