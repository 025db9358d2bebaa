//! When a turn's requests may go, and whether they still should.

use std::sync::atomic::{AtomicBool, Ordering};

use kubeon_link_kube::{Hands, Leave, Pace};
use tokio_util::sync::CancellationToken;

use crate::queue::{Class, Work};

/// Of one set of writes, or of reads. What nobody waits for stops when its lane is overtaken by one that somebody waits for;
/// writes that have begun hurry to their end instead, for what they tell belongs together.
pub(crate) struct Tempo {
    pace: Pace,
    overtaken: Option<CancellationToken>,
    begun: AtomicBool,
}

impl Tempo {
    /// As a lane's class wants it.
    pub fn of(work: &Work) -> Self {
        let (pace, overtaken) = match work.class {
            Class::Urgent => (Pace::Hurried, None),
            Class::Fresh => (Pace::Calm, Some(work.overtaken.clone())),
            Class::Rest => (Pace::Slow, Some(work.overtaken.clone())),
        };
        Self { pace, overtaken, begun: AtomicBool::new(false) }
    }

    /// In line, to the end.
    pub fn calm() -> Self {
        Self { pace: Pace::Calm, overtaken: None, begun: AtomicBool::new(false) }
    }

    /// Waits until a request may go; `None` when it should not go any more.
    pub async fn leave<'h>(&self, hands: &'h Hands) -> Option<Leave<'h>> {
        let Some(overtaken) = &self.overtaken else { return Some(hands.leave(self.pace).await) };
        tokio::select! {
            biased;
            () = overtaken.cancelled() => {}
            leave = hands.leave(self.pace) => return Some(leave),
        }
        if self.begun.load(Ordering::Relaxed) { Some(hands.leave(Pace::Hurried).await) } else { None }
    }

    /// A write goes: the others of its set follow.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};
    use kubeon_operations::Lane;

    use super::*;

    fn work(class: Class) -> Work {
        Work { lane: Lane::Cluster("a".to_owned()), class, overtaken: CancellationToken::new() }
    }

    fn hands() -> Hands {
        let config = Config::new("http://127.0.0.1:1".parse().unwrap());
        Hands::new(Client::try_from(config).unwrap(), "test", std::time::Duration::from_secs(1))
    }

    #[tokio::test]
    async fn what_is_overtaken_stops_before_it_begins_and_hurries_afterwards() {
        let hands = hands();
        for class in [Class::Fresh, Class::Rest] {
            let work = work(class);
            let (before, begun) = (Tempo::of(&work), Tempo::of(&work));
            assert!(before.leave(&hands).await.is_some() && begun.leave(&hands).await.is_some());
            begun.begin();
            work.overtaken.cancel();
            assert!(before.leave(&hands).await.is_none(), "{class:?}");
            assert!(begun.leave(&hands).await.is_some(), "{class:?}");
        }
    }

    #[tokio::test]
    async fn one_that_waits_in_line_is_overtaken_too() {
        let hands = hands();
        let mut line = Vec::new();
        while let Ok(leave) =
            tokio::time::timeout(std::time::Duration::from_millis(20), hands.leave(Pace::Calm)).await
        {
            line.push(leave);
        }
        let work = work(Class::Rest);
        let tempo = Tempo::of(&work);
        let (left, ()) = tokio::join!(tempo.leave(&hands), async { work.overtaken.cancel() });
        assert!(left.is_none());
    }

    #[tokio::test]
    async fn one_that_somebody_waits_for_goes_on() {
        let (hands, work) = (hands(), work(Class::Urgent));
        work.overtaken.cancel();
        assert!(Tempo::of(&work).leave(&hands).await.is_some());
        assert!(Tempo::calm().leave(&hands).await.is_some());
    }
}
