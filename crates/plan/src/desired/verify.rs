//! Stage `verify`: checks that the cluster works. It changes nothing but records of checks.

use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{HostName, Version};
use kubeon_render::paths::{KUBELET_CLIENT, pki};
use kubeon_wire::{Check, Op};

use super::control::{api_ready, apiserver_id, controller_manager_id, scheduler_id};
use super::control_plane::ControlPlaneProgram;
use super::join::{image_id, kubelet_id, ready_id};
use super::network::{self, flannel_step, kube_proxy_step};
use super::step::DesiredStep;
use super::{pods, restore, unused_checks, updater};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("verify");

const NODE: &str = "node";
const CONTROL_PLANE: &str = "control-plane";

/// The port of the API server of a master, and of the haproxy of a worker.
const LOCAL_API_PORT: u16 = 6443;
/// The port at which a kubelet reports its health on its own host.
const KUBELET_HEALTH_PORT: u16 = 10248;

fn api_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "api")
}

/// The check that the host of a node resolves names through the pods of DNS.
pub(crate) fn names_id(node: &HostName) -> StepId {
    StepId::new(STAGE, "resolve", node)
}

fn dns_id() -> StepId {
    StepId::of_cluster(STAGE, "dns")
}

/// Whether the step is the proof that a node works.
pub(crate) fn is_node_proof(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == NODE
}

/// The proof that a node works.
pub(crate) fn node_id(node: &HostName) -> StepId {
    StepId::new(STAGE, NODE, node)
}

/// Whether the step is the proof that the control plane of a master works.
pub(crate) fn is_control_plane_proof(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == CONTROL_PLANE
}

/// The proof that the control plane of a master works.
pub(crate) fn control_plane_id(node: &HostName) -> StepId {
    StepId::new(STAGE, CONTROL_PLANE, node)
}

/// The control plane of a master works: its API server is ready, which needs etcd. Its other programs proved that they work when they
/// started.
pub(crate) fn control_plane_works() -> Check {
    api_ready()
}

/// The node of a host works after its services were started. The kubelet's own identity may read its Lease. `version` is that of the
/// kubelet, if it is started.
pub(crate) fn node_works(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    version: Option<Version>,
) -> Check {
    let (address, port) = match &context.spec().settings.load_balancer {
        LoadBalancer::Updater if !host.is_master() => {
            let served = context.serves_services();
            let address = if served { context.api_service() } else { context.executor().ip() };
            (address, context.spec().settings.api_port)
        }
        balancer => {
            let external = balancer.external().filter(|_| !host.is_master());
            external.unwrap_or((Ipv4Addr::LOCALHOST, LOCAL_API_PORT))
        }
    };
    let master = host.is_master().then(|| pods::unit_name(context, ControlPlaneProgram::ApiServer.part()));
    Check::NodeWorks {
        node: host.name.clone(),
        version,
        units: node_units(context).map(str::to_owned).chain(master).collect(),
        health_port: KUBELET_HEALTH_PORT,
        address,
        port,
        ca_file: pki("ca.crt"),
        identity_file: KUBELET_CLIENT.to_owned(),
        may_lack_network: context.awaits_network,
    }
}

/// The services that a node needs.
fn node_units(context: &PlanContext<'_>) -> impl Iterator<Item = &'static str> + use<> {
    let kube_proxy = context.runs_kube_proxy().then_some("kube-proxy.service");
    let flannel = context.runs_flannel().then_some("flanneld.service");
    ["containerd.service", "kubelet.service"].into_iter().chain(kube_proxy).chain(flannel)
}

/// Checks that API servers are ready, that CoreDNS is available and that every host resolves names.
pub(crate) fn cluster(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    for host in context.masters() {
        let unmet = host.facts.cluster.as_ref().filter(|cluster| !cluster.api_ready && !cluster.api_unknown);
        steps.push(
            DesiredStep::new(host, api_id(host), Op::Await { checks: vec![api_ready()] })
                .title(format!("the API server on {} is ready", host.name))
                .because("it was changed")
                .within(60)
                .needs([apiserver_id(host), controller_manager_id(host), scheduler_id(host)])
                .check(unmet.map(|_| "the API server does not answer /readyz".to_owned())),
        );
    }
    // The pods of a snapshot are on nodes that may not exist any more: the plan after this one removes these first. Without a
    // network, the pods of DNS do not start.
    if !restore::begins(context) && !context.awaits_network {
        dns(context, steps);
        names(context, steps);
    }
    for host in &context.hosts {
        steps.extend(updater::proof(context, host, STAGE, kube_proxy_step(context, host)));
        steps.extend(tokens(context, host));
    }
    unused_checks::forget(context, STAGE, steps);
}

/// CoreDNS has all its pods. In a restored cluster, the record of the check is that of the cluster before.
fn dns(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let restored = context.intent.restore.is_some().then(|| "the cluster comes from a snapshot".to_owned());
    let available =
        Check::DeploymentAvailable { namespace: "kube-system".to_owned(), name: "coredns".to_owned() };
    steps.push(
        DesiredStep::of_cluster(context, dns_id(), Op::Await { checks: vec![available] })
            .title("CoreDNS is available")
            .because("it was changed")
            .within(180)
            // Changes of hosts repeat only the check that names are resolved on the host.
            .reads([network::dns_id()])
            .needs(context.hosts.iter().flat_map(|host| {
                [ready_id(&host.name), image_id("coredns", host)]
                    .into_iter()
                    .chain(flannel_step(context, host))
            }))
            .check(restored),
    );
}

/// The pods of a host have tokens of the new keys. Then the old keys may go.
fn tokens(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let check = Check::PodTokens { unit: "kubelet.service".to_owned() };
    context.renews().then(|| {
        DesiredStep::new(host, host.id(STAGE, "tokens"), Op::Await { checks: vec![check] })
            .title(format!("the pods on {} have tokens of the new keys", host.name))
            .because("their tokens were made with the old keys")
            .within(300)
            .needs([ready_id(&host.name)])
            .reads([kubelet_id(host)])
            .check(None)
    })
}

/// Every host resolves names, and its packets reach the pods of DNS on other hosts.
fn names(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let name = format!("kubernetes.default.svc.{}.", context.spec().settings.dns_domain);
    let has_overlay = context.spec().nodes().nth(1).is_some();
    for host in &context.hosts {
        let mut checks = Vec::new();
        if has_overlay {
            // The first one: through the Service address, a failure would not name the other host.
            checks.push(Check::Overlay { node: host.name.clone(), name: name.clone() });
        }
        checks.push(Check::Dns { server: context.service_dns(), name: name.clone() });
        let resolver = context.resolver(host);
        let upstream = !resolver.upstream.is_empty();
        if upstream {
            checks.push(Check::DnsUpstream { server: context.service_dns(), resolv_conf: resolver.path() });
        }
        let also = match (has_overlay, upstream) {
            (true, true) => ", also across hosts and for names outside of the cluster",
            (true, false) => ", also across hosts",
            (false, true) => ", also for names outside of the cluster",
            (false, false) => "",
        };
        steps.push(
            DesiredStep::new(host, names_id(&host.name), Op::Await { checks })
                .title(format!("DNS answers on {}{also}", host.name))
                .because("a component that DNS depends on was changed")
                .within(120)
                .needs([dns_id()])
                // Changes of other hosts do not repeat this check.
                .reads([network::dns_id()])
                .reads(kube_proxy_step(context, host))
                .reads(flannel_step(context, host))
                .check(None),
        );
    }
}
