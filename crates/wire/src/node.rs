//! Messages of `kubeon-node apply`: requests on its standard input, events on its standard output.

use std::fmt;
use std::time::Duration;

use kubeon_api::{ClusterName, HostRole, Version};
use serde::{Deserialize, Serialize};

use crate::op::Op;

/// The longest that an engine says nothing to a host with an open session: then it sends a [`Request::Ping`].
pub const PING_INTERVAL: Duration = Duration::from_secs(5);

/// How long a host waits for a word of the engine before it ends the session. Nothing tells a host that the engine
/// lost its power or its network: it would stay locked until sshd gives the connection up, hours later. Several
/// pings fit in, so that one held up on a slow line ends nothing.
pub const SILENCE_LIMIT: Duration = PING_INTERVAL.saturating_mul(6);

/// How long a host gives the steps under way to finish once their session ends.
pub const SESSION_GRACE: Duration = Duration::from_secs(8);

/// How long a session may go on holding its host after its engine is gone.
pub const ORPHAN_LIFE: Duration = SILENCE_LIMIT.saturating_add(SESSION_GRACE);

/// One line on standard input. After a [`Request::Run`] of an [`Op::Part`] the part's `size` bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// First line: who writes, and under which generation. Claims a free host for the cluster.
    Open(Fence),
    /// Do a step. Steps run in the order received, several at a time where the engine sends them so.
    Run(HostStep),
    /// Nothing is to do: the engine is still there.
    Ping,
}

/// The generation fence: a host refuses a writer with a lower generation than it has seen, and any
/// writer of another cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// The cluster that the host belongs to.
    pub cluster: ClusterName,
    /// The cluster's identity: two clusters of one name differ here.
    pub uid: String,
    /// The plan's generation; grows with every plan that writes.
    pub generation: u64,
    /// The Kubernetes version that the plan leads to.
    pub version: Version,
    /// What the host does for the cluster.
    pub role: HostRole,
}

/// A step as a host receives it: secrets resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStep {
    /// Identity within the plan, stable between plans: `h1/etcd/service`.
    pub id: String,
    /// SHA-256 over the step's content as planned (secrets by reference); goes into the journal.
    pub digest: String,
    /// Seconds after which the step counts as failed.
    pub timeout_seconds: u32,
    /// Whether the journal remembers it: `false` for checks, which must run every time.
    pub journal: bool,
    /// The effect.
    pub op: Op,
}

/// One line on standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "event")]
pub enum Event {
    /// The fence was accepted; steps may be sent.
    #[serde(rename_all = "camelCase")]
    Opened {
        /// Version of the node program.
        program: String,
    },
    /// The fence was refused; the program ends.
    Refused {
        /// Why.
        failure: StepFailure,
    },
    /// A step started.
    Started {
        /// The step.
        id: String,
    },
    /// Something countable moved on.
    Progress {
        /// The step.
        id: String,
        /// So far, bytes.
        done: u64,
        /// In all, bytes.
        total: u64,
    },
    /// A word on what is happening or was adapted, for people.
    Note {
        /// The step.
        id: String,
        /// One line.
        text: String,
    },
    /// A step is done and in the journal.
    #[serde(rename_all = "camelCase")]
    Done {
        /// The step.
        id: String,
        /// Whether anything on the host changed.
        changed: bool,
        /// How long it took.
        milliseconds: u64,
    },
    /// A step failed; nothing of it is in the journal.
    Failed {
        /// The step.
        id: String,
        /// Why.
        failure: StepFailure,
    },
}

/// Why a step failed, for people and for machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFailure {
    /// The kind of failure.
    pub category: Category,
    /// One sentence: what failed and why.
    pub cause: String,
    /// The last lines of the program's log, oldest first; may be empty.
    pub log: Vec<String>,
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for StepFailure {}

/// The kind of a failure; decides what may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Category {
    /// The host did not answer or the connection broke. Trying again may help at once.
    Unreachable,
    /// Login was refused, or the host's key is not the pinned one.
    Denied,
    /// A digest did not match.
    Corrupt,
    /// Disk, memory or another limit.
    Exhausted,
    /// It did not become true in time. Trying again may help.
    Timeout,
    /// The host belongs to another cluster, is being changed by one, or has seen a newer generation.
    Fenced,
    /// Another session of the same cluster holds the host. Where its engine is gone it ends within [`ORPHAN_LIFE`],
    /// so that opening again may help; a step is not tried again for it.
    Held,
    /// The host cannot do this.
    Unsupported,
    /// A program or call on the host failed.
    Failed,
    /// The run was told to stop.
    Cancelled,
}

impl Category {
    /// Whether the same step may succeed when tried again without anything else changing.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout)
    }
}
