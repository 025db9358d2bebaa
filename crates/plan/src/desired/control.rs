//! Stage `control`: the API server, the controller manager and the scheduler on every master, and the
//! RBAC objects of the agents on the hosts.

use std::net::Ipv4Addr;

use kubeon_api::HostName;
use kubeon_render::paths::{SIGNING_CERTIFICATE, etc, pki};
use kubeon_render::static_pods::{self, KUBEADM};
use kubeon_render::{api_server, config, manifests, systemd};
use kubeon_wire::{CertificateAuthority, Check, File, Leaf, Op, SecretRef, Usage};

use super::arguments::checked;
use super::control_plane::{ControlPlaneProgram, arguments, choose_id, version, version_text};
use super::encryption;
use super::etcd::{member_id, reach_ids};
use super::files::{self, authority, client, pair, secret, server};
use super::pods::{self, before_kubeadm, pod_host, watched_program};
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::declaration;
use crate::step_id::StepId;

pub(crate) use super::control_plane::{
    STAGE, api_ready, api_ready_at, apiserver_id, controller_manager_id, scheduler_id,
};

const KEYS: &str = "keys";

/// The cluster-wide step after which agents may use the API.
pub(crate) fn rights_id() -> StepId {
    StepId::of_cluster(STAGE, "rights")
}

/// The first check of an external load balancer.
pub(crate) fn load_balancer_id() -> StepId {
    StepId::of_cluster(STAGE, "load-balancer")
}

/// The step that writes the keys of the control plane on a host.
pub(crate) fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, KEYS)
}

/// The same by the name of the node.
pub(crate) fn keys_of(node: &HostName) -> StepId {
    StepId::new(STAGE, KEYS, node)
}

/// Whether the step writes the keys of the control plane. A running API server uses new certificates at once.
pub(crate) fn is_keys(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == KEYS
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "config")
}

fn signing_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "signing")
}

/// Keys, configuration, programs and services of every master. Existing API servers are changed one after
/// another, and each must be ready before the next one gets new keys.
pub(crate) fn plane(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let mut before: Vec<StepId> = Vec::new();
    // An API server that uses members on other hosts does not stop with one of them.
    let stops_with_member = context.masters().nth(1).is_some() && !context.has_external_etcd();
    for host in context.masters() {
        let mut keys = keys(context, host);
        // A kubelet that does not run and comes before static pods needs them. Other members of etcd, and so API servers, may wait for
        // these pods.
        if host.has_executed(&keys.id) && !pods::kubelet_is_first(context, host) {
            keys.needs.extend_from_slice(&before);
        }
        steps.push(keys);
        steps.push(signing(host));
        steps.push(configuration(context, host));
        steps.push(encryption::configuration(context, host));
        let known = checked(context, host);
        steps.push(programs(context, host).needs(known.clone()));
        let mut api = apiserver(context, host)
            .needs(known.clone())
            .stopped_by(stops_with_member.then(|| member_id(host)));
        if host.has_executed(&api.id) {
            api.needs.extend_from_slice(&before);
            before.push(api.id.clone());
        }
        steps.push(api);
        steps.push(encryption::proof(host));
        steps.push(controller_manager(context, host).needs(known.clone()));
        steps.push(scheduler(context, host).needs(known));
    }
    steps.extend(encryption::rewrite(context));
    steps.push(rights(context));
    steps.push(declaration(context));
    steps.extend(load_balancer(context));
}

fn programs(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let programs = ControlPlaneProgram::ALL.map(ControlPlaneProgram::part);
    let parts: &[&'static str] = if context.runs_static_pods() { &[KUBEADM] } else { &programs };
    choose(context, host, choose_id(host), parts, &[])
}

fn keys(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let mut files = vec![
        authority(pki("ca.crt"), CertificateAuthority::Kubernetes),
        secret(pki("ca.key"), SecretRef::CaKey { ca: CertificateAuthority::Kubernetes }),
        authority(pki("front-proxy-ca.crt"), CertificateAuthority::FrontProxy),
        authority(pki("kubelet-serving-ca.crt"), CertificateAuthority::KubeletServing),
        secret(pki("sa.key"), SecretRef::ServiceAccountKey),
        secret(pki("sa.pub"), SecretRef::ServiceAccountPublicKey),
    ];
    let pairs: [(&str, Leaf); 9] = [
        ("apiserver", api_leaf(context, host)),
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

/// The certificate with which the controller manager signs: it accepts no file with several certificates.
fn signing(host: &ObservedHost<'_>) -> DesiredStep {
    let certificate = SecretRef::SigningCertificate { ca: CertificateAuthority::Kubernetes };
    let files = vec![File { mode: 0o644, ..secret(SIGNING_CERTIFICATE.to_owned(), certificate) }];
    DesiredStep::new(host, signing_id(host), Op::Files { files })
        .title("write the certificate that signs")
        .because("the controller manager cannot sign")
        .needs([keys_id(host)])
}

/// The certificate of the API server, for every name and address by which clients may reach this API server.
/// The addresses of the other masters are not among them: a new master changes no other certificate.
fn api_leaf(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Leaf {
    let spec = context.spec();
    let mut leaf = server(CertificateAuthority::Kubernetes, "kube-apiserver", host, Usage::Server);
    leaf.dns_names.extend(["kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned));
    leaf.dns_names.push(format!("kubernetes.default.svc.{}", spec.settings.dns_domain));
    leaf.dns_names.push(spec.settings.api_domain.to_string());
    leaf.dns_names.push(format!("{}.{}", spec.name, spec.settings.api_domain));
    leaf.addresses.push(context.service_api());
    leaf.addresses.extend(spec.settings.load_balancer.address(spec.settings.service_cidr));
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

fn configuration(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    // These programs use the API server of their own host, because they must not be newer than their API
    // server.
    let server = context.server(host);
    let as_user = |file: &str, user: &str, name: &str| -> File {
        let text =
            config::kubeconfig(&server, user, &pki(&format!("{name}.crt")), &pki(&format!("{name}.key")));
        files::config(etc(file), text)
    };
    let files = vec![
        files::config(etc("admission.yaml"), api_server::admission()),
        files::config(etc("webhooks.kubeconfig"), api_server::webhook_login()),
        files::config(etc("audit-policy.yaml"), api_server::audit_policy()),
        files::config(etc("authentication.yaml"), api_server::authentication()),
        as_user("controller-manager.conf", "system:kube-controller-manager", "controller-manager"),
        as_user("scheduler.conf", "system:kube-scheduler", "scheduler"),
        as_user("admin.conf", "kubernetes-admin", "admin"),
    ];
    DesiredStep::new(host, config_id(host), Op::Files { files })
        .title("write the control plane's configuration")
        .because("the control plane has no configuration")
        // The programs of kubeadm read it too when they start, and have other keys until then.
        .needs(context.takes_over(host).then(|| keys_id(host)))
}

fn apiserver(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = context.spec();
    let service_cidr = spec.settings.service_cidr.to_string();
    let members = spec.etcd_hosts.iter().map(|host| host.cluster_address().ip());
    let etcd: Vec<Ipv4Addr> =
        if spec.has_external_etcd() { members.collect() } else { vec![Ipv4Addr::LOCALHOST] };
    let api = systemd::ApiServerUnit {
        address: host.ip(),
        etcd: &etcd,
        service_cidr: &service_cidr,
        node_ports: (spec.settings.node_ports.first(), spec.settings.node_ports.last()),
        dns_domain: spec.settings.dns_domain.as_str(),
        feature_gates: &spec.settings.feature_gates,
    };
    let extra = arguments(context, &spec.settings.extra_args.kube_apiserver);
    let unit = if context.runs_static_pods() {
        static_pods::apiserver(&pod_host(host, version(context)), &api, &extra)
    } else {
        systemd::apiserver(&api, &extra)
    };
    let part = ControlPlaneProgram::ApiServer.part();
    let files =
        ["ca.crt", "apiserver.crt", "apiserver-etcd-client.crt", "apiserver-kubelet-client.crt", "sa.pub"];
    Daemon {
        id: apiserver_id(host),
        unit_name: &pods::unit_name(context, part),
        unit,
        watches: files
            .iter()
            .map(|file| pki(file))
            .chain(
                ["admission.yaml", "audit-policy.yaml", "authentication.yaml", "webhooks.kubeconfig"]
                    .map(etc),
            )
            .chain([pki("front-proxy-client.crt")])
            .chain(watched_program(context, part))
            .collect(),
        ready: vec![api_ready()],
    }
    .into_step(host)
    .title(format!("start kube-apiserver {}", version_text(context)))
    .because("/readyz does not answer")
    .needs(before_kubeadm(context, host, part))
    .needs(reach_ids(context, host))
    .needs([encryption::configuration_id(host)])
    .reads([keys_id(host), config_id(host), choose_id(host)])
}

fn controller_manager(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let spec = context.spec();
    let pod_cidr = spec.settings.pod_cidr.to_string();
    let service_cidr = spec.settings.service_cidr.to_string();
    let manager = systemd::ControllerManager {
        cluster: spec.name.as_str(),
        pod_cidr: &pod_cidr,
        service_cidr: &service_cidr,
        node_mask_size: spec.settings.node_mask_size,
        feature_gates: &spec.settings.feature_gates,
    };
    let extra = arguments(context, &spec.settings.extra_args.kube_controller_manager);
    let unit = if context.runs_static_pods() {
        static_pods::controller_manager(&pod_host(host, version(context)), &manager, &extra)
    } else {
        systemd::controller_manager(&manager, &extra)
    };
    let mut step = api_client(context, host, ControlPlaneProgram::ControllerManager, unit);
    if let Op::Service { watches, .. } = &mut step.op {
        watches.push(SIGNING_CERTIFICATE.to_owned());
    }
    step.reads([signing_id(host)])
}

fn scheduler(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let settings = &context.spec().settings;
    let extra = arguments(context, &settings.extra_args.kube_scheduler);
    let unit = if context.runs_static_pods() {
        static_pods::scheduler(&pod_host(host, version(context)), &settings.feature_gates, &extra)
    } else {
        systemd::scheduler(&settings.feature_gates, &extra)
    };
    api_client(context, host, ControlPlaneProgram::Scheduler, unit)
}

/// A program that uses the API server of its own host.
fn api_client(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    program: ControlPlaneProgram,
    unit: String,
) -> DesiredStep {
    let name = program.short_name();
    Daemon {
        id: program.id(host),
        unit_name: &pods::unit_name(context, program.part()),
        unit,
        watches: [
            pki("ca.crt"),
            pki(&format!("{name}.crt")),
            pki(&format!("{name}-serving.crt")),
            etc(&format!("{name}.conf")),
        ]
        .into_iter()
        .chain(watched_program(context, program.part()))
        .collect(),
        ready: vec![Check::Tcp { address: Ipv4Addr::LOCALHOST, port: program.port() }],
    }
    .into_step(host)
    .needs(before_kubeadm(context, host, program.part()))
    .needs([apiserver_id(host)])
    .reads([keys_id(host), config_id(host), choose_id(host)])
}

fn rights(context: &PlanContext<'_>) -> DesiredStep {
    DesiredStep::of_cluster(context, rights_id(), Op::Objects { objects: manifests::rights() })
        .title("apply the RBAC objects of kubelets, joining hosts and flannel")
        .because("the objects are absent")
        .needs([apiserver_id(context.executor())])
}

/// The declaration of the cluster in an object of its own, for a control machine that lost its state. No step reads this one, so
/// another declaration restarts nothing by itself. It is written early: the object says what is requested, as the state does.
fn declaration(context: &PlanContext<'_>) -> DesiredStep {
    let id = StepId::of_cluster(STAGE, "declaration");
    DesiredStep::of_cluster(context, id, Op::Objects { objects: vec![declaration::object(context)] })
        .title("store the declaration of the cluster in the cluster")
        .because("the object is absent")
        .needs([apiserver_id(context.executor())])
}

/// The first check of the load balancer, after every API server behind it is ready.
fn load_balancer(context: &PlanContext<'_>) -> Option<DesiredStep> {
    let (title, op) = load_balancer_check(context, context.executor())?;
    let check = DesiredStep::of_cluster(context, load_balancer_id(), op).title(title).check(None);
    // Which masters answer does not change the check.
    let check = check.because("workers reach the API through it").reads([rights_id()]);
    Some(check.needs(context.masters().map(apiserver_id)))
}

/// Checks that the host reaches the API servers through an external load balancer: it must answer with a
/// certificate of this cluster. The title says what the load balancer must do, because it is shown when the
/// check fails.
pub(crate) fn load_balancer_check(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
) -> Option<(String, Op)> {
    let (address, port) = context.spec().settings.load_balancer.external()?;
    let masters = context.master_addresses();
    let masters: Vec<String> = masters.iter().map(|(_, address)| format!("{address}:6443")).collect();
    let check = api_ready_at(address, port);
    let title = format!(
        "the load balancer {address}:{port} forwards TCP from {} to {}",
        host.name,
        masters.join(", ")
    );
    Some((title, Op::Await { checks: vec![check] }))
}
