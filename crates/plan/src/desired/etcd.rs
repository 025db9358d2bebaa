//! Stage `etcd`: one member on every master.

use std::net::Ipv4Addr;

use kubeon_render::paths::{current, pki};
use kubeon_render::systemd::{EtcdMember, etcd};
use kubeon_wire::{CertificateAuthority, Check, Op, Usage};

use super::files::{authority, client, pair, server};
use super::prepare::{ETCD_COMMANDS, kernel_id};
use super::step::{Daemon, DesiredStep, choose};
use crate::context::{ObservedHost, PlanContext};
use crate::quorum::{self, Quorum, quorum};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = quorum::STAGE;

fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

/// The step that runs the member of a host.
pub(crate) fn member_id(host: &ObservedHost<'_>) -> StepId {
    quorum::member_id(&host.name)
}

/// Keys, program and member of every master. The first members start in parallel. Existing members are
/// changed one after another, and each must be healthy before the next, unless the quorum is known to be
/// lost. Members that are known to be down come first: while one is down, no other may be changed.
pub(crate) fn members(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let initial = context.master_addresses();
    let one_by_one = quorum(context.masters().map(|host| (&host.name, host.facts))) != Quorum::Lost;
    // A member waits for all members before it, not only for the last one: a member that is up to date has no
    // step in the plan.
    let mut before: Vec<StepId> = Vec::new();
    let mut masters: Vec<&ObservedHost<'_>> = context.masters().collect();
    masters.sort_by_key(|host| quorum::serves(&host.name, host.facts) != Some(false));
    for host in masters {
        steps.push(keys(host));
        steps.push(choose(context, host, choose_id(host), &["etcd"], ETCD_COMMANDS));
        let mut member = member(context, host, &initial);
        if one_by_one && host.has_executed(&member.id) {
            member.needs.extend_from_slice(&before);
            before.push(member.id.clone());
        }
        steps.push(member);
    }
}

fn keys(host: &ObservedHost<'_>) -> DesiredStep {
    let mut files = vec![authority(pki("etcd/ca.crt"), CertificateAuthority::Etcd)];
    files.extend(pair(
        &pki("etcd/server"),
        server(CertificateAuthority::Etcd, host.name.as_str(), host, Usage::Both),
    ));
    files.extend(pair(
        &pki("etcd/peer"),
        server(CertificateAuthority::Etcd, host.name.as_str(), host, Usage::Both),
    ));
    files.extend(pair(
        &pki("etcd/healthcheck-client"),
        client(CertificateAuthority::Etcd, "kube-etcd-healthcheck-client", &[]),
    ));
    DesiredStep::new(host, keys_id(host), Op::Files { files })
        .title("write the member's keys and certificates")
        .because("the member has no keys")
}

fn member(context: &PlanContext<'_>, host: &ObservedHost<'_>, initial: &[(String, Ipv4Addr)]) -> DesiredStep {
    let unit = etcd(
        &EtcdMember { name: host.name.as_str(), address: host.ip(), initial, token: &context.intent.uid },
        &context.spec().settings.extra_args.etcd,
    );
    Daemon {
        id: member_id(host),
        unit_name: "etcd.service",
        unit,
        watches: ["ca.crt", "server.crt", "peer.crt"]
            .iter()
            .map(|file| pki(&format!("etcd/{file}")))
            .chain([current("etcd")])
            .collect(),
        ready: vec![healthy()],
    }
    .into_step(host)
    .title(format!("start etcd member {}", host.name))
    .because("no member exists")
    .needs([kernel_id(host)])
    .reads([keys_id(host), choose_id(host)])
}

fn healthy() -> Check {
    Check::Https {
        address: Ipv4Addr::LOCALHOST,
        port: 2379,
        path: "/health".to_owned(),
        ca_file: pki("etcd/ca.crt"),
        certificate_file: Some(pki("etcd/healthcheck-client.crt")),
        key_file: Some(pki("etcd/healthcheck-client.key")),
    }
}
