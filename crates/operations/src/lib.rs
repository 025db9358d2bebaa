//! The operator's decisions: which operation of a cluster may run, what its Job is, how it ended, what the history
//! keeps, and which operation a changed `KubernetesCluster` asks for.
//!
//! ```text
//!   watches ──► Snapshot of one lane ──► turn ──► Plan::Read  what must be read first, then again
//!                     ▲                     └───► Plan::Do    writes in stages, notices, when to look again
//!                     └──────────────── the answers ◄──────────────┘
//! ```
//!
//! Pure: no clock, client, runtime or random value. A plan leaves nothing to decide: whoever carries it out sends what
//! stands in it, in order, and asks again with what came back. Killed anywhere, the next turn goes on from the world.

pub mod business;
pub mod cluster;
pub mod condition;
pub mod image;
pub mod job_state;
mod keep;
pub mod lane;
pub mod names;
pub mod operation;
pub mod order;
pub mod settings;
pub mod snapshot;
pub mod write;

pub use lane::Lane;
pub use settings::Settings;
pub use snapshot::{Data, Meta, Objects, Seen, Snapshot, Subject, Trouble};
pub use write::{Change, FAILURES, Kind, Notice, Plan, Target, Turn, Write};

/// What is to be done in a lane now.
#[must_use]
pub fn turn(snapshot: &Snapshot<'_>) -> Plan {
    match &snapshot.subject {
        Subject::Cluster(_) => cluster::turn(snapshot),
        Subject::Business(_) => business::turn(snapshot),
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
