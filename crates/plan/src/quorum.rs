//! The etcd members of a cluster: whether they have a quorum, and which of them may be restarted. It is judged
//! by the reports of the members, not by which hosts answer. A missing report does not count as a failed member. Each host asks the
//! members again directly before its own one restarts, because these reports are older.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::{HostName, is_majority};
use kubeon_wire::{EtcdFact, Facts};

use crate::context::records;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The stage of the etcd members.
pub(crate) const STAGE: StageName = StageName::new("etcd");
const MEMBER: &str = "member";

/// The known state of the etcd quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quorum {
    /// A member answered a read that requires a quorum.
    Kept,
    /// Too many members are known to be down for the others to form a quorum.
    Lost,
    /// The reports prove neither.
    Unknown,
}

/// The step that runs the member of a host.
pub(crate) fn member_id(host: &HostName) -> StepId {
    StepId::new(STAGE, MEMBER, host)
}

/// Whether the step runs a member.
pub(crate) fn is_member(id: &StepId) -> bool {
    id.stage() == STAGE && id.what() == MEMBER
}

/// The members of a cluster.
pub(crate) struct Members<'a> {
    /// The masters that were observed.
    observed: Vec<(&'a HostName, &'a Facts)>,
    /// The members on other hosts, by name: their health as the observed members report it; `None` if no
    /// report proves it.
    others: BTreeMap<&'a str, Option<bool>>,
    /// Whether a member listed the members.
    is_listed: bool,
}

impl<'a> Members<'a> {
    /// The members that the observed masters list. If none of them lists its members, every observed and every
    /// `unreachable` master counts as a member.
    pub(crate) fn of(
        observed: impl Iterator<Item = (&'a HostName, &'a Facts)>,
        unreachable: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut observed: Vec<_> = observed.collect();
        let mut others: BTreeMap<&str, Option<bool>> = BTreeMap::new();
        let mut lists = observed.iter().filter_map(|(_, facts)| listed(facts)).peekable();
        let is_listed = lists.peek().is_some();
        if !is_listed {
            others.extend(unreachable.map(|name| (name, None)));
        }
        for (name, healthy) in lists.flatten() {
            let known = others.entry(name.as_str()).or_default();
            // A read through one member proves that the member is healthy, whatever another one could not see.
            *known = if *known == Some(true) { *known } else { healthy.or(*known) };
        }
        // A master that joins is no member before it has a vote.
        observed.retain(|(name, _)| !is_listed || others.contains_key(name.as_str()));
        for (name, _) in &observed {
            others.remove(name.as_str());
        }
        Self { observed, others, is_listed }
    }

    /// Whether a member listed the members.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Whether a member of this name and address exists that has no vote.
    pub(crate) fn has_learner(&self, name: &HostName, address: Ipv4Addr) -> bool {
        let url = format!("https://{address}:2380");
        let mut reports = self.observed.iter().filter_map(|(_, facts)| facts.cluster.as_ref());
        reports.any(|report| report.learners.contains(name.as_str()) || report.learners.contains(&url))
    }

    /// Whether a member of this name has a vote.
    pub(crate) fn contains(&self, name: &HostName) -> bool {
        self.others.contains_key(name.as_str()) || self.observed.iter().any(|(member, _)| *member == name)
    }

    /// Whether the member of this name is known to serve.
    pub(crate) fn serves(&self, name: &HostName) -> bool {
        self.others.get(name.as_str()) == Some(&Some(true))
            || self
                .observed
                .iter()
                .any(|(member, facts)| *member == name && serves(member, facts) == Some(true))
    }

    /// The number of members that are known to serve.
    pub(crate) fn serving(&self) -> usize {
        let observed = self.observed.iter().filter(|(name, facts)| serves(name, facts) == Some(true));
        observed.count() + self.others.values().filter(|healthy| **healthy == Some(true)).count()
    }

    /// The number of members.
    pub(crate) fn total(&self) -> usize {
        self.observed.len() + self.others.len()
    }

    /// The number of members that serve or that the plan can start: those of observed masters, and those that
    /// are reported as healthy.
    pub(crate) fn available(&self) -> usize {
        self.observed.len() + self.others.values().filter(|healthy| **healthy == Some(true)).count()
    }

    /// Whether the available members are a majority.
    pub(crate) fn can_have_quorum(&self) -> bool {
        is_majority(self.available(), self.total())
    }

    /// Whether the other members keep the quorum while one available member restarts. If every member is
    /// available, members may restart one after another: then the smallest clusters pause, and none stops.
    pub(crate) fn may_restart_one(&self) -> bool {
        let others = self.available().saturating_sub(1);
        self.available() == self.total() || is_majority(others, self.total())
    }

    /// The state of the quorum.
    pub(crate) fn quorum(&self) -> Quorum {
        let healthy = |facts: &&Facts| {
            listed(facts).is_some_and(|members| members.values().any(|healthy| *healthy == Some(true)))
        };
        if self.observed.iter().any(|(_, facts)| healthy(facts)) {
            return Quorum::Kept;
        }
        let down = self.observed.iter().filter(|(name, facts)| serves(name, facts) == Some(false)).count()
            + self.others.values().filter(|healthy| **healthy == Some(false)).count();
        if is_majority(self.total() - down, self.total()) { Quorum::Unknown } else { Quorum::Lost }
    }
}

/// The members that the member of the host lists.
fn listed(facts: &Facts) -> Option<&BTreeMap<String, Option<bool>>> {
    match facts.cluster.as_ref().map(|cluster| &cluster.etcd) {
        Some(EtcdFact::Members(members)) => Some(members),
        _ => None,
    }
}

/// Whether the member of the host serves; `None` if that was not reported.
pub(crate) fn serves(name: &HostName, facts: &Facts) -> Option<bool> {
    let reported = match facts.cluster.as_ref().map(|cluster| &cluster.etcd) {
        Some(EtcdFact::Down) => Some(false),
        Some(EtcdFact::Members(members)) => members.get(name.as_str()).copied().flatten(),
        Some(EtcdFact::Unknown) | None => None,
    };
    let member = member_id(name);
    // A member that was never started does not serve.
    reported.or_else(|| (!records(&facts.journal, &member)).then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeon_wire::{ClusterFacts, JournalEntry, ResultState};

    /// Masters that report `etcd`; each of them started a member before.
    fn masters(etcd: impl IntoIterator<Item = EtcdFact>) -> Vec<(HostName, Facts)> {
        let masters = etcd.into_iter().enumerate().map(|(index, etcd)| {
            let name: HostName = format!("h{}", index + 1).parse().unwrap();
            let id = member_id(&name).to_string();
            let entry = JournalEntry { id, digest: String::new(), state: ResultState::UpToDate };
            let cluster = Some(ClusterFacts { etcd, ..ClusterFacts::default() });
            (name, Facts { journal: vec![entry], cluster, ..Facts::default() })
        });
        masters.collect()
    }

    fn quorum_of(etcd: [EtcdFact; 3]) -> Quorum {
        let masters = masters(etcd);
        Members::of(masters.iter().map(|(name, facts)| (name, facts)), std::iter::empty()).quorum()
    }

    fn members(of: [Option<bool>; 3]) -> EtcdFact {
        EtcdFact::Members(["h1", "h2", "h3"].map(str::to_owned).into_iter().zip(of).collect())
    }

    #[test]
    fn a_missing_report_proves_neither_a_quorum_nor_its_loss() {
        use EtcdFact::{Down, Unknown};
        assert_eq!(quorum_of([Unknown, Unknown, Unknown]), Quorum::Unknown);
        assert_eq!(quorum_of([Down, Unknown, Unknown]), Quorum::Unknown);
        assert_eq!(quorum_of([Down, Down, Unknown]), Quorum::Lost);
        assert_eq!(quorum_of([Down, members([Some(false), Some(true), None]), Unknown]), Quorum::Kept);
        let leaderless = || members([Some(false), None, None]);
        assert_eq!(quorum_of([leaderless(), Unknown, Unknown]), Quorum::Unknown);
        assert_eq!(quorum_of([leaderless(), members([None, Some(false), None]), Unknown]), Quorum::Lost);
        // The report of one member about another does not replace the report of the other.
        assert_eq!(quorum_of([members([None, Some(false), Some(false)]), Unknown, Unknown]), Quorum::Unknown);
    }

    #[test]
    fn without_a_started_member_there_is_no_quorum() {
        let names = ["h1", "h2", "h3"].map(|name| name.parse::<HostName>().unwrap());
        let facts = Facts::default();
        let members = Members::of(names.iter().map(|name| (name, &facts)), std::iter::empty());
        assert_eq!(members.quorum(), Quorum::Lost);
    }

    /// Quorum and restart of three members of which the last is on a host that was not observed.
    fn with_unreachable(reports: [Option<bool>; 3]) -> (usize, bool, bool) {
        let masters = masters([members(reports), EtcdFact::Unknown]);
        let dead: HostName = "h3".parse().unwrap();
        let members =
            Members::of(masters.iter().map(|(name, facts)| (name, facts)), std::iter::once(dead.as_str()));
        (members.available(), members.can_have_quorum(), members.may_restart_one())
    }

    #[test]
    fn no_member_restarts_while_another_one_does_not_serve() {
        assert_eq!(with_unreachable([Some(true), Some(true), None]), (2, true, false));
        assert_eq!(with_unreachable([Some(true), Some(true), Some(false)]), (2, true, false));
    }

    #[test]
    fn a_member_on_a_host_without_a_login_counts_if_it_serves() {
        assert_eq!(with_unreachable([Some(true), Some(true), Some(true)]), (3, true, true));
    }

    #[test]
    fn one_of_three_members_is_no_quorum() {
        let masters = masters([members([Some(false), None, None])]);
        let dead = ["h2", "h3"].map(|name| name.parse::<HostName>().unwrap());
        let members =
            Members::of(masters.iter().map(|(name, facts)| (name, facts)), dead.iter().map(HostName::as_str));
        assert_eq!((members.available(), members.total()), (1, 3));
        assert!(!members.can_have_quorum() && !members.may_restart_one());
    }

    #[test]
    fn five_members_spare_one_more() {
        let reports = ["h1", "h2", "h3", "h4"].map(|name| (name.to_owned(), Some(true)));
        let masters = masters(std::iter::repeat_n(EtcdFact::Members(reports.into()), 4));
        let dead: HostName = "h5".parse().unwrap();
        let members =
            Members::of(masters.iter().map(|(name, facts)| (name, facts)), std::iter::once(dead.as_str()));
        assert!(members.may_restart_one());
    }
}
