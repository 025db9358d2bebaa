//! Stage `network`: kube-proxy and flannel on every host, CoreDNS in the cluster.

use kubeon_api::kubernetes_cluster::ProxyMode;
use kubeon_render::paths::{current, etc, pki};
use kubeon_render::tools::network;
use kubeon_render::{config, manifests, systemd};
use kubeon_wire::{CertificateAuthority, Check, File, Op};

use super::control::rights_id;
use super::files::{client, pair, plain};
use super::join::{self, reach_api, ready_id};
use super::prepare::NET_TOOLS;
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = StageName::Network;

/// The step that runs kube-proxy on a host.
pub(crate) fn kube_proxy_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kube-proxy")
}

/// The step that runs flannel on a host.
pub(crate) fn flannel_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "flannel")
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
    for host in &context.hosts {
        steps.push(files(context, host));
        steps.push(choose(context, host, choose_id(host), &["kube-proxy", "flannel"], &[]));
        let tools = tools(context, host);
        let needs: Vec<StepId> = tools.iter().map(|step| step.id.clone()).collect();
        steps.extend(tools);
        steps.push(kube_proxy(context, host).needs(needs.clone()));
        steps.push(flannel(context, host).needs(needs));
    }
    steps.push(dns(context));
}

/// Installs nft and iptables from the bundle if the host has none. The services prefer the programs of the
/// host.
fn tools(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<DesiredStep> {
    let wanted = context.spec().settings.proxy_mode;
    if !host.lacks_tools(wanted) {
        return Vec::new();
    }
    let selection = choose(context, host, choose_tools_id(host), &[NET_TOOLS], &[]);
    let scripts = network(context.arch(), host.facts.has_nftables);
    let file = |(path, text): (String, String)| File { mode: 0o755, ..plain(path, text) };
    let files = Op::Files { files: scripts.into_iter().map(file).collect() };
    let install = DesiredStep::new(host, tools_id(host), files)
        .title("install nft and iptables from the bundle")
        .because("the host has none")
        .needs([selection.id.clone()]);
    vec![selection, install]
}

fn files(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = context.spec();
    let server = context.server(host);
    let mode = host.proxy_mode(spec.settings.proxy_mode);
    let as_user = |file: &str, user: &str, name: &str| {
        plain(
            etc(file),
            config::kubeconfig(&server, user, &pki(&format!("{name}.crt")), &pki(&format!("{name}.key"))),
        )
    };
    let pod_cidr = spec.settings.pod_cidr.to_string();
    let mut files = vec![
        as_user("kube-proxy.conf", "system:kube-proxy", "kube-proxy"),
        as_user("flannel.conf", manifests::FLANNEL_USER, "flannel"),
        plain(
            etc("kube-proxy.yaml"),
            config::kube_proxy(host.name.as_str(), mode.as_str(), &pod_cidr, host.facts.can_set_conntrack),
        ),
        plain(etc("flannel.json"), config::flannel(&pod_cidr, mode == ProxyMode::Nftables)),
    ];
    files
        .extend(pair(&pki("kube-proxy"), client(CertificateAuthority::Kubernetes, "system:kube-proxy", &[])));
    files.extend(pair(
        &pki("flannel"),
        client(CertificateAuthority::Kubernetes, manifests::FLANNEL_USER, &[]),
    ));
    DesiredStep::new(host, config_id(host), Op::Files { files })
        .title(format!("write keys and configuration of kube-proxy ({mode}) and flannel"))
        .because("the agents have no configuration")
        .needs([join::keys_id(host)])
}

fn kube_proxy(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    Daemon {
        id: kube_proxy_id(host),
        unit_name: "kube-proxy.service",
        unit: systemd::kube_proxy(),
        watches: vec![
            etc("kube-proxy.yaml"),
            etc("kube-proxy.conf"),
            pki("kube-proxy.crt"),
            current("kube-proxy"),
        ],
        ready: vec![Check::Tcp { address: std::net::Ipv4Addr::LOCALHOST, port: 10256 }],
    }
    .into_step(host)
    .title("start kube-proxy")
    .needs(reach_api(context, host))
    .needs([ready_id(&host.name)])
    .reads([config_id(host), choose_id(host)])
}

fn flannel(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    Daemon {
        id: flannel_id(host),
        unit_name: "flanneld.service",
        unit: systemd::flannel(host.name.as_str(), host.ip()),
        watches: vec![etc("flannel.json"), etc("flannel.conf"), pki("flannel.crt"), current("flannel")],
        ready: vec![Check::Path { path: "/run/flannel/subnet.env".to_owned() }],
    }
    .into_step(host)
    .title("start flannel (vxlan)")
    .needs(reach_api(context, host))
    .needs([ready_id(&host.name)])
    .reads([config_id(host), choose_id(host)])
}

fn dns(context: &PlanContext<'_>) -> DesiredStep {
    let image = &context.intent.artifacts.images["coredns"].name;
    let objects =
        manifests::coredns(image, context.service_dns(), context.spec().settings.dns_domain.as_str());
    DesiredStep::of_cluster(context, dns_id(), Op::Objects { objects })
        .title("apply CoreDNS")
        .because("the objects are absent")
        .needs([rights_id()])
}
