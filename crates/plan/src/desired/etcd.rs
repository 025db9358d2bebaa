//! Stage `etcd`: one member on every master, or on every host of etcd alone.

use std::net::Ipv4Addr;

use kubeon_api::HostName;
use kubeon_render::paths::{ETCD_MEMBERSHIP, pki};
use kubeon_render::static_pods;
use kubeon_render::systemd::{EtcdMember, etcd, etcd_membership};
use kubeon_wire::{CertificateAuthority, Check, Op, Usage};

use super::arguments::checked;
use super::files::{self, authority, client, pair, server};
use super::pods::{self, before_kubeadm, pod_host, watched_program};
use super::prepare::{ETCD_COMMANDS, prepared};
use super::restore;
use super::step::{Daemon, DesiredStep, WaitReason, choose};
use crate::context::{Leaving, ObservedHost, PlanContext};
use crate::membership::{self, MembershipChange};
use crate::quorum::{self, Members, Quorum};
use crate::stage_name::StageName;
use crate::step_id::StepId;

pub(crate) const STAGE: StageName = quorum::STAGE;

/// Seconds for a new member to receive its data. They start again while it receives some.
const PROMOTE_SECONDS: u32 = 120;
/// Seconds for a removal: etcd accepts it only some seconds after another change.
const REMOVE_SECONDS: u32 = 60;

/// The step that writes the keys of the member of a host.
pub(super) fn keys_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "keys")
}

fn initial_members_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "initial-members")
}

fn choose_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "choose")
}

/// The step that runs the member of a host.
pub(crate) fn member_id(host: &ObservedHost<'_>) -> StepId {
    quorum::member_id(&host.name)
}

fn join_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "join")
}

fn promote_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "promote")
}

/// The step that writes the authority of etcd on a master without a member.
fn authority_id(host: &ObservedHost<'_>) -> StepId {
    host.id(STAGE, "authority")
}

/// The step that tells etcd the new address of a member. Any host of a member may execute it.
fn move_id(host: &ObservedHost<'_>) -> StepId {
    StepId::of_cluster(STAGE, format!("move-{}", host.name))
}

/// The step that removes a leaving member that does not serve. Any host of a member may execute it.
pub(crate) fn remove_dead_id(name: &HostName) -> StepId {
    StepId::of_cluster(STAGE, format!("remove-{name}"))
}

/// The step after which the member of a host serves clients.
pub(crate) fn serving_id(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> StepId {
    let joins = MembershipChange::of(context).joins(host.address());
    if joins { promote_id(host) } else { member_id(host) }
}

/// The steps after which the API server of a master reaches etcd: its own member, or all of them and their authority.
pub(crate) fn reach_ids(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Vec<StepId> {
    if !context.has_external_etcd() {
        return vec![serving_id(context, host)];
    }
    context.member_hosts().map(|member| serving_id(context, member)).chain([authority_id(host)]).collect()
}

/// Keys, program and member of every host of a member. The first members start in parallel. Existing members are
/// changed one after another, and each must be healthy before the next, unless the quorum is known to be
/// lost. Members that are known to be down come first: while one is down, no other may be changed. A member that
/// serves waits if the others would have no quorum during its restart.
pub(crate) fn members(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    let initial = context.member_addresses();
    let change = MembershipChange::of(context);
    let known = membership::members(context);
    let one_by_one = known.quorum() != Quorum::Lost;
    let reason = wait_reason(context, &known).or_else(|| joining_reason(&known, &change));
    // A member waits for all members before it, not only for the last one: a member that is up to date has no
    // step in the plan.
    let mut before: Vec<StepId> = Vec::new();
    let mut hosts: Vec<&ObservedHost<'_>> =
        context.member_hosts().filter(|host| !change.joins(host.address())).collect();
    hosts.sort_by_key(|host| quorum::serves(&host.name, host.facts) != Some(false));
    for host in hosts {
        let serves = quorum::serves(&host.name, host.facts) != Some(false);
        let reason = reason.clone().filter(|_| serves && one_by_one);
        steps.push(keys(host));
        steps.push(membership(context, host, &initial));
        // A restart of the host would start the chosen version, so the choice waits with the member.
        steps.push(programs(context, host).waits(reason.clone()));
        steps.extend(restore::member(context, host, choose_id(host)));
        let mut member = member(context, host).needs(restore::before_start(context, host)).waits(reason);
        let moved = context.has_moved(host).then(|| move_member(context, host));
        // The others must know the address before the member starts there. The only member of a cluster must run first.
        let (first, last) = if known.total() > 1 { (moved, None) } else { (None, moved) };
        member.needs.extend(first.as_ref().map(|moved| moved.id.clone()));
        steps.extend(first.map(|moved| moved.needs(before.clone())));
        let last = last.map(|moved| moved.needs([member.id.clone()]));
        if one_by_one && host.has_executed(&member.id) {
            member.needs.extend_from_slice(&before);
            before.push(member.id.clone());
        }
        steps.push(member);
        steps.extend(last);
    }
    change_members(context, &change, before, &initial, steps);
    if context.has_external_etcd() {
        steps.extend(context.masters().map(etcd_authority));
    }
}

/// The authority of etcd on a master whose API server uses members on other hosts.
fn etcd_authority(host: &ObservedHost<'_>) -> DesiredStep {
    let files = vec![authority(pki("etcd/ca.crt"), CertificateAuthority::Etcd)];
    DesiredStep::new(host, authority_id(host), Op::Files { files })
        .title("write the authority of etcd")
        .because("the API server does not know etcd")
}

/// Removes leaving members that do not serve, then adds new ones: one after another, after the others were changed.
fn change_members(
    context: &PlanContext<'_>,
    change: &MembershipChange<'_, '_>,
    mut before: Vec<StepId>,
    initial: &[(String, Ipv4Addr)],
    steps: &mut Vec<DesiredStep>,
) {
    for leaving in &change.dead {
        let step = remove_member(context, leaving, remove_dead_id(&leaving.name)).needs(before.clone());
        before.push(step.id.clone());
        steps.push(step);
    }
    let members: Vec<Ipv4Addr> = context
        .spec()
        .member_hosts()
        .iter()
        .filter(|spec| !change.joins(spec.address))
        .map(|spec| spec.cluster_address().ip())
        .collect();
    for host in &change.joining {
        let promote = promote(host, &members).needs(before.clone());
        steps.push(keys(host));
        steps.push(programs(context, host));
        steps.push(join(context, host, &members).needs(before.clone()));
        let mut member = member(context, host);
        member.needs.retain(|need| *need != initial_members_id(host));
        steps.push(member.needs([join_id(host)]));
        before.push(promote.id.clone());
        steps.push(promote);
        // The list of all masters replaces the one with which the member started.
        steps.push(membership(context, host, initial).needs([member_id(host)]));
    }
}

/// Adds the member of a new master without a vote.
fn join(context: &PlanContext<'_>, host: &ObservedHost<'_>, members: &[Ipv4Addr]) -> DesiredStep {
    let op = Op::JoinEtcd {
        name: host.name.clone(),
        address: host.ip(),
        members: members.to_vec(),
        file: ETCD_MEMBERSHIP.to_owned(),
    };
    DesiredStep::new(host, join_id(host), op)
        .title(format!("add etcd member {} without a vote", host.name))
        .once(format!("{} joins {}", host.name, context.spec().name))
        .needs([keys_id(host)])
}

/// Gives the member of a new master its vote.
fn promote(host: &ObservedHost<'_>, members: &[Ipv4Addr]) -> DesiredStep {
    let op = Op::PromoteMember { address: host.ip(), members: members.to_vec() };
    DesiredStep::new(host, promote_id(host), op)
        .title(format!("give etcd member {} a vote when it has all data", host.name))
        .within(PROMOTE_SECONDS)
        .once(format!("{} has no vote yet", host.name))
        .needs([join_id(host), member_id(host)])
}

/// Tells etcd the new address of the member of a host.
fn move_member(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let op = Op::MoveMember { name: host.name.clone(), address: host.ip() };
    DesiredStep::of_members(context, move_id(host), op)
        .title(format!("tell etcd the new address of member {}: {}", host.name, host.ip()))
        .within(REMOVE_SECONDS)
        .once(format!("the address of {} changed", host.name))
}

/// Removes the member of a leaving host. etcd judges whether the others have a quorum without it.
pub(crate) fn remove_member(context: &PlanContext<'_>, leaving: &Leaving<'_>, id: StepId) -> DesiredStep {
    let op = Op::RemoveMember { name: leaving.name.clone(), address: leaving.spec.cluster_address().ip() };
    DesiredStep::of_members(context, id, op)
        .title(format!("remove etcd member {}", leaving.name))
        .within(REMOVE_SECONDS)
        .needs([member_id(membership::executor(context))])
        .once(format!("{} leaves the cluster", leaving.name))
        .destroys(3)
}

/// Whether too many members are known to be down for a quorum.
pub(crate) fn has_lost_quorum(context: &PlanContext<'_>) -> bool {
    membership::members(context).quorum() == Quorum::Lost
}

/// Why members that serve must not restart now; `None` if they may, one after another.
fn wait_reason(context: &PlanContext<'_>, members: &Members<'_>) -> Option<WaitReason> {
    let role = context.spec().member_role();
    let hosts = context.unreachable.iter().filter(|host| host.role == role).map(|host| host.address);
    (!members.may_restart_one()).then(|| WaitReason {
        hosts: hosts.collect(),
        risk: format!(
            "{} of {} etcd members can serve: the others would have no quorum during its restart",
            members.available(),
            members.total()
        ),
    })
}

/// The restart of one of two members stops etcd. A third one that joins makes it harmless.
fn joining_reason(members: &Members<'_>, change: &MembershipChange<'_, '_>) -> Option<WaitReason> {
    (members.total() == 2 && !change.joining.is_empty()).then(|| WaitReason {
        hosts: change.joining.iter().map(|host| host.address()).collect(),
        risk: "with two etcd members, the restart of one stops etcd; the member that joins has no vote yet"
            .to_owned(),
    })
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

/// The initial members. The member does not read this step: a change of the members restarts no member.
fn membership(
    context: &PlanContext<'_>,
    host: &ObservedHost<'_>,
    initial: &[(String, Ipv4Addr)],
) -> DesiredStep {
    let text = etcd_membership(initial, &context.intent.uid);
    let files = vec![files::config(ETCD_MEMBERSHIP.to_owned(), text)];
    DesiredStep::new(host, initial_members_id(host), Op::Files { files })
        .title("write the initial members of etcd")
        .because("the member does not know the other members")
}

fn programs(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    choose(context, host, choose_id(host), &["etcd"], ETCD_COMMANDS).needs(checked(context, host))
}

fn member(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> DesiredStep {
    let extra = &context.spec().settings.extra_args.etcd;
    let unit = if context.runs_static_pods() {
        let tag = pods::tag(&context.artifacts(host).images[pods::ETCD].name);
        static_pods::etcd(&pod_host(host, context.spec().version), tag, extra)
    } else {
        etcd(&EtcdMember { name: host.name.as_str(), address: host.ip() }, extra)
    };
    Daemon {
        id: member_id(host),
        unit_name: &pods::unit_name(context, pods::ETCD),
        unit,
        watches: ["ca.crt", "server.crt", "peer.crt"]
            .iter()
            .map(|file| pki(&format!("etcd/{file}")))
            .chain(watched_program(context, pods::ETCD))
            .collect(),
        ready: vec![healthy()],
    }
    .into_step(host)
    .title(format!("start etcd member {}", host.name))
    .because("no member exists")
    .needs(before_kubeadm(context, host, pods::ETCD))
    .needs(prepared(host))
    .needs(checked(context, host))
    .needs([initial_members_id(host)])
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
