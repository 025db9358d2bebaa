//! Changes the members of etcd: one at a time, and never without a quorum of those that stay.

use std::net::Ipv4Addr;
use std::thread;

use kubeon_api::{Digest, HostName, is_majority};
use kubeon_wire::{EtcdPeer, StepFailure};

use crate::backoff::pauses;
use crate::command::{run as run_program, step_failure};
use crate::durable::{folder_of, sync_folder, write_if_different};
use crate::etcd::{Etcd, ListedMember, NotAccepted, peer_url};
use crate::failure::{failed, plain};
use crate::job::{Job, StepEffect};
use crate::systemd::UnitState;
use crate::{parts, paths};

/// The units that run a member: a service, or a static pod.
pub(super) const UNITS: [&str; 2] = ["etcd.service", "etcd.pod"];
/// How far the revision of restored data is beyond that of the snapshot: more than a cluster writes between two snapshots.
const REVISIONS: u64 = 1_000_000_000;

/// The member of this host.
pub struct NewMember<'a> {
    /// Its name.
    pub name: &'a HostName,
    /// The address at which the other members reach it.
    pub address: Ipv4Addr,
    /// The addresses of masters that have a member.
    pub members: &'a [Ipv4Addr],
    /// The file that names the members.
    pub file: &'a str,
}

/// Adds the member of this host as a learner, and writes the file with which it starts.
///
/// # Errors
/// If etcd does not accept it in time, or another member has the name.
pub fn join(job: &Job<'_>, member: &NewMember<'_>) -> Result<StepEffect, StepFailure> {
    let etcd = Etcd::of_hosts(&job.host.root, member.members)?;
    let (members, added) = until_accepted(job, &format!("{} is not added to etcd", member.name), || {
        let known = etcd.members()?;
        if known.iter().any(|known| known.is_at(member.address)) {
            return Ok((known, false));
        }
        if let Some(other) = known.iter().find(|known| known.name == member.name.as_str()) {
            return Ok((vec![other.clone()], false));
        }
        etcd.add_learner(member.address)?;
        Ok((etcd.members()?, true))
    })?;
    if !members.iter().any(|known| known.is_at(member.address)) {
        let urls = members.iter().flat_map(|other| other.peer_urls.clone()).collect::<Vec<_>>().join(", ");
        return Err(failed(format!(
            "etcd has another member with the name {} at {urls}: remove that member first",
            member.name
        )));
    }
    // A member that started knows the others.
    let started = members.iter().any(|known| known.is_at(member.address) && !known.name.is_empty());
    let text = initial_members(member, &members);
    let file = job.host.root.at(member.file);
    let written = !started && write_if_different(&file, text.as_bytes(), 0o600)?;
    Ok(StepEffect { changed: added || written, ..StepEffect::default() })
}

/// The environment of a member that joins. Its list must be the one that etcd has.
fn initial_members(own: &NewMember<'_>, members: &[ListedMember]) -> String {
    let pairs = members.iter().flat_map(|member| {
        let name = if member.is_at(own.address) { own.name.as_str() } else { &member.name };
        // A member that never started has no name, and any name does.
        let name = if name.is_empty() { format!("member-{}", member.id) } else { name.to_owned() };
        member.peer_urls.iter().map(move |url| format!("{name}={url}"))
    });
    format!(
        "# Written by kubeon. Read at the first start of the member only.\n\
         ETCD_INITIAL_CLUSTER={}\nETCD_INITIAL_CLUSTER_STATE=existing\n",
        pairs.collect::<Vec<_>>().join(",")
    )
}

/// Gives the learner of this host a vote. The time limit starts again while the learner receives data.
///
/// # Errors
/// If this host has no member, or etcd does not accept it in time.
pub fn promote(job: &Job<'_>, address: Ipv4Addr, hosts: &[Ipv4Addr]) -> Result<StepEffect, StepFailure> {
    let etcd = Etcd::of_hosts(&job.host.root, hosts)?;
    let own = Etcd::at(&job.host.root, vec![job.host.etcd.clone()])?;
    let (mut changed, mut applied) = (false, 0);
    until_accepted(job, "the member of this host gets no vote", || {
        let index = own.applied_index().unwrap_or(0);
        if index > applied {
            job.progressed();
            applied = index;
        }
        let members = etcd.members()?;
        let found = members.into_iter().find(|member| member.is_at(address));
        let member = found
            .ok_or_else(|| NotAccepted::Refused(format!("there is no member at {}", peer_url(address))))?;
        if member.is_learner {
            etcd.promote(&member.id)?;
            changed = true;
        }
        Ok(())
    })?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

/// Tells etcd at which address the other members reach a member from now on.
///
/// # Errors
/// If there is no such member, another member has the address, or etcd does not accept it in time.
pub fn relocate(job: &Job<'_>, name: &HostName, address: Ipv4Addr) -> Result<StepEffect, StepFailure> {
    let own = Etcd::at(&job.host.root, vec![job.host.etcd.clone()])?;
    let mut changed = false;
    until_accepted(job, &format!("etcd does not know the new address of {name}"), || {
        let endpoints = endpoints_about(name, &own, &job.host.etcd);
        let etcd =
            Etcd::at(&job.host.root, endpoints).map_err(|failure| NotAccepted::Refused(failure.cause))?;
        let members = etcd.members()?;
        let member = members.iter().find(|member| member.name == name.as_str());
        let member = member.ok_or_else(|| NotAccepted::Refused(format!("there is no member {name}")))?;
        if member.peer_urls != [peer_url(address)] {
            etcd.relocate(&member.id, address)?;
            changed = true;
        }
        Ok(())
    })?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

/// The members that are asked about a member: the own one at `local` first. If it is the one in question, it comes last,
/// because the others do not reach it at its new address yet.
fn endpoints_about(name: &HostName, own: &Etcd, local: &str) -> Vec<String> {
    let Ok(Some(view)) = own.own_view() else { return vec![local.to_owned()] };
    let (this, others): (Vec<_>, Vec<_>) = view.members.iter().partition(|member| member.id == view.own);
    let mut endpoints: Vec<String> = others.into_iter().flat_map(|other| other.client_urls.clone()).collect();
    let is_own = this.iter().any(|member| member.name == name.as_str());
    endpoints.insert(if is_own { endpoints.len() } else { 0 }, local.to_owned());
    endpoints
}

/// Removes a member through the member of this host.
///
/// # Errors
/// If the members that stay have no quorum without it, or etcd does not accept it in time.
pub fn remove(job: &Job<'_>, name: &HostName, address: Ipv4Addr) -> Result<StepEffect, StepFailure> {
    let etcd = Etcd::at(&job.host.root, vec![job.host.etcd.clone()])?;
    let mut changed = false;
    until_accepted(job, &format!("{name} stays a member of etcd"), || {
        let (leaving, staying): (Vec<_>, Vec<_>) = etcd
            .members()?
            .into_iter()
            .partition(|member| member.name == name.as_str() || member.is_at(address));
        let Some(member) = leaving.first() else { return Ok(()) };
        keeps_quorum(&etcd, &staying)?;
        etcd.remove(&member.id)?;
        changed = true;
        Ok(())
    })?;
    Ok(StepEffect { changed, ..StepEffect::default() })
}

/// Checks that more than half of the members with a vote are healthy.
fn keeps_quorum(etcd: &Etcd, members: &[ListedMember]) -> Result<(), NotAccepted> {
    let voters: Vec<&ListedMember> = members.iter().filter(|member| !member.is_learner).collect();
    let healthy = thread::scope(|scope| {
        let checks: Vec<_> = voters.iter().map(|voter| scope.spawn(move || etcd.is_healthy(voter))).collect();
        checks.into_iter().filter_map(|check| check.join().ok()).filter(|healthy| *healthy).count()
    });
    if is_majority(healthy, voters.len()) {
        return Ok(());
    }
    let total = voters.len();
    Err(NotAccepted::Refused(format!("{healthy} of the {total} members that stay serve: that is no quorum")))
}

/// A member that is made out of a snapshot.
pub struct RestoredMember<'a> {
    /// Its name.
    pub name: &'a HostName,
    /// The part that holds `snapshot.db`.
    pub snapshot: &'a Digest,
    /// The part that holds etcd's programs.
    pub etcd: &'a Digest,
    /// All members.
    pub members: &'a [EtcdPeer],
    /// What distinguishes the cluster from the one of which the snapshot is.
    pub token: &'a str,
}

/// Makes the data of this host's member out of a snapshot. Data of an earlier attempt is replaced.
///
/// # Errors
/// If a member runs on this host, or the snapshot is not complete.
pub fn restore(job: &Job<'_>, member: &RestoredMember<'_>) -> Result<StepEffect, StepFailure> {
    let root = &job.host.root;
    let states = job.host.services.states(&UNITS.map(str::to_owned))?;
    let runs = |state: &UnitState| !matches!(state.active.as_str(), "inactive" | "failed" | "");
    if let Some((unit, state)) = states.iter().find(|(_, state)| runs(state)) {
        return Err(failed(format!("{unit} is {} on this host: its data is not replaced", state.active)));
    }
    let own = member.members.iter().find(|peer| peer.name == *member.name);
    let own = own.ok_or_else(|| failed(format!("{} is not among the members", member.name)))?;
    let (data, staged) = (root.at(paths::ETCD_DATA), root.at(&format!("{}.restored", paths::ETCD_DATA)));
    parts::remove(&staged)?;
    let peers: Vec<String> =
        member.members.iter().map(|peer| format!("{}={}", peer.name, peer_url(peer.address))).collect();
    let program = parts::folder(root, member.etcd).join("bin/etcdutl").display().to_string();
    let snapshot = parts::folder(root, member.snapshot).join("snapshot.db").display().to_string();
    let arguments = [
        "snapshot".to_owned(),
        "restore".to_owned(),
        snapshot,
        format!("--name={}", member.name),
        format!("--initial-cluster={}", peers.join(",")),
        format!("--initial-cluster-token={}", member.token),
        format!("--initial-advertise-peer-urls={}", peer_url(own.address)),
        format!("--data-dir={}", staged.display()),
        // Clients that saw later revisions must not take old objects for new ones.
        format!("--bump-revision={REVISIONS}"),
        "--mark-compacted".to_owned(),
    ];
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = run_program(&program, &words, None, job.deadline).map_err(step_failure)?;
    if !done.success() {
        return Err(failed(format!("etcdutl snapshot restore: {}", done.last_line())));
    }
    parts::remove(&data)?;
    std::fs::rename(&staged, &data).map_err(|error| {
        failed(format!("cannot move {} to {}: {}", staged.display(), data.display(), plain(&error)))
    })?;
    sync_folder(folder_of(&data)?)?;
    Ok(StepEffect { changed: true, ..StepEffect::default() })
}

/// Repeats a change until it is accepted. etcd refuses some changes only for a short time, such as a removal shortly after
/// a promotion.
fn until_accepted<T>(
    job: &Job<'_>,
    problem: &str,
    mut change: impl FnMut() -> Result<T, NotAccepted>,
) -> Result<T, StepFailure> {
    let mut pauses = pauses();
    loop {
        let seen = match change() {
            Ok(done) => return Ok(done),
            Err(why) => why.to_string(),
        };
        job.pause(pauses.next().unwrap_or_default(), || format!("{problem}: {seen}"))?;
    }
}

#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
