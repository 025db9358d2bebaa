//! A cluster out of a snapshot of etcd: every member begins with the data of the snapshot.

use kubeon_api::Refusal;
use kubeon_wire::{EtcdPeer, Op};

use super::control::apiserver_id;
use super::prepare::part;
use super::step::{ARTIFACTS, DesiredStep, part_id};
use crate::context::{ObservedHost, PlanContext};
use crate::input::SnapshotRestore;
use crate::quorum;
use crate::step_id::StepId;

/// Seconds for making the data of a member.
const RESTORE_SECONDS: u32 = 600;

const SNAPSHOT: &str = "etcd-snapshot";

/// The step of this restore. The journal may have the step of an earlier one.
fn restore_id(host: &ObservedHost<'_>, restore: &SnapshotRestore) -> StepId {
    match restore.attempt.as_str() {
        "" => host.id(quorum::STAGE, "restore"),
        attempt => host.id(quorum::STAGE, format!("restore-{attempt}")),
    }
}

/// The steps that make the data of a member, if it never started.
pub(crate) fn member(context: &PlanContext<'_>, host: &ObservedHost<'_>, choose: StepId) -> Vec<DesiredStep> {
    let Some(restore) = &context.intent.restore else { return Vec::new() };
    let snapshot = &restore.snapshot;
    if host.has_executed(&quorum::member_id(&host.name)) {
        return Vec::new();
    }
    let put = part(host, host.id(ARTIFACTS, SNAPSHOT), SNAPSHOT, snapshot);
    let peer = |spec: &crate::input::HostSpec| {
        let name = context.member_hosts().find(|host| host.address() == spec.address)?.name.clone();
        Some(EtcdPeer { name, address: spec.cluster_address().ip() })
    };
    let op = Op::RestoreMember {
        name: host.name.clone(),
        snapshot: snapshot.digest.clone(),
        etcd: context.part(host, "etcd").digest.clone(),
        members: context.spec().member_hosts().iter().filter_map(peer).collect(),
        token: format!("{}-{}", context.intent.uid, &snapshot.digest.as_str()[..12]),
    };
    let step = DesiredStep::new(host, restore_id(host, restore), op)
        .title(format!("make the data of etcd member {} out of the snapshot", host.name))
        .because("the member has no data")
        .within(RESTORE_SECONDS)
        .needs([put.id.clone(), choose, part_id("etcd", host)]);
    vec![put, step]
}

/// Whether a member still begins with the snapshot, or no API server started on it: nothing is known of what the snapshot holds.
pub(crate) fn begins(context: &PlanContext<'_>) -> bool {
    let starts = |host: &ObservedHost<'_>| before_start(context, host).is_some();
    let serves = |host: &ObservedHost<'_>| host.has_executed(&apiserver_id(host));
    context.intent.restore.is_some() && (context.member_hosts().any(starts) || !context.masters().any(serves))
}

/// The step after which the member of a host may start.
pub(crate) fn before_start(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    let restore = context.intent.restore.as_ref()?;
    (!host.has_executed(&quorum::member_id(&host.name))).then(|| restore_id(host, restore))
}

/// Refuses to replace the data of a member that started before this restore.
pub(crate) fn refusals(context: &PlanContext<'_>) -> Vec<Refusal> {
    let Some(restore) = &context.intent.restore else { return Vec::new() };
    let has_data = |host: &&ObservedHost<'_>| {
        host.has_executed(&quorum::member_id(&host.name)) && !host.has_executed(&restore_id(host, restore))
    };
    let name = &context.spec().name;
    let reason =
        format!("still has the data of {name}: destroy that cluster first, then restore the snapshot");
    context.member_hosts().filter(has_data).map(|host| Refusal::host(host.address(), &reason)).collect()
}
