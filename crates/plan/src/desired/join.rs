//! Stage `join`: containerd, images and kubelet on every host, haproxy on the workers. The stage waits until
//! the node of each host is Ready.

use std::collections::{BTreeMap, HashSet};

use kubeon_api::HostName;
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_render::paths::{CONTAINERD_SOCKET, KUBELET_BOOTSTRAP, KUBELET_CLIENT, current, etc, pki};
use kubeon_render::{config, manifests, static_pods, systemd};
use kubeon_wire::{CertificateAuthority, Check, Leaf, Op, Usage};

use super::arguments::checked;
use super::control::{
    self, apiserver_id, controller_manager_id, load_balancer_check, rights_id, scheduler_id,
};
use super::files::{self, authority, client, pair, server};
use super::haproxy;
use super::hosts_file::{self, hosts_id};
use super::join_stage::KUBELET;
use super::kubelet_version;
use super::node_images;
use super::pods;
use super::prepare::{MASTER_COMMANDS, RUNTIME_COMMANDS, kernel_id};
use super::registry;
use super::step::{Daemon, DesiredStep, choose};
use super::{takeover, updater};
use crate::context::{ObservedHost, PlanContext};
use crate::kernel_defaults;
use crate::step_id::StepId;

pub(crate) use super::join_stage::{
    STAGE, image_id, keys_id, kubelet_id, kubelet_of, runtime_id, runtime_of,
};

const IDENTITY: &str = "identity";

/// The step after which the node exists and is Ready.
pub(crate) fn ready_id(node: &HostName) -> StepId {
    node_step_id("ready", node)
}

/// The step that sets or removes the taint of a master.
pub(crate) fn taint_id(node: &HostName) -> StepId {
    node_step_id("taint", node)
}

/// What the ids of the steps that set declared taints begin with, before the name of the node.
const TAINTS: &str = "taints";

fn labels_id(node: &HostName) -> StepId {
    node_step_id("labels", node)
}

/// The step that makes a drained node schedulable again.
pub(crate) fn uncordon_id(node: &HostName) -> StepId {
    node_step_id("uncordon", node)
}

/// The id of a step about a node. Any master may execute it; the node records it.
fn node_step_id(what: &str, node: &HostName) -> StepId {
    StepId::of_cluster(STAGE, format!("{what}-{node}"))
}

/// Whether the step runs a kubelet.
pub(crate) fn is_kubelet(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == KUBELET
}

/// The step after which the kubelet of a host requests a new certificate.
pub(crate) fn identity_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, IDENTITY)
}

/// Whether the step removes the certificate of a kubelet. It stops the kubelet.
pub(crate) fn is_identity(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == IDENTITY
}

fn runtime_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "runtime-config")
}

fn choose_runtime_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-runtime")
}

/// The step that checks whether a worker reaches an external load balancer.
pub(super) fn load_balancer_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "load-balancer")
}

fn kubelet_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kubelet-config")
}

fn choose_kubelet_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-kubelet")
}

/// The steps after which the programs of a host reach the API server.
pub(crate) fn reach_api(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    let mut needs = vec![rights_id()];
    if !host.is_master() && context.workers_use_name() {
        needs.push(hosts_id(host));
    }
    match context.spec().settings.load_balancer {
        _ if host.is_master() => needs.push(apiserver_id(host)),
        LoadBalancer::Haproxy => needs.push(haproxy::loaded_id(host)),
        LoadBalancer::External { .. } | LoadBalancer::Updater => needs.extend(balanced_way(context, host)),
    }
    needs
}

/// The steps after which the name in the configuration of a worker's programs leads to an API server. Without a name, none.
pub(super) fn balanced_way(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    match context.spec().settings.load_balancer {
        _ if host.is_master() => Vec::new(),
        LoadBalancer::Haproxy => Vec::new(),
        LoadBalancer::External { .. } => vec![load_balancer_id(host)],
        LoadBalancer::Updater => updater::way_ids(host).into(),
    }
}

/// For each host: container runtime, connection to the API server, kubelet, labels and taints.
pub(crate) fn nodes(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let masters = context.master_addresses();
    let tainted = nodes_with_taints(context);
    let minor = context.hosts.iter().any(|host| kubelet_version::may_change_minor(context, host));
    let api_servers = kubelet_version::before(context, minor);
    for host in &context.hosts {
        runtime(context, host, steps);
        steps.extend(node_images::before_kubelet(context, host));
        let identity = identity(context, host);
        let before = identity.as_ref().map(|step| step.id.clone());
        steps.extend(identity);
        // The keys contain the certificate with which the kubelet requests its own, and that one lives for an hour.
        steps.push(keys(context, host).reads(before));
        match context.spec().settings.load_balancer {
            _ if host.is_master() => {}
            LoadBalancer::Haproxy => haproxy::to_masters(context, host, &masters, steps),
            LoadBalancer::External { .. } => steps.extend(reach_load_balancer(context, host)),
            LoadBalancer::Updater => updater::startup(context, host, steps),
        }
        steps.extend(takeover::additions(context, host));
        kubelet(context, host, &api_servers, steps);
        steps.extend(node_images::after_kubelet(context, host));
        let certificate = certificate(context, host);
        let ready = ready(context, host).needs(certificate.as_ref().map(|step| step.id.clone()));
        steps.extend(certificate);
        steps.push(ready);
        steps.extend(taints(context, host, &tainted));
        steps.push(labels(context, host));
        steps.extend(uncordon(context, host));
        if host.is_master() {
            steps.push(taint(context, host));
        }
    }
}

fn runtime(context: &PlanContext<'_>, host: &ObservedHost<'_>, steps: &mut Vec<DesiredStep>) {
    let text = config::containerd(&config::ContainerdHost {
        pause: &context.artifacts(host).images["pause"].name,
        systemd_cgroup: host.cgroup_v2(),
        restrict_oom_score_adj: !host.facts.can_sys_resource,
        writes_network: context.runs_flannel(),
    });
    let declared_mtu = context.spec().settings.mtu;
    let pod_mtu = declared_mtu.unwrap_or_else(|| host.largest_pod_mtu());
    let own_mtu = context.runs_flannel().then_some(pod_mtu);
    let template = context.runs_flannel().then(|| etc("cni.json.template"));
    let mut files = vec![files::config("/etc/containerd/config.toml".to_owned(), text)];
    files.extend(template.iter().map(|path| files::config(path.clone(), config::cni_template(pod_mtu))));
    steps.push(
        DesiredStep::new(host, runtime_config_id(host), Op::Files { files })
            .title(match declared_mtu {
                Some(bytes) => format!("write containerd's configuration, packets of pods of {bytes} bytes"),
                None => "write containerd's configuration".to_owned(),
            })
            .because("containerd has no configuration"),
    );
    let registry = registry::step(context, host, STAGE);
    let registry_id = registry.as_ref().map(|step| step.id.clone());
    steps.extend(registry);
    let parts = ["containerd", "runc", "cni-plugins"];
    steps.push(choose(context, host, choose_runtime_id(host), &parts, RUNTIME_COMMANDS));
    steps.push(
        Daemon {
            id: runtime_id(host),
            unit_name: "containerd.service",
            unit: systemd::containerd(&registry::runtime_environment(context), own_mtu),
            watches: ["/etc/containerd/config.toml".to_owned()]
                .into_iter()
                .chain(template)
                .chain([current("containerd")])
                .collect(),
            ready: vec![Check::Socket { path: CONTAINERD_SOCKET.to_owned() }],
        }
        .into_step(host)
        .needs([kernel_id(host)])
        .needs(registry_id)
        .reads([runtime_config_id(host), choose_runtime_id(host)]),
    );
}

/// Lets the kubelet get its certificate from the new keys: it would use the old one until it ends.
fn identity(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let keys = context.new_node_keys()?;
    // Until then a kubelet could get a certificate of the old keys again. A master whose kubelet comes before its static pods waits for
    // none of them: before any plan that renews certificates, all controller managers sign with the new keys.
    let is_first = host.is_master() && pods::kubelet_is_first(context, host);
    let signers = context.masters().filter(|_| !is_first).map(controller_manager_id);
    let step = DesiredStep::new(host, identity_id(host), Op::ForgetIdentity { keys });
    Some(
        step.title("remove the kubelet's certificate of the old keys")
            .because("the old keys issued it")
            .needs(signers),
    )
}

fn keys(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    // On a master, the `control` stage writes the certificate of the authority: each file has only one
    // writer.
    let mut files = if host.is_master() {
        Vec::new()
    } else {
        vec![authority(pki("ca.crt"), CertificateAuthority::Kubernetes)]
    };
    let user = format!("system:node:{}", host.name);
    let serving = server(CertificateAuthority::KubeletServing, &user, host, Usage::Server);
    files.extend(pair(&pki("kubelet-serving"), serving));
    // Short-lived: the kubelet uses it once to request its own certificate, which it then renews by itself. As the identity of
    // its node, it cannot request a certificate for another node.
    let bootstrap = Leaf { hours: 1, ..client(CertificateAuthority::Kubernetes, &user, &[manifests::NODES]) };
    let name = KUBELET_BOOTSTRAP.trim_end_matches(".crt");
    files.extend(pair(name, bootstrap));
    let bootstrap_config =
        config::kubeconfig(&context.server(host), "bootstrap", KUBELET_BOOTSTRAP, &format!("{name}.key"));
    files.push(files::config(etc("bootstrap-kubelet.conf"), bootstrap_config));
    DesiredStep::new(host, keys_id(host), Op::Files { files })
        .title("write the kubelet's keys")
        .because("the kubelet has no keys")
}

/// Checks that the worker reaches an external load balancer, before its kubelet starts. On a worker that joined before, the
/// API's name leads there only after a master reached it.
fn reach_load_balancer(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<DesiredStep> {
    let Some((title, op)) = load_balancer_check(context, host) else { return Vec::new() };
    let name = hosts_file::is_in_use(host)
        .then(|| hosts_file::step(context, host).needs([control::load_balancer_id()]));
    let before = [control::load_balancer_id(), hosts_id(host), keys_id(host)];
    let check = DesiredStep::new(host, load_balancer_id(host), op).title(title).check(None);
    let check = check.because("its programs reach the API through it").needs(before);
    name.into_iter().chain([check]).collect()
}

/// The kubelet of a host, after the API servers.
fn kubelet(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    api_servers: &[StepId],
    steps: &mut Vec<DesiredStep>,
) {
    let spec = context.spec();
    let resolver = context.resolver(host);
    let resolv_conf = resolver.path();
    let text = config::kubelet(&config::Kubelet {
        dns: context.service_dns(),
        dns_domain: spec.settings.dns_domain.as_str(),
        max_pods: spec.settings.max_pods,
        cgroup_v2: host.cgroup_v2(),
        protect_kernel_defaults: kernel_defaults::obstacle(host.facts).is_none(),
        // The taint step below decides whether the taint stays. This may change during the life of the
        // cluster.
        control_plane_taint: host.is_master(),
        resolv_conf: resolver.differs_from_system().then_some(&*resolv_conf),
        feature_gates: &spec.settings.feature_gates,
        runs_static_pods: context.runs_static_pods(),
    });
    let mut files = vec![files::config("/var/lib/kubelet/config.yaml".to_owned(), text)];
    files.extend(
        resolver.written().map(|servers| files::config(resolv_conf.clone(), config::resolv_conf(&servers))),
    );
    files.extend(context.runs_static_pods().then(|| {
        let (path, text) = static_pods::folder_mark();
        files::readable(path, text)
    }));
    let more = if resolver.differs_from_system() {
        format!(", name servers of {resolv_conf}")
    } else {
        String::new()
    };
    steps.push(
        DesiredStep::new(host, kubelet_config_id(host), Op::Files { files })
            .title(format!("write the kubelet's configuration{more}"))
            .because("the kubelet has no configuration")
            // A kubelet of kubeadm reads it too when it starts again.
            .needs(context.takes_over(host).then(|| [keys_id(host), kernel_id(host)]).into_iter().flatten()),
    );
    // A node that exists stays Ready while its kubelet requests a new certificate, so nothing else waits for it. A kubelet that comes
    // before its API server cannot have it yet: there, the step `certificate` waits.
    let started = match context.new_node_keys() {
        Some(_) if !context.runs_static_pods() => KUBELET_CLIENT.to_owned(),
        _ => etc("kubelet.conf"),
    };
    let tools = if host.is_master() { MASTER_COMMANDS } else { &[] };
    let parts: &[&'static str] = if host.is_master() { &["kubelet", "kubectl"] } else { &["kubelet"] };
    let known = checked(context, host);
    // A restart of the host would start the chosen version, so the choice waits with the kubelet.
    let reason = kubelet_version::wait_reason(context, host);
    // Of a master, it must run before the API server among its pods.
    let is_first = host.is_master() && pods::kubelet_is_first(context, host);
    let choice = choose(context, host, choose_kubelet_id(host), parts, tools);
    steps.push(choice.needs(known.clone()).waits(reason.clone()));
    steps.push(
        Daemon {
            id: kubelet_id(host),
            unit_name: "kubelet.service",
            unit: systemd::kubelet(
                host.name.as_str(),
                host.ip(),
                &context.server(host),
                &spec.settings.extra_args.kubelet,
            ),
            watches: vec![
                "/var/lib/kubelet/config.yaml".to_owned(),
                pki("kubelet-serving.crt"),
                current("kubelet"),
            ],
            ready: vec![Check::Path { path: started }],
        }
        .into_step(host)
        .title(format!("start kubelet {} and request its certificate", context.node_version()))
        .because("the cluster does not know the host")
        .needs([kernel_id(host), runtime_id(host), image_id("pause", host)])
        .needs(known)
        .needs(takeover::additions_id(context, host))
        .needs(before_kubelet(context, host))
        .needs(api_servers.iter().filter(|_| !is_first).cloned())
        .reads([kubelet_config_id(host), keys_id(host), choose_kubelet_id(host)])
        .waits(reason),
    );
}

/// The steps before a kubelet starts. One that runs the static pods with which its host reaches the API starts without it.
fn before_kubelet(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    if !pods::kubelet_is_first(context, host) {
        return reach_api(context, host).into_iter().chain(running_pods(context, host)).collect();
    }
    if host.is_master() {
        // The authority of its clients.
        return vec![control::keys_id(host)];
    }
    let haproxy = haproxy::loaded_id(host);
    reach_api(context, host).into_iter().filter(|id| *id != haproxy).collect()
}

/// The steps that change static pods of a host whose kubelet runs: it must not restart meanwhile.
fn running_pods(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    match context.spec().settings.load_balancer {
        _ if !context.runs_static_pods() => Vec::new(),
        _ if host.is_master() => vec![controller_manager_id(host), scheduler_id(host)],
        LoadBalancer::Haproxy => vec![haproxy::service_id(host)],
        LoadBalancer::External { .. } | LoadBalancer::Updater => Vec::new(),
    }
}

/// The steps after which a kubelet that started before the static pods of its host reaches the API.
fn way_of_pods(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    if context.runs_static_pods() { reach_api(context, host) } else { Vec::new() }
}

/// Waits for the kubelet's certificate. Restored data has nodes that seem to be Ready before their kubelets have one, and a node stays
/// Ready while its kubelet requests one of new keys.
fn certificate(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let restored = context.intent.restore.is_some() && !host.has_executed(&kubelet_id(host));
    let of_new_keys = context.runs_static_pods() && context.new_node_keys().is_some();
    if !restored && !of_new_keys {
        return None;
    }
    let checks = vec![Check::Path { path: KUBELET_CLIENT.to_owned() }];
    let step = DesiredStep::new(host, host.id(STAGE, "certificate"), Op::Await { checks })
        .title(format!("the kubelet on {} has its certificate", host.name))
        .within(180)
        .needs([rights_id()])
        .needs(way_of_pods(context, host))
        .needs(context.masters().map(controller_manager_id));
    Some(if of_new_keys {
        step.because("it requests one of the new keys").reads([kubelet_id(host)]).check(None)
    } else {
        step.needs([kubelet_id(host)]).once("its node comes from the snapshot".to_owned())
    })
}

fn ready(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let may_lack_network = context.awaits_network;
    let check = Check::NodesReady { nodes: vec![host.name.clone()], may_lack_network };
    let state = if may_lack_network { "has joined, without a network of pods" } else { "is Ready" };
    DesiredStep::of_node(context, &host.name, ready_id(&host.name), Op::Await { checks: vec![check] })
        .title(format!("node {} {state}", host.name))
        .because("its agents were changed")
        .within(180)
        .reads([kubelet_id(host)])
        .needs([rights_id()])
        .needs(way_of_pods(context, host))
        .needs(context.masters().map(controller_manager_id))
        .check(not_ready(context, host))
}

/// Why the node is not Ready, as reported by the cluster; `None` if it is Ready, as far as it can be, or was not reported.
fn not_ready(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<String> {
    match context.node(&host.name)? {
        None => Some("the cluster does not know the node".to_owned()),
        Some(node) if !context.is_up(node) => Some(format!("the node is not Ready: {}", node.reason)),
        Some(_) => None,
    }
}

fn labels(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let mut labels: BTreeMap<String, String> = host.spec.labels.clone();
    let role = if host.is_master() { "control-plane" } else { "worker" };
    labels.insert(format!("node-role.kubernetes.io/{role}"), String::new());
    let object = manifests::node_labels(host.name.as_str(), &labels);
    DesiredStep::of_node(context, &host.name, labels_id(&host.name), Op::Objects { objects: vec![object] })
        .title(format!("label node {}", host.name))
        .because("the node has no role")
        .needs([ready_id(&host.name)])
}

/// The ids of the recorded steps that set declared taints.
fn nodes_with_taints<'a>(context: &PlanContext<'a>) -> HashSet<&'a str> {
    let prefix = format!("{STAGE}/{TAINTS}-");
    let ids = context.cluster_steps().unwrap_or_default().iter().map(|entry| entry.id.as_str());
    ids.filter(|id| id.starts_with(&prefix)).collect()
}

/// The declared taints of a node, as soon as the node exists: until then it takes no pods. A node that had some keeps the step,
/// which removes them.
fn taints(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    tainted: &HashSet<&str>,
) -> Option<DesiredStep> {
    let (node, declared) = (&host.name, &host.spec.taints);
    if declared.is_empty() && tainted.is_empty() {
        return None;
    }
    let id = node_step_id(TAINTS, node);
    if declared.is_empty() && !tainted.contains(id.to_string().as_str()) {
        return None;
    }
    let texts: Vec<String> = declared.iter().map(ToString::to_string).collect();
    let (title, because) = if texts.is_empty() {
        (format!("remove the declared taints of node {node}"), "none is declared any more")
    } else {
        (format!("taint node {node} with {}", texts.join(", ")), "the node has no declared taints")
    };
    let op = Op::NodeTaints { node: node.clone(), taints: declared.iter().cloned().collect() };
    let step = DesiredStep::of_node(context, node, id, op).title(title).because(because);
    Some(step.within(120).needs([kubelet_id(host), rights_id()]))
}

/// Uncordons a returning worker, because its removal cordoned it. Other cordoned nodes are not changed: users
/// cordoned them.
fn uncordon(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let schedulable = match context.node(&host.name) {
        Some(Some(node)) => !node.unschedulable,
        Some(None) => true,
        None => false,
    };
    let op = Op::Uncordon { node: host.name.clone() };
    (context.intent.returns(host.address()) && !schedulable).then(|| {
        DesiredStep::of_node(context, &host.name, uncordon_id(&host.name), op)
            .title(format!("uncordon node {}", host.name))
            .needs([ready_id(&host.name)])
            .once(format!("the removal of {} was cancelled", host.name))
    })
}

fn taint(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let present = context.taints_masters();
    let title = if present { "taint master" } else { "remove the taint of master" };
    let op = Op::Taint { node: host.name.clone(), present };
    DesiredStep::of_node(context, &host.name, taint_id(&host.name), op)
        .title(format!("{title} {}", host.name))
        .because(if present { "ordinary pods run on the workers" } else { "the cluster has no workers" })
        .needs([ready_id(&host.name)])
}
