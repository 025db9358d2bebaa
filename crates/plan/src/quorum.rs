//! Whether etcd has a quorum according to the snapshot. A missing report does not count as a failed member.

use kubeon_api::HostName;
use kubeon_wire::{EtcdFact, Facts};

use crate::context::records;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The stage of the etcd members.
pub(crate) const STAGE: StageName = StageName::Etcd;
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

/// The state of the quorum according to the reports of the masters.
pub(crate) fn quorum<'a>(masters: impl Iterator<Item = (&'a HostName, &'a Facts)>) -> Quorum {
    let (mut all, mut down) = (0, 0);
    for (name, facts) in masters {
        let etcd = facts.cluster.as_ref().map(|cluster| &cluster.etcd);
        if let Some(EtcdFact::Members(members)) = etcd
            && members.values().any(|healthy| *healthy == Some(true))
        {
            return Quorum::Kept;
        }
        all += 1;
        down += usize::from(serves(name, facts) == Some(false));
    }
    if (all - down) * 2 <= all { Quorum::Lost } else { Quorum::Unknown }
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

    /// The quorum of three masters that report `etcd`; each of them started a member before.
    fn quorum_of(etcd: [EtcdFact; 3]) -> Quorum {
        let hosts = ["h1", "h2", "h3"].map(|name| name.parse::<HostName>().unwrap());
        let masters: Vec<(HostName, Facts)> = hosts
            .into_iter()
            .zip(etcd)
            .map(|(name, etcd)| {
                let id = member_id(&name).to_string();
                let entry = JournalEntry { id, digest: String::new(), state: ResultState::UpToDate };
                let cluster = Some(ClusterFacts { etcd, ..ClusterFacts::default() });
                (name, Facts { journal: vec![entry], cluster, ..Facts::default() })
            })
            .collect();
        quorum(masters.iter().map(|(name, facts)| (name, facts)))
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
        assert_eq!(quorum(names.iter().map(|name| (name, &facts))), Quorum::Lost);
    }
}
