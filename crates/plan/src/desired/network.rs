//! Stage `network`: kube-proxy and flannel on every host, CoreDNS in the cluster.

use kubeon_render::paths::{current, etc, pki};
use kubeon_render::tools::network;
use kubeon_render::{config, manifests, systemd};
use kubeon_wire::{Check, File, Op};

use super::control::rights_id;
use super::join::{reach_api, ready_id};
use super::prepare::NET_TOOLS;
use super::{Daemon, DesiredStep, choose, client, pair, plain};
use crate::context::{Host, PlanContext};
use crate::input::ProxyMode;

/// Agents on every host, then DNS.
pub(crate) fn services(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    for host in &site.hosts {
        wishes.push(files(site, host));
        wishes.push(choose(site, host, "network", "choose", &["kube-proxy", "flannel"], &[]));
        let tools = tools(site, host);
        let needs: Vec<String> = tools.iter().map(|wish| wish.id.clone()).collect();
        wishes.extend(tools);
        wishes.push(kube_proxy(site, host).needs(needs.clone()));
        wishes.push(flannel(site, host).needs(needs));
    }
    wishes.push(dns(site));
}

/// nft and iptables of the bundle, where the host has none. The services look for its own first.
fn tools(site: &PlanContext<'_>, host: &Host<'_>) -> Vec<DesiredStep> {
    let wanted = site.spec().proxy_mode;
    if !host.lacks_tools(wanted) {
        return Vec::new();
    }
    let chosen = choose(site, host, "network", "choose-tools", &[NET_TOOLS], &[]);
    let scripts = network(site.arch(), host.facts.has_nftables);
    let file = |(path, text): (String, String)| File { mode: 0o755, ..plain(path, text) };
    let files = Op::Files { files: scripts.into_iter().map(file).collect() };
    let callable = DesiredStep::new("network", host, "tools", files)
        .title("make nft and iptables of the bundle callable")
        .because("the host has none")
        .needs([chosen.id.clone()]);
    vec![chosen, callable]
}

fn files(site: &PlanContext<'_>, host: &Host<'_>) -> DesiredStep {
    let spec = site.spec();
    let server = site.server(host);
    let (mode, nftables) = match host.proxy_mode(spec.proxy_mode) {
        ProxyMode::Nftables => ("nftables", true),
        ProxyMode::Iptables => ("iptables", false),
    };
    let as_user = |file: &str, user: &str, name: &str| {
        plain(
            etc(file),
            config::kubeconfig(&server, user, &pki(&format!("{name}.crt")), &pki(&format!("{name}.key"))),
        )
    };
    let pod_cidr = spec.pod_cidr.to_string();
    let mut files = vec![
        as_user("kube-proxy.conf", "system:kube-proxy", "kube-proxy"),
        as_user("flannel.conf", manifests::FLANNEL_USER, "flannel"),
        plain(
            etc("kube-proxy.yaml"),
            config::kube_proxy(host.name.as_str(), mode, &pod_cidr, host.facts.can_set_conntrack),
        ),
        plain(etc("flannel.json"), config::flannel(&pod_cidr, nftables)),
    ];
    files.extend(pair(&pki("kube-proxy"), client("kubernetes", "system:kube-proxy", &[])));
    files.extend(pair(&pki("flannel"), client("kubernetes", manifests::FLANNEL_USER, &[])));
    DesiredStep::new("network", host, "config", Op::Files { files })
        .title(format!("write keys and configuration of kube-proxy ({mode}) and flannel"))
        .because("the agents have no configuration")
        .needs([host.id("join/keys")])
}

fn kube_proxy(site: &PlanContext<'_>, host: &Host<'_>) -> DesiredStep {
    Daemon {
        stage: "network",
        what: "kube-proxy",
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
    .wish(host)
    .title("start kube-proxy")
    .needs(reach_api(site, host))
    .needs([ready_id(site, host)])
    .reads([host.id("network/config"), host.id("network/choose")])
}

fn flannel(site: &PlanContext<'_>, host: &Host<'_>) -> DesiredStep {
    Daemon {
        stage: "network",
        what: "flannel",
        unit_name: "flanneld.service",
        unit: systemd::flannel(host.name.as_str(), host.ip()),
        watches: vec![etc("flannel.json"), etc("flannel.conf"), pki("flannel.crt"), current("flannel")],
        ready: vec![Check::Path { path: "/run/flannel/subnet.env".to_owned() }],
    }
    .wish(host)
    .title("start flannel (vxlan)")
    .needs(reach_api(site, host))
    .needs([ready_id(site, host)])
    .reads([host.id("network/config"), host.id("network/choose")])
}

fn dns(site: &PlanContext<'_>) -> DesiredStep {
    let image = &site.intent.artifacts.images["coredns"].name;
    let objects = manifests::coredns(image, site.service_dns(), &site.spec().dns_domain);
    DesiredStep::new("network", site.first(), "dns", Op::Objects { objects })
        .title("apply CoreDNS")
        .because("the objects are absent")
        .needs([rights_id(site)])
}
