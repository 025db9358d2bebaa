//! Messages of `kubeon-node apply`: requests on its standard input, events on its standard output.

use std::fmt;
use std::net::Ipv4Addr;
use std::time::Duration;

use kubeon_api::{ClusterName, HostRole, Version};
use serde::{Deserialize, Serialize};

use crate::op::Op;

/// The interval in which the engine sends a [`Request::Ping`] to a host with an open session if it sends no
/// other request.
pub const PING_INTERVAL: Duration = Duration::from_secs(5);

/// How long a host waits for a request before it ends the session. A host is not notified when the engine
/// loses power or its network; without the limit, it would stay locked until sshd closes the connection,
/// hours later. The limit covers several pings, so that one delayed ping does not end a session.
pub const SILENCE_LIMIT: Duration = PING_INTERVAL.saturating_mul(6);

/// How long running steps may continue after their session ended.
pub const SESSION_GRACE: Duration = Duration::from_secs(8);

/// How long a session may lock its host after its engine was killed or disconnected.
pub const ORPHAN_LIFE: Duration = SILENCE_LIMIT.saturating_add(SESSION_GRACE);

/// One line on standard input. After a [`Request::Run`] of an [`Op::Part`] the part's `size` bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Request {
    /// The first line: the cluster and the generation of the writer. It claims a free host for the cluster.
    Open(Fence),
    /// Forward the parts of this session to other hosts until it ends.
    ForwardParts(ForwardingIdentity),
    /// Execute a step. Steps start in the order received and run in parallel.
    Run(HostStep),
    /// No step; the engine is still connected.
    Ping,
}

/// How the hosts of one run know each other: each shows a certificate of an authority that exists for this run only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardingIdentity {
    /// The address of this host in the cluster's network.
    pub address: Ipv4Addr,
    /// The certificate of the authority, PEM.
    pub authority: String,
    /// The certificate of this host for its address, PEM.
    pub certificate: String,
    /// The private key of this host, PEM (PKCS #8).
    pub key: String,
}

impl fmt::Debug for ForwardingIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardingIdentity").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The generation fence: a host refuses a writer with a lower generation than a previous writer, and any
/// writer of another cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fence {
    /// The cluster that the host belongs to.
    pub cluster: ClusterName,
    /// The identity of the cluster. It differs between two clusters with the same name.
    pub uid: String,
    /// The generation of the plan; it increases with every plan that changes hosts.
    pub generation: u64,
    /// The Kubernetes version after the plan.
    pub version: Version,
    /// The role of the host in the cluster.
    pub role: HostRole,
}

/// A step as a host receives it, with resolved secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostStep {
    /// Identity, stable between plans: `etcd/member@h1`.
    pub id: String,
    /// SHA-256 over the content of the step as planned, with references to secrets. The journal records it.
    pub digest: String,
    /// Seconds after which the step counts as failed.
    pub timeout_seconds: u32,
    /// Whether the step is recorded: in the journal, or in the cluster if `record_in` is set.
    pub journal: bool,
    /// The path of the API object in which the cluster records the step; `None` for the journal of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_in: Option<String>,
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
    /// The answer to [`Request::ForwardParts`].
    Forwarding {
        /// The port on the address of the identity.
        port: u16,
    },
    /// Parts cannot be forwarded. The session continues without it.
    NotForwarding {
        /// Why, in one sentence.
        cause: String,
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
    /// Bytes were sent or unpacked.
    Progress {
        /// The step.
        id: String,
        /// Bytes so far.
        done: u64,
        /// Bytes in total.
        total: u64,
    },
    /// A message for users about the progress or an adaptation of a step.
    Note {
        /// The step.
        id: String,
        /// One line of text.
        text: String,
    },
    /// All bytes of a part arrived and were checked. It may still be unpacked; the bytes of another part may follow.
    Received {
        /// The step.
        id: String,
    },
    /// A step is still running. Sent every few seconds while it waits, and when what it waits for has changed.
    Working {
        /// The step.
        id: String,
    },
    /// A step is done and recorded in the journal.
    #[serde(rename_all = "camelCase")]
    Done {
        /// The step.
        id: String,
        /// Whether anything on the host changed.
        changed: bool,
        /// How long it took, in milliseconds.
        milliseconds: u64,
    },
    /// A step failed. It is not recorded in the journal.
    Failed {
        /// The step.
        id: String,
        /// Why.
        failure: StepFailure,
    },
}

/// Why a step failed, for users and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFailure {
    /// The kind of failure.
    pub category: Category,
    /// The failure and its cause, in one sentence.
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

/// The kind of a failure. It decides whether a retry is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Category {
    /// The host did not answer or the connection broke. An immediate retry may help.
    Unreachable,
    /// The login was refused.
    Denied,
    /// The SSH key of the host is not known. Nothing secret was sent to the host.
    UnknownHostKey,
    /// The SSH key of the host is revoked or is not the pinned key: another machine may answer in its place.
    HostKeyMismatch,
    /// A digest did not match.
    Corrupt,
    /// Disk space, memory or another resource is exhausted.
    Exhausted,
    /// A condition was not met in time. A retry may help.
    Timeout,
    /// The host belongs to another cluster, another cluster is changing it, or a writer with a newer
    /// generation used it.
    Fenced,
    /// Another session of the same cluster locks the host. If the engine of that session was killed, the
    /// session ends within [`ORPHAN_LIFE`], so retrying to open a session may help. A step is not retried.
    Held,
    /// The host does not support the operation.
    Unsupported,
    /// A program or call on the host failed.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

impl Category {
    /// Whether a retry of the same step may succeed without other changes.
    #[must_use]
    pub fn retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::Timeout)
    }

    /// Whether the host answers and no login is possible until a user changes something.
    #[must_use]
    pub fn is_denied(self) -> bool {
        matches!(self, Self::Denied | Self::UnknownHostKey | Self::HostKeyMismatch)
    }
}
