//! Stage `join`: containerd, images and kubelet on every host, haproxy on the workers, and the wait until
//! the cluster has taken each of them in.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::HostName;
use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_render::paths::{CONTAINERD_SOCKET, KUBELET_BOOTSTRAP, current, etc, pki};
use kubeon_render::{config, manifests, systemd};
use kubeon_wire::{CertificateAuthority, Check, Leaf, Op, Usage};

use super::control::{self, apiserver_id, controller_manager_id, leads_to_masters, rights_id};
use super::files::{authority, client, pair, plain, server};
use super::prepare::{NODE_IMAGES, hosts_id, kernel_id};
use super::step::{Daemon, DesiredStep, choose, part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of this stage.
pub(crate) const STAGE: StageName = StageName::Join;

/// The step after which the cluster has the node and it is Ready.
pub(crate) fn ready_id(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> StepId {
    about(site, "ready", &host.name)
}

/// The step after which a master keeps ordinary pods off, or takes them.
pub(crate) fn taint_id(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> StepId {
    about(site, "taint", &host.name)
}

fn labels_id(site: &PlanContext<'_>, name: &HostName) -> StepId {
    about(site, "labels", name)
}

/// A step about a node that the first master does.
fn about(site: &PlanContext<'_>, what: &str, node: &HostName) -> StepId {
    site.first().id(STAGE, &format!("{what}-{node}"))
}

/// The steps that are about a worker's node and are remembered elsewhere than on its host.
pub(crate) fn about_node(site: &PlanContext<'_>, name: &HostName) -> Vec<StepId> {
    vec![about(site, "ready", name), labels_id(site, name)]
}

/// The step that runs the kubelet of a host.
pub(crate) fn kubelet_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kubelet")
}

/// The step that writes the keys of a host's kubelet.
pub(crate) fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}

/// The step that gives an image of the role to containerd.
pub(crate) fn image_id(role: &str, host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, &format!("image-{role}"))
}

fn runtime_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "runtime")
}

fn runtime_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "runtime-config")
}

fn choose_runtime_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-runtime")
}

fn haproxy_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy")
}

fn haproxy_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-config")
}

fn choose_haproxy_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-haproxy")
}

fn load_balancer_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "load-balancer")
}

fn kubelet_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "kubelet-config")
}

fn choose_kubelet_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-kubelet")
}

/// The steps after which a host's programs reach the API.
pub(crate) fn reach_api(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    let mut needs = vec![rights_id(site), hosts_id(host)];
    match site.spec().settings.load_balancer {
        _ if host.master => needs.push(apiserver_id(host)),
        LoadBalancer::Haproxy => needs.push(haproxy_id(host)),
        LoadBalancer::External { .. } => needs.push(load_balancer_id(host)),
        // Refused before a plan is made.
        LoadBalancer::Updater => {}
    }
    needs
}

/// Runtime, way to the API, kubelet, label: host by host.
pub(crate) fn nodes(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    let masters = site.master_addresses();
    let haproxy = site.spec().settings.load_balancer == LoadBalancer::Haproxy;
    for host in &site.hosts {
        runtime(site, host, wishes);
        wishes.push(keys(site, host));
        if haproxy && !host.master {
            way_to_masters(site, host, &masters, wishes);
        }
        if !host.master {
            wishes.extend(load_balancer(site, host));
        }
        kubelet(site, host, wishes);
        wishes.push(ready(site, host));
        wishes.push(labels(site, host));
        wishes.extend(uncordon(site, host));
        if host.master {
            wishes.push(taint(site, host));
        }
    }
}

fn runtime(site: &PlanContext<'_>, host: &ObservedHost<'_>, wishes: &mut Vec<DesiredStep>) {
    let text = config::containerd(&config::ContainerdHost {
        pause: &site.intent.artifacts.images["pause"].name,
        systemd_cgroup: host.cgroup_v2(),
        restrict_oom_score_adj: !host.facts.can_sys_resource,
    });
    let files = vec![
        plain("/etc/containerd/config.toml".to_owned(), text),
        plain(etc("cni.json.template"), config::cni_template(host.pod_mtu())),
    ];
    wishes.push(
        DesiredStep::new(host, runtime_config_id(host), Op::Files { files })
            .title("write containerd's configuration")
            .because("containerd has no configuration"),
    );
    let parts = ["containerd", "runc", "cni-plugins"];
    wishes.push(choose(site, host, choose_runtime_id(host), &parts, &[("containerd", "ctr")]));
    wishes.push(
        Daemon {
            id: runtime_id(host),
            unit_name: "containerd.service",
            unit: systemd::containerd(),
            watches: vec![
                "/etc/containerd/config.toml".to_owned(),
                etc("cni.json.template"),
                current("containerd"),
            ],
            ready: vec![Check::Socket { path: CONTAINERD_SOCKET.to_owned() }],
        }
        .into_step(host)
        .needs([kernel_id(host)])
        .reads([runtime_config_id(host), choose_runtime_id(host)]),
    );
    for role in NODE_IMAGES {
        let image = &site.intent.artifacts.images[*role];
        let op = Op::Image { name: image.name.clone(), part: image.part.digest.clone() };
        wishes.push(
            DesiredStep::new(host, image_id(role, host), op)
                .title(format!("import {}", image.name))
                .because("containerd does not have it")
                .within(180)
                .needs([part_id(&format!("image-{role}"), host), runtime_id(host)]),
        );
    }
}

fn keys(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    // A master has the authority's certificate among the keys of its control plane: a file has one writer.
    let mut files = if host.master {
        Vec::new()
    } else {
        vec![authority(pki("ca.crt"), CertificateAuthority::Kubernetes)]
    };
    let serving = server(
        CertificateAuthority::KubeletServing,
        &format!("system:node:{}", host.name),
        host,
        Usage::Server,
    );
    files.extend(pair(&pki("kubelet-serving"), serving));
    // Short-lived: good for asking once for the certificate that the kubelet renews by itself from then on.
    let bootstrap = Leaf {
        hours: 1,
        ..client(
            CertificateAuthority::Kubernetes,
            &format!("system:bootstrap:{}", host.name),
            &[manifests::BOOTSTRAP_GROUP],
        )
    };
    let name = KUBELET_BOOTSTRAP.trim_end_matches(".crt");
    files.extend(pair(name, bootstrap));
    let bootstrap_config =
        config::kubeconfig(&site.server(host), "bootstrap", KUBELET_BOOTSTRAP, &format!("{name}.key"));
    files.push(plain(etc("bootstrap-kubelet.conf"), bootstrap_config));
    DesiredStep::new(host, keys_id(host), Op::Files { files })
        .title("write the kubelet's keys")
        .because("the kubelet has no keys")
}

fn way_to_masters(
    site: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    masters: &[(String, Ipv4Addr)],
    wishes: &mut Vec<DesiredStep>,
) {
    wishes.push(choose(site, host, choose_haproxy_id(host), &["haproxy"], &[]));
    let files = vec![plain(etc("haproxy.cfg"), config::haproxy(masters))];
    wishes.push(
        DesiredStep::new(host, haproxy_config_id(host), Op::Files { files })
            .title("write haproxy's configuration")
            .because("haproxy does not know the masters"),
    );
    wishes.push(
        Daemon {
            id: haproxy_id(host),
            unit_name: "haproxy.service",
            unit: systemd::haproxy(site.arch()),
            watches: vec![etc("haproxy.cfg"), pki("ca.crt"), current("haproxy")],
            ready: vec![Check::Tcp { address: Ipv4Addr::LOCALHOST, port: 6443 }],
        }
        .into_step(host)
        .title("start haproxy to the masters")
        .reads([haproxy_config_id(host), choose_haproxy_id(host)])
        .needs([keys_id(host)]),
    );
}

/// A load balancer that is not managed must be reached from every worker, before its kubelet tries to.
fn load_balancer(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let look = leads_to_masters(site, load_balancer_id(host), host)?;
    let before = [control::load_balancer_id(site), hosts_id(host), keys_id(host)];
    Some(look.because("its programs reach the API through it").needs(before))
}

fn kubelet(site: &PlanContext<'_>, host: &ObservedHost<'_>, wishes: &mut Vec<DesiredStep>) {
    let spec = site.spec();
    let text = config::kubelet(&config::Kubelet {
        dns: site.service_dns(),
        dns_domain: spec.settings.dns_domain.as_str(),
        max_pods: spec.settings.max_pods,
        cgroup_v2: host.cgroup_v2(),
        // Whether it stays is decided below, and may change while the cluster lives.
        control_plane_taint: host.master,
        feature_gates: &spec.settings.feature_gates,
    });
    let files = vec![plain("/var/lib/kubelet/config.yaml".to_owned(), text)];
    wishes.push(
        DesiredStep::new(host, kubelet_config_id(host), Op::Files { files })
            .title("write the kubelet's configuration")
            .because("the kubelet has no configuration"),
    );
    let tools: &[(&str, &str)] = if host.master { &[("kubectl", "kubectl")] } else { &[] };
    let parts: &[&str] = if host.master { &["kubelet", "kubectl"] } else { &["kubelet"] };
    wishes.push(choose(site, host, choose_kubelet_id(host), parts, tools));
    wishes.push(
        Daemon {
            id: kubelet_id(host),
            unit_name: "kubelet.service",
            unit: systemd::kubelet(host.name.as_str(), host.ip()),
            watches: vec![
                "/var/lib/kubelet/config.yaml".to_owned(),
                pki("kubelet-serving.crt"),
                current("kubelet"),
            ],
            ready: vec![Check::Path { path: etc("kubelet.conf") }],
        }
        .into_step(host)
        .title(format!("start kubelet {}, ask for its certificate", spec.version))
        .because("the cluster does not know the host")
        .needs([runtime_id(host), image_id("pause", host)])
        .needs(reach_api(site, host))
        .reads([kubelet_config_id(host), keys_id(host), choose_kubelet_id(host)]),
    );
}

fn ready(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let op = Op::Await { checks: vec![Check::NodesReady { nodes: vec![host.name.clone()] }] };
    DesiredStep::new(site.first(), ready_id(site, host), op)
        .title(format!("node {} is Ready", host.name))
        .because("its agents were changed")
        .within(180)
        .needs([kubelet_id(host), rights_id(site)])
        .needs(site.masters().map(controller_manager_id))
        .check(not_ready(site, host))
}

/// What the cluster says when it does not have the node as Ready; `None` when all is well or untold.
fn not_ready(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<String> {
    match site.node(&host.name)? {
        None => Some("the cluster does not know the node".to_owned()),
        Some(node) if !node.ready => Some(format!("the node is not Ready: {}", node.reason)),
        Some(_) => None,
    }
}

fn labels(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let mut labels: BTreeMap<String, String> = host.spec.labels.clone();
    let role = if host.master { "control-plane" } else { "worker" };
    labels.insert(format!("node-role.kubernetes.io/{role}"), String::new());
    let object = manifests::node_labels(host.name.as_str(), &labels);
    DesiredStep::new(site.first(), labels_id(site, &host.name), Op::Objects { objects: vec![object] })
        .title(format!("label node {}", host.name))
        .because("the node has no role")
        .needs([ready_id(site, host)])
}

/// A worker that was about to leave and stays was cordoned on the way out; others are cordoned by people.
fn uncordon(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let open = match site.node(&host.name) {
        Some(Some(node)) => !node.unschedulable,
        Some(None) => true,
        None => false,
    };
    let op = Op::Uncordon { node: host.name.clone() };
    (site.intent.returns(host.address()) && !open).then(|| {
        DesiredStep::new(site.first(), about(site, "uncordon", &host.name), op)
            .title(format!("let pods onto node {} again", host.name))
            .needs([ready_id(site, host)])
            .once(format!("{} was about to leave the cluster and stays", host.name))
    })
}

fn taint(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let present = site.taints_masters();
    let title = if present { "keep ordinary pods off" } else { "let ordinary pods onto" };
    let op = Op::Taint { node: host.name.clone(), present };
    DesiredStep::new(site.first(), taint_id(site, host), op)
        .title(format!("{title} {}", host.name))
        .because(if present { "workers take them" } else { "there are no workers" })
        .needs([ready_id(site, host)])
}
