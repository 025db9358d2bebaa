//! Stage `control`: the API server, the controller manager and the scheduler on every master, and the
//! rights that the cluster's own agents need.

use std::net::Ipv4Addr;

use kubeon_render::paths::{current, etc, pki};
use kubeon_render::{config, manifests, systemd};
use kubeon_wire::{CertificateAuthority, Check, File, Leaf, Op, SecretRef, Usage};

use super::etcd::member_id;
use super::files::{authority, client, pair, plain, secret, server};
use super::prepare::hosts_id;
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of this stage.
pub(crate) const STAGE: StageName = StageName::Control;

/// The cluster-wide step after which agents may use the API.
pub(crate) fn rights_id(site: &PlanContext<'_>) -> StepId {
    site.first().id(STAGE, "rights")
}

/// The step that runs the API server of a host.
pub(crate) fn apiserver_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "apiserver")
}

/// The step that runs the controller manager of a host.
pub(crate) fn controller_manager_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "controller-manager")
}

/// The step that runs the scheduler of a host.
pub(crate) fn scheduler_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "scheduler")
}

/// The first check of an external load balancer.
pub(crate) fn load_balancer_id(site: &PlanContext<'_>) -> StepId {
    site.first().id(STAGE, "load-balancer")
}

fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "config")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

/// Keys, configuration, programs and services of every master.
pub(crate) fn plane(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    let mut before: Vec<StepId> = Vec::new();
    for host in site.masters() {
        wishes.push(keys(site, host));
        wishes.push(configuration(site, host));
        wishes.push(programs(site, host));
        let mut api = apiserver(site, host);
        if host.did(&api.id) {
            api.needs.extend_from_slice(&before);
            before.push(api.id.clone());
        }
        wishes.push(api);
        wishes.push(controller_manager(site, host));
        wishes.push(scheduler(site, host));
    }
    wishes.push(rights(site));
    wishes.extend(load_balancer(site));
}

fn programs(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    choose(site, host, choose_id(host), &["kube-apiserver", "kube-controller-manager", "kube-scheduler"], &[])
}

fn keys(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let mut files = vec![
        authority(pki("ca.crt"), CertificateAuthority::Kubernetes),
        secret(pki("ca.key"), SecretRef::CaKey { ca: CertificateAuthority::Kubernetes }),
        authority(pki("front-proxy-ca.crt"), CertificateAuthority::FrontProxy),
        authority(pki("kubelet-serving-ca.crt"), CertificateAuthority::KubeletServing),
        secret(pki("sa.key"), SecretRef::ServiceAccountKey),
        secret(pki("sa.pub"), SecretRef::ServiceAccountPublicKey),
    ];
    let pairs: [(&str, Leaf); 9] = [
        ("apiserver", api_leaf(site, host)),
        (
            "apiserver-kubelet-client",
            client(CertificateAuthority::Kubernetes, "kube-apiserver-kubelet-client", &[]),
        ),
        ("apiserver-etcd-client", client(CertificateAuthority::Etcd, "kube-apiserver-etcd-client", &[])),
        ("front-proxy-client", client(CertificateAuthority::FrontProxy, "front-proxy-client", &[])),
        (
            "controller-manager",
            client(CertificateAuthority::Kubernetes, "system:kube-controller-manager", &[]),
        ),
        (
            "controller-manager-serving",
            server(CertificateAuthority::Kubernetes, "kube-controller-manager", host, Usage::Server),
        ),
        ("scheduler", client(CertificateAuthority::Kubernetes, "system:kube-scheduler", &[])),
        (
            "scheduler-serving",
            server(CertificateAuthority::Kubernetes, "kube-scheduler", host, Usage::Server),
        ),
        ("admin", client(CertificateAuthority::Kubernetes, "kubernetes-admin", &["system:masters"])),
    ];
    files.extend(pairs.into_iter().flat_map(|(name, leaf)| pair(&pki(name), leaf)));
    DesiredStep::new(host, keys_id(host), Op::Files { files })
        .title("write the control plane's keys and certificates")
        .because("the control plane has no keys")
}

/// The certificate of the API server, for every name and address by which clients may reach it.
fn api_leaf(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> Leaf {
    let spec = site.spec();
    let mut leaf = server(CertificateAuthority::Kubernetes, "kube-apiserver", host, Usage::Server);
    leaf.dns_names.extend(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned));
    leaf.dns_names.push(format!("kubernetes.default.svc.{}", spec.settings.dns_domain));
    leaf.dns_names.push(spec.settings.api_domain.to_string());
    leaf.dns_names.push(format!("{}.{}", spec.name, spec.settings.api_domain));
    leaf.addresses.push(site.service_api());
    leaf.addresses.extend(site.masters().map(ObservedHost::ip));
    leaf.addresses.extend(spec.settings.load_balancer.external().map(|(address, _)| address));
    for san in &spec.settings.cert_sans {
        match san.ip() {
            Some(address) => leaf.addresses.push(address),
            None => leaf.dns_names.push(san.to_string()),
        }
    }
    leaf.addresses.sort_unstable();
    leaf.addresses.dedup();
    leaf
}

fn configuration(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let as_user = |file: &str, user: &str, name: &str, server: &str| -> File {
        let text =
            config::kubeconfig(server, user, &pki(&format!("{name}.crt")), &pki(&format!("{name}.key")));
        plain(etc(file), text)
    };
    // These programs use the API server beside them: it is the newest thing they may rely on.
    let own = "https://127.0.0.1:6443";
    let files = vec![
        plain(etc("authentication.yaml"), config::authentication()),
        as_user("controller-manager.conf", "system:kube-controller-manager", "controller-manager", own),
        as_user("scheduler.conf", "system:kube-scheduler", "scheduler", own),
        as_user("admin.conf", "kubernetes-admin", "admin", &site.server(host)),
    ];
    DesiredStep::new(host, config_id(host), Op::Files { files })
        .title("write the control plane's configuration")
        .because("the control plane has no configuration")
}

fn apiserver(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = site.spec();
    let service_cidr = spec.settings.service_cidr.to_string();
    let unit = systemd::apiserver(&systemd::ApiServerUnit {
        address: host.ip(),
        service_cidr: &service_cidr,
        node_ports: (spec.settings.node_ports.first(), spec.settings.node_ports.last()),
        dns_domain: spec.settings.dns_domain.as_str(),
        feature_gates: &spec.settings.feature_gates,
    });
    let files =
        ["ca.crt", "apiserver.crt", "apiserver-etcd-client.crt", "apiserver-kubelet-client.crt", "sa.pub"];
    Daemon {
        id: apiserver_id(host),
        unit_name: "kube-apiserver.service",
        unit,
        watches: files
            .iter()
            .map(|file| pki(file))
            .chain([pki("front-proxy-client.crt"), etc("authentication.yaml"), current("kube-apiserver")])
            .collect(),
        ready: vec![api_ready()],
    }
    .into_step(host)
    .title(format!("start kube-apiserver {}", spec.version))
    .because("/readyz does not answer")
    .needs([hosts_id(host), member_id(host)])
    .reads([keys_id(host), config_id(host), choose_id(host)])
}

/// The API server of the host itself is ready.
pub(crate) fn api_ready() -> Check {
    Check::Https {
        address: Ipv4Addr::LOCALHOST,
        port: 6443,
        path: "/readyz".to_owned(),
        ca_file: pki("ca.crt"),
        certificate_file: Some(pki("admin.crt")),
        key_file: Some(pki("admin.key")),
    }
}

fn controller_manager(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = site.spec();
    let (pods, services) = (spec.settings.pod_cidr.to_string(), spec.settings.service_cidr.to_string());
    let unit = systemd::controller_manager(&systemd::ControllerManager {
        cluster: spec.name.as_str(),
        pod_cidr: &pods,
        service_cidr: &services,
        node_mask_size: spec.settings.node_mask_size,
        feature_gates: &spec.settings.feature_gates,
    });
    follower(host, controller_manager_id(host), "kube-controller-manager.service", unit, 10257)
}

fn scheduler(site: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let unit = systemd::scheduler(&site.spec().settings.feature_gates);
    follower(host, scheduler_id(host), "kube-scheduler.service", unit, 10259)
}

/// A program that uses the API server of its own host.
fn follower(host: &ObservedHost<'_>, id: StepId, unit_name: &str, unit: String, port: u16) -> DesiredStep {
    let what = id.what().to_owned();
    let part = unit_name.trim_end_matches(".service");
    Daemon {
        id,
        unit_name,
        unit,
        watches: vec![
            pki("ca.crt"),
            pki(&format!("{what}.crt")),
            pki(&format!("{what}-serving.crt")),
            etc(&format!("{what}.conf")),
            current(part),
        ],
        ready: vec![Check::Tcp { address: Ipv4Addr::LOCALHOST, port }],
    }
    .into_step(host)
    .needs([apiserver_id(host)])
    .reads([keys_id(host), config_id(host), choose_id(host)])
}

fn rights(site: &PlanContext<'_>) -> DesiredStep {
    let first = site.first();
    DesiredStep::new(first, rights_id(site), Op::Objects { objects: manifests::rights() })
        .title("apply the rights of kubelets, joining hosts and flannel")
        .because("the objects are absent")
        .needs([apiserver_id(first)])
}

/// The first check of the load balancer, after every API server behind it is ready.
fn load_balancer(site: &PlanContext<'_>) -> Option<DesiredStep> {
    let look = leads_to_masters(site, load_balancer_id(site), site.first())?;
    Some(look.because("workers reach the API through it").needs(site.masters().map(apiserver_id)))
}

/// Checks that the host reaches the API servers through an external load balancer: it must answer with a certificate of
/// this cluster. The title says what the load balancer must do, because it is shown when the check fails.
pub(crate) fn leads_to_masters(
    site: &PlanContext<'_>,
    id: StepId,
    host: &ObservedHost<'_>,
) -> Option<DesiredStep> {
    let (address, port) = site.spec().settings.load_balancer.external()?;
    let masters: Vec<String> = site.masters().map(|master| format!("{}:6443", master.ip())).collect();
    let check = Check::Https {
        address,
        port,
        path: "/readyz".to_owned(),
        ca_file: pki("ca.crt"),
        certificate_file: None,
        key_file: None,
    };
    let title = format!(
        "the load balancer {address}:{port} forwards TCP from {} to {}",
        host.name,
        masters.join(", ")
    );
    let op = Op::Await { checks: vec![check] };
    Some(DesiredStep::new(host, id, op).title(title).check(None))
}
