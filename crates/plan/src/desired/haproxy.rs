//! haproxy on every worker: the way of its programs to the API servers.
//!
//! Its first process starts another one for every new configuration, and the one before ends with its last connection. So a
//! change of the masters or of haproxy's program interrupts no worker. As a static pod, it starts again for another program; another name
//! of its image counts from the next start on.

use std::net::Ipv4Addr;

use kubeon_render::paths::{HAPROXY_COMMAND, HAPROXY_IMAGE, etc, pki};
use kubeon_render::{config, static_pods, systemd, tools};
use kubeon_wire::{Check, File, Op};

use super::files;
use super::join_stage::{STAGE, keys_id};
use super::pods::{self, before_pod, watched_program};
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

/// The step that starts haproxy on a host.
pub(super) fn service_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy")
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-config")
}

fn command_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-command")
}

fn image_name_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-image")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-haproxy")
}

/// The step after which the haproxy of a host knows the masters, and no other.
pub(super) fn loaded_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-reload")
}

/// Stops and removes the haproxy of a host that no longer needs it.
pub(super) fn removal(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    host.has_executed(&service_id(host)).then(|| {
        let own = if context.runs_static_pods() { HAPROXY_IMAGE } else { HAPROXY_COMMAND };
        let files = vec![own.to_owned(), etc("haproxy.cfg")];
        let remove = Op::RemoveService { name: pods::unit_name(context, pods::HAPROXY), files };
        DesiredStep::new(host, host.id(STAGE, "haproxy-removal"), remove)
            .title("stop and remove haproxy")
            .once("the programs of the host reach the API server another way".to_owned())
    })
}

/// The steps that run haproxy on a worker, with `masters` as name and address.
pub(super) fn to_masters(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    masters: &[(String, Ipv4Addr)],
    steps: &mut Vec<DesiredStep>,
) {
    if context.runs_static_pods() {
        steps.push(image_name(context, host));
    } else {
        steps.extend(command(context, host));
    }
    let file = etc("haproxy.cfg");
    let written = files::readable(file.clone(), config::haproxy(masters));
    steps.push(
        DesiredStep::new(host, config_id(host), Op::Files { files: vec![written] })
            .title("write haproxy's configuration")
            .because("haproxy does not know the masters"),
    );
    steps.push(service(context, host));
    // It checks the masters with the authority among the keys.
    let read = [file, pki("ca.crt")].into_iter().chain(watched_program(context, pods::HAPROXY)).collect();
    let unit = pods::unit_name(context, pods::HAPROXY);
    let reload = Op::Reload { name: unit, files: read, ready: ready() };
    let chosen = (!context.runs_static_pods()).then(|| choose_id(host));
    steps.push(
        DesiredStep::new(host, loaded_id(host), reload)
            .title("haproxy uses its configuration")
            .because("haproxy was not started yet")
            .needs([service_id(host)])
            .reads([config_id(host)].into_iter().chain(chosen).chain([keys_id(host)])),
    );
}

fn ready() -> Vec<Check> {
    vec![Check::Tcp { address: Ipv4Addr::LOCALHOST, port: 6443 }]
}

/// The program of the service, and the script that runs it.
fn command(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> [DesiredStep; 2] {
    let script = files::config(HAPROXY_COMMAND.to_owned(), tools::haproxy(context.arch(host)));
    let written =
        DesiredStep::new(host, command_id(host), Op::Files { files: vec![File { mode: 0o755, ..script }] })
            .title("write the script that runs haproxy")
            .because("haproxy was not started yet");
    [choose(context, host, choose_id(host), &["haproxy"], &[]), written]
}

/// The name of the image for the next start of the pod. The pod does not read this step.
fn image_name(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let text = static_pods::haproxy_image(&context.artifacts(host).images[pods::HAPROXY].name);
    let files = vec![files::config(HAPROXY_IMAGE.to_owned(), text)];
    DesiredStep::new(host, image_name_id(host), Op::Files { files })
        .title("write the name of haproxy's image")
        .because("haproxy was not started yet")
}

/// What identifies haproxy in its image: the part of the bundle that is the image's only layer.
fn program_digest<'a>(context: &PlanContext<'a>, host: &ObservedHost<'_>) -> &'a str {
    let artifacts = context.artifacts(host);
    let program = artifacts.parts.get(pods::HAPROXY);
    program.unwrap_or_else(|| &artifacts.images[pods::HAPROXY].part).digest.as_str()
}

fn service(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let unit = pods::unit_name(context, pods::HAPROXY);
    let unit_name = unit.as_str();
    let (id, ready) = (service_id(host), ready());
    let step = if context.runs_static_pods() {
        let unit = static_pods::haproxy(program_digest(context, host));
        Daemon { id, unit_name, unit, watches: Vec::new(), ready }
            .into_step(host)
            .needs(before_pod(context, host, pods::HAPROXY))
            .needs([image_name_id(host), config_id(host), keys_id(host)])
    } else {
        let watches = vec![HAPROXY_COMMAND.to_owned()];
        Daemon { id, unit_name, unit: systemd::haproxy(), watches, ready }
            .into_step(host)
            .needs([config_id(host), choose_id(host), keys_id(host)])
            .reads([command_id(host)])
    };
    step.title("start haproxy to the masters")
}
