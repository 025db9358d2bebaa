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

/// The name of this stage.
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
pub(crate) fn dns_id(site: &PlanContext<'_>) -> StepId {
    site.first().id(STAGE, "dns")
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "config")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

/// Agents on every host, then DNS.
pub(crate) fn services(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    for host in &site.hosts {
        wishes.push(files(site, host));
        wishes.push(choose(site, host, choose_id(host), &["kube-proxy", "flannel"], &[]));
        let tools = tools(site, host);
        let needs: Vec<StepId> = tools.iter().map(|wish| wish.id.clone()).collect();
        wishes.extend(tools);
        wishes.push(kube_proxy(site, host).needs(needs.clone()));
        wishes.push(flannel(site, host).needs(needs));
    }
    wishes.push(dns(site));
}

/// nft and iptables of the bundle, where the host has none. The services look for its own first.
fn tools(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<DesiredStep> {
    let wanted = site.spec().settings.proxy_mode;
    if !host.lacks_tools(wanted) {
        return Vec::new();
    }
    let chosen = choose(site, host, host.id(STAGE, "choose-tools"), &[NET_TOOLS], &[]);
    let scripts = network(site.arch(), host.facts.has_nftables);
    let file = |(path, text): (String, String)| File { mode: 0o755, ..plain(path, text) };
    let files = Op::Files { files: scripts.into_iter().map(file).collect() };
    let callable = DesiredStep::new(host, host.id(STAGE, "tools"), files)
        .title("make nft and iptables of the bundle callable")
        .because("the host has none")
        .needs([chosen.id.clone()]);
    vec![chosen, callable]
}

fn files(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = site.spec();
    let server = site.server(host);
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

fn kube_proxy(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
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
    .needs(reach_api(site, host))
    .needs([ready_id(site, host)])
    .reads([config_id(host), choose_id(host)])
}

fn flannel(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    Daemon {
        id: flannel_id(host),
        unit_name: "flanneld.service",
        unit: systemd::flannel(host.name.as_str(), host.ip()),
        watches: vec![etc("flannel.json"), etc("flannel.conf"), pki("flannel.crt"), current("flannel")],
        ready: vec![Check::Path { path: "/run/flannel/subnet.env".to_owned() }],
    }
    .into_step(host)
    .title("start flannel (vxlan)")
    .needs(reach_api(site, host))
    .needs([ready_id(site, host)])
    .reads([config_id(host), choose_id(host)])
}

fn dns(site: &PlanContext<'_>) -> DesiredStep {
    let image = &site.intent.artifacts.images["coredns"].name;
    let objects = manifests::coredns(image, site.service_dns(), site.spec().settings.dns_domain.as_str());
    DesiredStep::new(site.first(), dns_id(site), Op::Objects { objects })
        .title("apply CoreDNS")
        .because("the objects are absent")
        .needs([rights_id(site)])
}
