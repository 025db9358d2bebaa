//! haproxy on every worker: the way of its programs to the API servers.
//!
//! Its first process starts another one for every new configuration, and the one before ends with its last connection. So a
//! change of the masters or of haproxy's program interrupts no worker.

use std::net::Ipv4Addr;

use kubeon_render::paths::{HAPROXY_COMMAND, current, etc, pki};
use kubeon_render::{config, systemd, tools};
use kubeon_wire::{Check, File, Op};

use super::files;
use super::join_stage::{STAGE, keys_id};
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::step_id::StepId;

const UNIT: &str = "haproxy.service";

fn service_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy")
}

fn config_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-config")
}

fn command_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-command")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose-haproxy")
}

/// The step after which the haproxy of a host knows the masters, and no other.
pub(super) fn loaded_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "haproxy-reload")
}

/// Stops and removes the haproxy of a host that no longer needs it.
pub(super) fn removal(host: &ObservedHost<'_>) -> Option<DesiredStep> {
    host.has_executed(&service_id(host)).then(|| {
        let files = vec![HAPROXY_COMMAND.to_owned(), etc("haproxy.cfg")];
        let remove = Op::RemoveService { name: UNIT.to_owned(), files };
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
    steps.push(choose(context, host, choose_id(host), &["haproxy"], &[]));
    let script = files::config(HAPROXY_COMMAND.to_owned(), tools::haproxy(context.arch(host)));
    steps.push(
        DesiredStep::new(host, command_id(host), Op::Files { files: vec![File { mode: 0o755, ..script }] })
            .title("write the script that runs haproxy")
            .because("haproxy was not started yet"),
    );
    let file = etc("haproxy.cfg");
    let written = files::readable(file.clone(), config::haproxy(masters));
    steps.push(
        DesiredStep::new(host, config_id(host), Op::Files { files: vec![written] })
            .title("write haproxy's configuration")
            .because("haproxy does not know the masters"),
    );
    let ready = || vec![Check::Tcp { address: Ipv4Addr::LOCALHOST, port: 6443 }];
    steps.push(
        Daemon {
            id: service_id(host),
            unit_name: UNIT,
            unit: systemd::haproxy(),
            watches: vec![HAPROXY_COMMAND.to_owned()],
            ready: ready(),
        }
        .into_step(host)
        .title("start haproxy to the masters")
        .needs([config_id(host), choose_id(host), keys_id(host)])
        .reads([command_id(host)]),
    );
    // It checks the masters with the authority among the keys.
    let read = vec![file, pki("ca.crt"), current("haproxy")];
    let reload = Op::Reload { name: UNIT.to_owned(), files: read, ready: ready() };
    steps.push(
        DesiredStep::new(host, loaded_id(host), reload)
            .title("haproxy uses its configuration")
            .because("haproxy was not started yet")
            .needs([service_id(host)])
            .reads([config_id(host), choose_id(host), keys_id(host)]),
    );
}
