//! The load balancer `updater`: workers reach the API servers by a Service of the cluster.
//!
//! The masters keep its endpoints equal to the API servers that serve. On a worker, a unit leads the API's name to a master while
//! the Service does not answer: before kube-proxy runs, and after a boot. So no step of a worker waits for the Service, and only
//! the last check needs it.

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_render::paths::pki;
use kubeon_render::updater::{self, PUBLISHER, STARTUP};
use kubeon_wire::{API_WAY_FILE, API_WAY_FOUND, ApiWay, CertificateAuthority, Check, Op};

use super::control::{api_ready_at, apiserver_id, rights_id};
use super::control_plane;
use super::files::{self, client};
use super::hosts_file::{self, hosts_id};
use super::join_stage::{self, keys_id};
use super::step::{Daemon, DesiredStep};
use crate::context::{NODE_PROGRAM, ObservedHost, PlanContext, records};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of the certificate and of the key of a master's apiserver-updater.
const PUBLISHER_KEYS: &str = "apiserver-updater";

/// The cluster-wide step that applies the Service.
pub(super) fn service_id() -> StepId {
    StepId::of_cluster(control_plane::STAGE, "apiserver-service")
}

/// The step that keeps the endpoints of the Service on a master.
fn publisher_id(host: &ObservedHost<'_>) -> StepId {
    host.id(control_plane::STAGE, "apiserver-updater")
}

/// The step that writes the identity with which a master keeps them.
fn publisher_keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(control_plane::STAGE, "apiserver-updater-keys")
}

/// The step after which the API's name leads to an API server on a worker.
fn startup_id(host: &ObservedHost<'_>) -> StepId {
    host.id(join_stage::STAGE, "apiserver-startup")
}

fn startup_config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(join_stage::STAGE, "apiserver-startup-config")
}

/// Whether workers reach the API servers by their Service.
pub(super) fn is_used(context: &PlanContext<'_>) -> bool {
    context.spec().settings.load_balancer == LoadBalancer::Updater
}

/// The steps after which the programs of a worker may use the API's name.
pub(super) fn way_ids(host: &ObservedHost<'_>) -> [StepId; 2] {
    [startup_id(host), hosts_id(host)]
}

/// The steps that run the unit of a worker.
pub(super) fn startup(context: &PlanContext<'_>, host: &ObservedHost<'_>, steps: &mut Vec<DesiredStep>) {
    let way = ApiWay {
        name: context.spec().settings.api_domain.to_string(),
        service: context.api_service(),
        port: context.spec().settings.api_port,
        masters: context.master_addresses().into_iter().map(|(_, address)| address).collect(),
    };
    let files = vec![files::config(API_WAY_FILE.to_owned(), updater::way(&way))];
    steps.push(
        DesiredStep::new(host, startup_config_id(host), Op::Files { files })
            .title("write the way to the API servers")
            .because("the host does not know the masters"),
    );
    steps.push(
        Daemon {
            id: startup_id(host),
            unit_name: STARTUP,
            unit: updater::startup(),
            watches: vec![NODE_PROGRAM.to_owned()],
            ready: vec![Check::Path { path: API_WAY_FOUND.to_owned() }],
        }
        .into_step(host)
        .title("keep the API's name leading to an API server")
        // It reads its file for every check, so that another master does not start it again.
        .needs([keys_id(host), startup_config_id(host), rights_id()]),
    );
    if hosts_file::is_in_use(host) {
        steps.push(hosts_file::step(context, host).needs([startup_id(host)]));
    }
}

/// Removes the unit of a worker whose programs reach the API servers another way.
pub(super) fn startup_removal(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    (!is_used(context) && host.has_executed(&startup_id(host))).then(|| {
        let remove = Op::RemoveService { name: STARTUP.to_owned(), files: vec![API_WAY_FILE.to_owned()] };
        DesiredStep::new(host, host.id(join_stage::STAGE, "apiserver-startup-removal"), remove)
            .title("stop and remove apiserver-startup")
            .once("the programs of the host reach the API servers another way".to_owned())
    })
}

/// The Service and its endpoints, or their removal after the steps `left`, with which the last worker leaves the Service.
pub(super) fn service(context: &PlanContext<'_>, left: &[StepId], steps: &mut Vec<DesiredStep>) {
    if is_used(context) {
        publish(context, steps);
    } else if context.observes_all_nodes() {
        withdraw(context, left, steps);
    }
}

fn publish(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let (address, port) = (context.api_service(), context.spec().settings.api_port);
    let objects = [updater::service(address, port)].into_iter().chain(updater::rights()).collect();
    steps.push(
        DesiredStep::of_cluster(context, service_id(), Op::Objects { objects })
            .title(format!("apply the Service of the API servers, {address}:{port}"))
            .because("the object is absent")
            .needs([rights_id()]),
    );
    for host in context.masters() {
        let identity = client(CertificateAuthority::Kubernetes, updater::PUBLISHER_USER, &[]);
        let files = files::pair(&pki(PUBLISHER_KEYS), identity).into();
        steps.push(
            DesiredStep::new(host, publisher_keys_id(host), Op::Files { files })
                .title("write the identity of apiserver-updater")
                .because("apiserver-updater has no identity"),
        );
        steps.push(
            Daemon {
                id: publisher_id(host),
                unit_name: PUBLISHER,
                unit: updater::publisher(),
                watches: vec![NODE_PROGRAM.to_owned()],
                ready: Vec::new(),
            }
            .into_step(host)
            .title("keep the endpoints of the Service of the API servers")
            // It reads its identity again for every watch.
            .needs([apiserver_id(host), service_id(), publisher_keys_id(host)]),
        );
    }
}

fn withdraw(context: &PlanContext<'_>, left: &[StepId], steps: &mut Vec<DesiredStep>) {
    let why = || "no worker reaches the API servers by their Service".to_owned();
    let mut before = left.to_vec();
    let begun = |host: &&ObservedHost<'_>| {
        host.has_executed(&publisher_id(host)) || host.has_executed(&publisher_keys_id(host))
    };
    for host in context.masters().filter(begun) {
        let files = ["crt", "key"].map(|kind| format!("{}.{kind}", pki(PUBLISHER_KEYS))).into();
        let remove = Op::RemoveService { name: PUBLISHER.to_owned(), files };
        let id = host.id(control_plane::STAGE, "apiserver-updater-removal");
        before.push(id.clone());
        steps.push(
            DesiredStep::new(host, id, remove)
                .title("stop and remove apiserver-updater")
                .needs(left.to_vec())
                .once(why()),
        );
    }
    if context.cluster_steps().is_some_and(|steps| records(steps, &service_id())) {
        let remove = Op::RemoveObjects { paths: updater::objects(), step: service_id().to_string() };
        let id = StepId::of_cluster(control_plane::STAGE, "apiserver-service-removal");
        steps.push(
            DesiredStep::of_cluster(context, id, remove)
                .title("delete the Service of the API servers")
                .needs([apiserver_id(context.executor())])
                .needs(before)
                .once(why()),
        );
    }
}

/// The check that a worker reaches the API servers by the Service, as a step of `stage`.
pub(super) fn proof_id(host: &ObservedHost<'_>, stage: StageName) -> StepId {
    host.id(stage, "apiserver-service")
}

/// The check that a worker reaches the API servers by the Service; `None` without one, or if nothing serves it yet. `kube_proxy`
/// is the step that runs kube-proxy on the host.
pub(super) fn proof(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    stage: StageName,
    kube_proxy: Option<StepId>,
) -> Option<DesiredStep> {
    let (address, port) = (context.api_service(), context.spec().settings.api_port);
    let check = api_ready_at(address, port);
    (is_used(context) && !host.is_master() && context.serves_services()).then(|| {
        DesiredStep::new(host, proof_id(host, stage), Op::Await { checks: vec![check] })
            .title(format!("the Service {address}:{port} leads from {} to the API servers", host.name))
            .because("a component that the Service depends on was changed")
            .within(60)
            .needs(context.masters().map(publisher_id))
            .needs([startup_id(host)])
            .reads([service_id()])
            .reads(kube_proxy)
            .check(None)
    })
}
