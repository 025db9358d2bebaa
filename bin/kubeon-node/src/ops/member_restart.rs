//! Asks the members of etcd before one of them restarts: the others must be a quorum without it. The plan judged this by the
//! facts from the beginning of a run, and a host may have died since then.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use kubeon_api::is_majority;
use kubeon_wire::{Category, StepFailure};

use super::etcd::UNITS;
use crate::etcd::{Etcd, ListedMember};
use crate::failure::of;
use crate::https::NoAnswer;
use crate::job::Job;
use crate::paths;
use crate::units::API_SERVERS;

/// The smallest number of members with a vote that are a quorum without one of them.
const SMALLEST: usize = 3;
/// The interval between two questions to the members.
const INTERVAL: Duration = Duration::from_millis(500);
/// How long `systemctl` is waited for. The API server starts on when this time is over.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const LIMITS: RestartLimits =
    RestartLimits { election: Duration::from_secs(10), unchanged: Duration::from_secs(20) };

/// How long a member waits for its restart.
struct RestartLimits {
    /// After this time without serving, the member has no leader to wait for: an election takes one or two seconds.
    election: Duration,
    /// After this time without a new state, waiting ends. It is shorter than the time that the engine gives a step after it lost a
    /// host, so that the failure names the members.
    unchanged: Duration,
}

/// What the members say about a restart of the member of this host.
enum RestartVerdict {
    /// It costs no quorum.
    Harmless,
    /// The member does not serve, for this reason: there is nothing that its restart could cost.
    Idle(String),
    /// The others are no quorum, or that is not known, for this reason.
    Harmful(String),
}

/// Waits until the other members of etcd are a quorum without the member of this host. A member that does not run or does not
/// serve, and one of fewer than three, may restart at any time.
///
/// # Errors
/// [`Category::Timeout`] with the members that do not serve, after their state did not change for a while. Then an API server of this
/// host that ended for the restart starts again.
pub fn wait_until_harmless(job: &Job<'_>) -> Result<(), StepFailure> {
    // Without the certificate there is no member of kubeon here.
    if !job.host.root.at(paths::ETCD_CERTIFICATE).exists() || !is_running(job)? {
        return Ok(());
    }
    wait(job, &LIMITS).inspect_err(|_| start_api_server(job))
}

fn is_running(job: &Job<'_>) -> Result<bool, StepFailure> {
    let states = job.host.services.states(&UNITS.map(str::to_owned))?;
    Ok(states.values().any(|state| matches!(state.active.as_str(), "active" | "reloading")))
}

fn wait(job: &Job<'_>, limits: &RestartLimits) -> Result<(), StepFailure> {
    let etcd = Etcd::at(&job.host.root, vec![job.host.etcd.clone()])?;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let (mut changed, mut served) = (Instant::now(), Instant::now());
    loop {
        let why = match verdict(&etcd, &job.host.etcd) {
            RestartVerdict::Harmless => break,
            RestartVerdict::Idle(why) if served.elapsed() >= limits.election => {
                job.note(why);
                break;
            }
            RestartVerdict::Idle(why) => why,
            RestartVerdict::Harmful(why) => {
                served = Instant::now();
                why
            }
        };
        if seen.insert(why.clone()) {
            changed = Instant::now();
            job.progressed();
        }
        if changed.elapsed() >= limits.unchanged {
            return Err(of(Category::Timeout, why));
        }
        job.pause(INTERVAL.min(limits.unchanged), || why.clone())?;
    }
    if !seen.is_empty() {
        // The start of the member has the whole time limit of the step.
        job.progressed();
    }
    Ok(())
}

/// Asks the member at the URL for all members, and each of them whether it serves.
fn verdict(etcd: &Etcd, own_url: &str) -> RestartVerdict {
    let view = match etcd.own_view() {
        Ok(Some(view)) => view,
        // It is no part of a quorum.
        Ok(None) => return RestartVerdict::Harmless,
        Err(NoAnswer::NoServer(why)) => {
            return RestartVerdict::Idle(format!("the etcd member of this host does not serve: {why}"));
        }
        Err(NoAnswer::Unknown(why)) => {
            let text =
                format!("the etcd member of this host is not restarted: it does not list the members: {why}");
            return RestartVerdict::Harmful(text);
        }
    };
    let voters = view.members.iter().filter(|member| !member.is_learner);
    let (own, others): (Vec<&ListedMember>, Vec<&ListedMember>) =
        voters.partition(|member| member.id == view.own);
    let total = own.len() + others.len();
    let Some(own) = own.first().filter(|_| total >= SMALLEST) else { return RestartVerdict::Harmless };
    if etcd.serves(own_url) == Some(false) {
        return RestartVerdict::Idle(format!("etcd member {} does not serve: it has no leader", own.name));
    }
    let silent = silent_members(etcd, &others);
    let serving = others.len() - silent.len();
    if is_majority(serving, total) {
        return RestartVerdict::Harmless;
    }
    RestartVerdict::Harmful(format!(
        "etcd member {} is not restarted: without it {serving} of {total} members would serve, that is no quorum; {} not serve",
        own.name,
        match silent.as_slice() {
            [one] => format!("{one} does"),
            several => format!("{} do", several.join(" and ")),
        }
    ))
}

/// The names of the members that do not answer a read that needs a quorum.
fn silent_members(etcd: &Etcd, members: &[&ListedMember]) -> Vec<String> {
    let serve: Vec<bool> = thread::scope(|scope| {
        let asked: Vec<_> =
            members.iter().map(|member| scope.spawn(move || etcd.is_healthy(member))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
    });
    members.iter().zip(serve).filter(|(_, serves)| !serves).map(|(member, _)| name(member)).collect()
}

/// The name of a member; one that never started has none, and is named by its URL.
fn name(member: &ListedMember) -> String {
    if member.name.is_empty() { member.peer_urls.join(",") } else { member.name.clone() }
}

/// Starts the API server of this host if it ended: nothing restarts meanwhile that it would disturb.
fn start_api_server(job: &Job<'_>) {
    let services = &job.host.services;
    let states = services.states(&API_SERVERS.map(str::to_owned)).unwrap_or_default();
    let ended = |unit: &&str| {
        states.get(*unit).is_some_and(|state| state.load == "loaded" && state.active == "inactive")
    };
    let Some(unit) = API_SERVERS.into_iter().find(|unit| ended(unit)) else { return };
    job.note("the API server starts again, because the etcd member of this host is not restarted");
    if services.restart(unit, Instant::now() + START_TIMEOUT).is_err() {
        job.note("the API server has not started yet: the next run starts it");
    }
}

#[cfg(test)]
#[path = "member_restart_tests.rs"]
mod tests;
