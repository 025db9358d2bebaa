//! Changes of the members of etcd: masters that join or leave. Members change one after another: those that do not serve
//! leave first, then new ones join, then those that serve leave. After every change more than half of the members must
//! serve.

use kubeon_api::{HostAddress, Refusal, is_majority};

use crate::context::{Leaving, NODE_PROGRAM, ObservedHost, PlanContext, records};
use crate::output::EtcdQuorum;
use crate::quorum::{Members, Quorum, member_id, serves};

/// The changes of a plan, in the order in which they happen.
pub(crate) struct MembershipChange<'c, 'a> {
    /// Leaving members that are not known to serve.
    pub(crate) dead: Vec<&'c Leaving<'a>>,
    /// Hosts whose member has no vote.
    pub(crate) joining: Vec<&'c ObservedHost<'a>>,
    /// Leaving members that serve.
    pub(crate) living: Vec<&'c Leaving<'a>>,
}

/// The members on all hosts of the specification, whether they were observed or not.
pub(crate) fn members<'c>(context: &'c PlanContext<'_>) -> Members<'c> {
    let role = context.spec().member_role();
    let unreachable = context.unreachable.iter().filter(move |host| host.role == role);
    let observed = context.member_hosts().map(|host| (&host.name, host.facts));
    Members::of(observed, unreachable.map(|host| host.name.as_str()))
}

/// The members while hosts of the cluster could not be observed; `None` if it is not known that they have a quorum.
pub(crate) fn degraded_quorum(context: &PlanContext<'_>) -> Option<EtcdQuorum> {
    if context.unreachable.is_empty() {
        return None;
    }
    let members = members(context);
    let kept = members.quorum() == Quorum::Kept;
    kept.then(|| EtcdQuorum { serving: members.serving(), total: members.total() })
}

/// The host that executes changes of the members: one whose own member serves, if that is known of any. Hosts that join come
/// last.
pub(crate) fn executor<'c, 'a>(context: &'c PlanContext<'a>) -> &'c ObservedHost<'a> {
    if !context.has_external_etcd() {
        return context.executor();
    }
    let serves = |host: &&ObservedHost<'_>| serves(&host.name, host.facts) == Some(true);
    let stays = |host: &&ObservedHost<'_>| !context.intent.joins_etcd(host.address());
    let members = || context.member_hosts().filter(stays);
    let found = members().find(serves).or_else(|| members().next());
    found.or_else(|| context.member_hosts().next()).unwrap_or(&context.hosts[0])
}

impl<'c, 'a> MembershipChange<'c, 'a> {
    pub(crate) fn of(context: &'c PlanContext<'a>) -> Self {
        let members = members(context);
        let has_vote = |host: &&ObservedHost<'_>| members.is_listed() && members.contains(&host.name);
        let joins = |host: &&ObservedHost<'_>| context.intent.joins_etcd(host.address());
        let is_member = |host: &&Leaving<'_>| {
            let address = host.spec.cluster_address().ip();
            !members.is_listed() || members.contains(&host.name) || members.has_learner(&host.name, address)
        };
        let role = context.spec().member_role();
        let leaving = context.leaving.iter().filter(|host| host.role == role).filter(is_member);
        let (living, dead) = leaving.partition(|host| members.serves(&host.name));
        Self {
            dead,
            joining: context.member_hosts().filter(joins).filter(|host| !has_vote(host)).collect(),
            living,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dead.is_empty() && self.joining.is_empty() && self.living.is_empty()
    }

    /// Whether the member of the host at this address has no vote yet.
    pub(crate) fn joins(&self, host: HostAddress) -> bool {
        self.joining.iter().any(|joining| joining.address() == host)
    }
}

/// Why the members cannot be changed.
pub(crate) fn refusals(context: &PlanContext<'_>) -> Vec<Refusal> {
    let members = members(context);
    let unsafe_starts: Vec<Refusal> =
        emptied_refusals(context, &members).chain(moved_refusals(context, &members)).collect();
    if !unsafe_starts.is_empty() {
        return unsafe_starts;
    }
    let change = MembershipChange::of(context);
    if change.is_empty() {
        return Vec::new();
    }
    let alive = living_refusals(context, &members);
    if !alive.is_empty() {
        return alive;
    }
    let joining = change.joining.iter().map(|host| host.address());
    let first = joining.chain(change.dead.iter().chain(&change.living).map(|host| host.spec.address)).next();
    let Some(first) = first else { return Vec::new() };
    if !members.is_listed() {
        let reason = "cannot join or leave: no host reports the members of etcd; bring the hosts back";
        return vec![Refusal::host(first, reason)];
    }
    let stale = stale_refusals(context, &change, &members);
    if !stale.is_empty() {
        return stale;
    }
    let mut count = VoteCount { serving: members.serving(), total: members.total() };
    let votes = |host: &&&Leaving<'_>| members.contains(&host.name);
    let leaving = change.dead.iter().chain(&change.living).filter(votes).count();
    if is_majority(leaving, count.total + change.joining.len()) {
        let reason = format!(
            "cannot leave: {leaving} of {} members of etcd would leave at once, and that is a majority; remove one \
             after another",
            count.total
        );
        return change
            .living
            .first()
            .map(|host| Refusal::host(host.spec.address, reason))
            .into_iter()
            .collect();
    }
    count.refusals(&change, &members)
}

/// Masters of a running cluster whose host is empty: etcd would start their member as if it had never voted.
fn emptied_refusals<'c>(
    context: &'c PlanContext<'_>,
    members: &'c Members<'_>,
) -> impl Iterator<Item = Refusal> + 'c {
    let is_empty =
        |host: &&ObservedHost<'_>| host.facts.claim.is_none() && !host.has_executed(&member_id(&host.name));
    let was_member = |host: &&ObservedHost<'_>| {
        members.is_listed()
            && members.contains(&host.name)
            && !context.intent.joins_etcd(host.address())
            // A snapshot may list members of the same names, of hosts that no node runs on yet.
            && (context.has_external_etcd() || matches!(context.node(&host.name), Some(Some(_))))
    };
    context.member_hosts().filter(is_empty).filter(was_member).map(|host| {
        let reason = format!(
            "is empty, but {} is a member of etcd: its data is lost, or another host answers; remove the host, then add \
             it again",
            host.name
        );
        Refusal::host(host.address(), reason)
    })
}

/// Members whose address changed while the others have no quorum: nobody can tell the others the new address.
fn moved_refusals<'c>(
    context: &'c PlanContext<'_>,
    members: &'c Members<'_>,
) -> impl Iterator<Item = Refusal> + 'c {
    let lost = members.total() > 1 && members.quorum() == Quorum::Lost;
    let moved = context.member_hosts().filter(|host| context.has_moved(host)).filter(move |_| lost);
    moved.map(|host| {
        let reason = "its address changed, and without it etcd has no quorum that could learn the new one: bring the \
                      others back at their addresses first";
        Refusal::host(host.address(), reason)
    })
}

/// Masters that are replaced because they are lost, although they answer.
fn living_refusals(context: &PlanContext<'_>, members: &Members<'_>) -> Vec<Refusal> {
    let lost = context.leaving.iter().filter(|host| context.intent.lost_hosts.contains(&host.spec.address));
    let alive = lost.filter_map(|host| {
        let what = match &host.facts {
            Ok(_) => "its host answers",
            Err(_) if members.serves(&host.name) => "its etcd member serves",
            Err(_) => return None,
        };
        let reason = format!("is not lost: {what}; add the new one first, then remove this one");
        Some(Refusal::host(host.spec.address, reason))
    });
    alive.collect()
}

/// Masters that join and have the data of a member that was removed: etcd would not start with it.
fn stale_refusals(
    context: &PlanContext<'_>,
    change: &MembershipChange<'_, '_>,
    members: &Members<'_>,
) -> Vec<Refusal> {
    let has_data = |host: &&&ObservedHost<'_>| {
        records(&host.facts.journal, &member_id(&host.name)) && !members.has_learner(&host.name, host.ip())
    };
    let reason = format!(
        "still has the data of a member that was removed; reset it first: {NODE_PROGRAM} reset --cluster {}",
        context.spec().name
    );
    let stale = change.joining.iter().filter(has_data);
    stale.map(|host| Refusal::host(host.address(), &reason)).collect()
}

/// How many members there are and how many of them serve, while they change.
struct VoteCount {
    serving: usize,
    total: usize,
}

impl VoteCount {
    fn has_quorum(&self) -> bool {
        is_majority(self.serving, self.total)
    }

    fn refusal(&self, host: HostAddress, what: &str) -> Option<Refusal> {
        let Self { serving, total } = self;
        let reason = format!(
            "{what}: etcd would have {total} member{}, of which {serving} serve{}, and that is no quorum; bring the \
             others back first",
            if *total == 1 { "" } else { "s" },
            if *serving == 1 { "s" } else { "" },
        );
        (!self.has_quorum()).then(|| Refusal::host(host, reason))
    }

    /// Counts the changes one after another. The first one without a quorum is refused.
    fn refusals(&mut self, change: &MembershipChange<'_, '_>, members: &Members<'_>) -> Vec<Refusal> {
        for host in change.dead.iter().filter(|host| members.contains(&host.name)) {
            self.total -= 1;
            if let Some(refusal) = self.refusal(host.spec.address, "cannot leave") {
                return vec![refusal];
            }
        }
        for host in &change.joining {
            (self.serving, self.total) = (self.serving + 1, self.total + 1);
            if let Some(refusal) = self.refusal(host.address(), "cannot join") {
                return vec![refusal];
            }
        }
        for host in &change.living {
            (self.serving, self.total) = (self.serving - 1, self.total - 1);
            if let Some(refusal) = self.refusal(host.spec.address, "cannot leave") {
                return vec![refusal];
            }
        }
        Vec::new()
    }
}
