//! Stage `network`: kube-proxy and flannel on every host, CoreDNS in the cluster.

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_render::paths::{KUBELET_CLIENT, current, etc};
use kubeon_render::tools::network;
use kubeon_render::{config, manifests, systemd};
use kubeon_wire::{Check, File, Op};

use super::control::rights_id;
use super::hosts_file;
use super::join::{self, reach_api, ready_id};
use super::node_images;
use super::prepare::NET_TOOLS;
use super::step::{Daemon, DesiredStep, choose};
use super::{files, haproxy, takeover, updater};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::new("network");

/// The file that changes when the certificate of the kubelet comes from other keys.
const NODE_KEYS: &str = "node-keys";

fn kube_proxy_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kube-proxy")
}

/// The step that runs kube-proxy on a host; none if kubeon does not run it.
pub(super) fn kube_proxy_step(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    context.runs_kube_proxy().then(|| kube_proxy_id(host))
}

fn flannel_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "flannel")
}

/// The step that runs flannel on a host; none if kubeon does not run the network of the pods.
pub(super) fn flannel_step(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    context.runs_flannel().then(|| flannel_id(host))
}

/// The cluster-wide step that applies CoreDNS.
pub(crate) fn dns_id() -> StepId {
    StepId::of_cluster(STAGE, "dns")
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "config")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

fn choose_tools_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-tools")
}

fn tools_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "tools")
}

/// Agents on every host, then DNS.
pub(crate) fn services(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let mut left = Vec::new();
    for host in &context.hosts {
        steps.push(files(context, host));
        let agents = agents(context);
        steps.extend((!agents.is_empty()).then(|| choose(context, host, choose_id(host), &agents, &[])));
        let tools = tools(context, host);
        let needs: Vec<StepId> = tools.iter().map(|step| step.id.clone()).collect();
        steps.extend(tools);
        steps.extend(context.runs_kube_proxy().then(|| kube_proxy(context, host).needs(needs.clone())));
        steps.extend(context.runs_flannel().then(|| flannel(context, host).needs(needs)));
        left.extend(leave_other_way(context, host, steps));
    }
    updater::service(context, &left, steps);
    steps.push(dns(context));
    let proxies = context.hosts.iter().filter_map(|host| kube_proxy_step(context, host)).collect();
    steps.extend(takeover::removal(context, STAGE, proxies));
}

/// The parts of the agents that run on every host.
fn agents(context: &PlanContext<'_>) -> Vec<&'static str> {
    let kube_proxy = context.runs_kube_proxy().then_some("kube-proxy");
    kube_proxy.into_iter().chain(context.runs_flannel().then_some("flannel")).collect()
}

/// Removes the way to the API servers that the programs of a worker do not use any more. Returns the last step of it.
fn leave_other_way(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    steps: &mut Vec<DesiredStep>,
) -> Option<StepId> {
    let agents = || kube_proxy_step(context, host).into_iter().chain(flannel_step(context, host));
    let programs = || std::iter::once(ready_id(&host.name)).chain(agents());
    let startup = updater::startup_removal(context, host).map(|step| step.needs(programs()));
    let removed = startup.as_ref().map(|step| step.id.clone());
    steps.extend(startup);
    if context.workers_use_name() {
        steps.extend(haproxy::removal(context, host).map(|step| step.needs(programs())));
    } else if hosts_file::is_in_use(host) {
        steps.push(hosts_file::step(context, host).needs(programs()).needs(removed.clone()));
    }
    removed
}

/// Installs nft and iptables from the bundle if the host has none. The services prefer the programs of the
/// host.
fn tools(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<DesiredStep> {
    let wanted = context.spec().settings.proxy_mode;
    if !host.lacks_tools(wanted) {
        return Vec::new();
    }
    let selection = choose(context, host, choose_tools_id(host), &[NET_TOOLS], &[]);
    let mut scripts = network(context.arch(host), host.facts.has_nftables);
    if host.prefers_tools(wanted) {
        // The other programs of the host stay in use.
        scripts.retain(|(path, _)| path.ends_with("/nft"));
    }
    let file = |(path, text): (String, String)| File { mode: 0o755, ..files::config(path, text) };
    let files = Op::Files { files: scripts.into_iter().map(file).collect() };
    let install = DesiredStep::new(host, tools_id(host), files)
        .title("install nft and iptables from the bundle")
        .because(if host.prefers_tools(wanted) { "the host's nft is too old" } else { "the host has none" })
        .needs([selection.id.clone()]);
    vec![selection, install]
}

fn files(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = context.spec();
    let server = context.server(host);
    let mode = host.proxy_mode(spec.settings.proxy_mode);
    // The identity of the node: the API server lets it change its own node only, it ends with the node, and the
    // kubelet renews its certificate.
    let as_node = |file: &str| {
        files::config(etc(file), config::kubeconfig(&server, "node", KUBELET_CLIENT, KUBELET_CLIENT))
    };
    let pod_cidr = spec.settings.pod_cidr.to_string();
    let (proxy, flannel) = (context.runs_kube_proxy(), context.runs_flannel());
    let of_proxy = || {
        let set_conntrack = host.facts.can_set_conntrack;
        config::kube_proxy(host.name.as_str(), mode.as_str(), &pod_cidr, set_conntrack)
    };
    let of_flannel =
        || files::config(etc("flannel.json"), config::flannel(&pod_cidr, mode == ProxyMode::Nftables));
    // The node program reaches the API with it too.
    let mut files = vec![as_node("kube-proxy.conf")];
    files.extend(flannel.then(|| as_node("flannel.conf")));
    files.extend(proxy.then(|| files::config(etc("kube-proxy.yaml"), of_proxy())));
    files.extend(flannel.then(of_flannel));
    let keys = context.new_node_keys();
    files.extend(keys.map(|keys| files::config(etc(NODE_KEYS), format!("{keys}\n"))));
    DesiredStep::new(host, config_id(host), Op::Files { files })
        .title(if proxy {
            let and_flannel = if flannel { " and flannel" } else { "" };
            format!("write the configuration of kube-proxy ({mode}){and_flannel}")
        } else {
            "write the node's access to the API".to_owned()
        })
        .because("the agents have no configuration")
        .needs([join::keys_id(host)])
        // An agent that starts again reads them, so they must not lead to a load balancer that leads elsewhere.
        .needs(join::balanced_way(context, host))
        // The agents use the certificate of the kubelet: when it requests another one, they start again.
        .reads(keys.map(|_| join::identity_id(host)))
}

/// The paths whose change restarts an agent.
fn watches(context: &PlanContext<'_>, own: [String; 3]) -> Vec<String> {
    own.into_iter().chain(context.new_node_keys().map(|_| etc(NODE_KEYS))).collect()
}

fn kube_proxy(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    Daemon {
        id: kube_proxy_id(host),
        unit_name: "kube-proxy.service",
        unit: systemd::kube_proxy(host.prefers_tools(context.spec().settings.proxy_mode)),
        watches: watches(context, [etc("kube-proxy.yaml"), etc("kube-proxy.conf"), current("kube-proxy")]),
        ready: vec![Check::Tcp { address: std::net::Ipv4Addr::LOCALHOST, port: 10256 }],
    }
    .into_step(host)
    .title("start kube-proxy")
    .needs(reach_api(context, host))
    .needs([ready_id(&host.name)])
    .reads([config_id(host), choose_id(host)])
}

fn flannel(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let wanted = context.spec().settings.proxy_mode;
    Daemon {
        id: flannel_id(host),
        unit_name: "flanneld.service",
        unit: systemd::flannel(&systemd::FlannelUnit {
            node: host.name.as_str(),
            address: host.ip(),
            prefer_tools: host.prefers_tools(wanted),
            uses_iptables: host.proxy_mode(wanted) != ProxyMode::Nftables,
        }),
        watches: watches(context, [etc("flannel.json"), etc("flannel.conf"), current("flannel")]),
        ready: vec![Check::Path { path: "/run/flannel/subnet.env".to_owned() }],
    }
    .into_step(host)
    .title("start flannel (vxlan)")
    .needs(reach_api(context, host))
    .needs(node_images::before_pods(context, host, &flannel_id(host)))
    .needs([ready_id(&host.name)])
    .reads([config_id(host), choose_id(host)])
}

fn dns(context: &PlanContext<'_>) -> DesiredStep {
    let image = &context.intent.artifacts.images["coredns"].name;
    let op = |other_resolver| Op::Objects {
        objects: manifests::coredns(&manifests::CoreDns {
            image,
            address: context.service_dns(),
            domain: context.spec().settings.dns_domain.as_str(),
            other_resolver,
            several_hosts: context.spec().nodes().nth(1).is_some(),
        }),
    };
    let other_resolver: Vec<&ObservedHost<'_>> =
        context.hosts.iter().filter(|host| context.resolver(host).differs_from_system()).collect();
    // The name servers of a host that was not observed are unknown: the recorded choice stays.
    let stays = || !context.observes_all_nodes() && context.cluster_records(&dns_id(), &op(true));
    let op = op(!other_resolver.is_empty() || stays());
    // A pod keeps the name servers with which it was created: on hosts whose kubelet gets another file, the
    // pods of CoreDNS are replaced after their kubelet uses it.
    let joined = other_resolver.into_iter().filter(|host| host.has_executed(&join::kubelet_id(host)));
    let kubelets: Vec<StepId> = joined.map(join::kubelet_id).collect();
    DesiredStep::of_cluster(context, dns_id(), op)
        .title("apply CoreDNS")
        .because("the objects are absent")
        .needs([rights_id()])
        .needs(kubelets)
        .needs(images_on_nodes(context))
}

/// The steps that import the image of CoreDNS on nodes that may run a pod of it now. The first pods of a new cluster wait for no node.
fn images_on_nodes(context: &PlanContext<'_>) -> Vec<StepId> {
    let is_node =
        |host: &&ObservedHost<'_>| context.takes_over(host) || host.has_executed(&join::kubelet_id(host));
    context.hosts.iter().filter(is_node).map(|host| join::image_id("coredns", host)).collect()
}
