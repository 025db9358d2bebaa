//! Whether etcd has a quorum, as far as the snapshot tells. A missing report does not count as a failed member.

use kubeon_api::HostName;
use kubeon_wire::{EtcdFact, Facts};

use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of the stage of the members.
pub(crate) const STAGE: StageName = StageName::Etcd;
const MEMBER: &str = "member";

/// What is known of etcd's quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quorum {
    /// A member answered a read that takes one.
    Kept,
    /// So many members are known not to serve that the others are too few.
    Lost,
    /// Neither is known.
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

/// What the masters' own words come to.
pub(crate) fn quorum<'a>(masters: impl Iterator<Item = (&'a HostName, &'a Facts)>) -> Quorum {
    let (mut all, mut bad) = (0, 0);
    for (name, facts) in masters {
        let etcd = facts.cluster.as_ref().map(|seen| &seen.etcd);
        if let Some(EtcdFact::Members(members)) = etcd
            && members.values().any(|healthy| *healthy == Some(true))
        {
            return Quorum::Kept;
        }
        all += 1;
        bad += usize::from(serves(name, facts) == Some(false));
    }
    if (all - bad) * 2 <= all { Quorum::Lost } else { Quorum::Unknown }
}

/// Whether the host's own member serves; `None` where that was not told.
pub(crate) fn serves(name: &HostName, facts: &Facts) -> Option<bool> {
    let told = match facts.cluster.as_ref().map(|seen| &seen.etcd) {
        Some(EtcdFact::Down) => Some(false),
        Some(EtcdFact::Members(members)) => members.get(name.as_str()).copied().flatten(),
        Some(EtcdFact::Untold) | None => None,
    };
    let member = member_id(name);
    // Where a member was never started, there is none that could say anything.
    told.or_else(|| (!facts.journal.iter().any(|entry| member == *entry.id)).then_some(false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubeon_wire::{ClusterFacts, JournalEntry, ResultState};

    /// Three masters, whose hosts tell these things; all of them started a member.
    fn told(etcd: [EtcdFact; 3]) -> Quorum {
        let hosts = ["h1", "h2", "h3"].map(|name| name.parse::<HostName>().unwrap());
        let seen: Vec<(HostName, Facts)> = hosts
            .into_iter()
            .zip(etcd)
            .map(|(name, etcd)| {
                let id = member_id(&name).to_string();
                let entry = JournalEntry { id, digest: String::new(), state: ResultState::UpToDate };
                let cluster = Some(ClusterFacts { etcd, ..ClusterFacts::default() });
                (name, Facts { journal: vec![entry], cluster, ..Facts::default() })
            })
            .collect();
        quorum(seen.iter().map(|(name, facts)| (name, facts)))
    }

    fn members(of: [Option<bool>; 3]) -> EtcdFact {
        EtcdFact::Members(["h1", "h2", "h3"].map(str::to_owned).into_iter().zip(of).collect())
    }

    #[test]
    fn silence_is_neither_a_quorum_nor_the_loss_of_one() {
        use EtcdFact::{Down, Untold};
        assert_eq!(told([Untold, Untold, Untold]), Quorum::Unknown);
        assert_eq!(told([Down, Untold, Untold]), Quorum::Unknown);
        assert_eq!(told([Down, Down, Untold]), Quorum::Lost);
        assert_eq!(told([Down, members([Some(false), Some(true), None]), Untold]), Quorum::Kept);
        let leaderless = || members([Some(false), None, None]);
        assert_eq!(told([leaderless(), Untold, Untold]), Quorum::Unknown);
        assert_eq!(told([leaderless(), members([None, Some(false), None]), Untold]), Quorum::Lost);
        // What one member says of another is no word of the other's.
        assert_eq!(told([members([None, Some(false), Some(false)]), Untold, Untold]), Quorum::Unknown);
    }

    #[test]
    fn where_no_member_was_ever_started_there_is_no_quorum() {
        let names = ["h1", "h2", "h3"].map(|name| name.parse::<HostName>().unwrap());
        let facts = Facts::default();
        assert_eq!(quorum(names.iter().map(|name| (name, &facts))), Quorum::Lost);
    }
}
