//! The smallest changes of a host. A process can die between any two of them.

use std::net::Ipv4Addr;

use kubeon_api::Digest;
use kubeon_wire::{Fence, HostsEntry, Op};
use serde_json::Value;

/// One idempotent effect.
pub(super) enum Effect {
    /// The host is claimed, or the generation of its claim is increased.
    Claim(Fence),
    /// A module is loaded or a parameter set.
    Kernel { key: String, value: String },
    /// The block in the hosts file is written.
    Names(Vec<HostsEntry>),
    /// A file is written.
    File { path: String, file: FileOnDisk },
    /// A part is unpacked.
    Part(Digest),
    /// A link is created or replaced.
    Link { path: String, target: String },
    /// A unit file is written.
    Unit { name: String, text: String },
    /// A unit that runs with an older configuration is stopped before a restart.
    Halt { name: String, watches: Vec<String> },
    /// A unit is enabled, and started if it is not running.
    Start { name: String, watches: Vec<String> },
    /// An image is imported.
    Image { name: String, part: Digest },
    /// An object is applied.
    Object { path: String, body: Value },
    /// An object is deleted.
    RemoveObject(String),
    /// The cluster forgets that a step was executed.
    ForgetClusterRecord(String),
    /// The taint of a master is set or removed.
    Taint { node: String, present: bool },
    /// A node gets its declared taints.
    NodeTaints { node: String, taints: Vec<String> },
    /// A parameter gets the value from before the cluster.
    RestoreParameter(String),
    /// A node is cordoned and its pods are evicted.
    Drain(String),
    /// A node is uncordoned.
    Uncordon(String),
    /// A node is deleted.
    RemoveNode(String),
    /// A member of etcd without a vote is added.
    AddLearner(String),
    /// The list with which the member of the host starts is written.
    WriteMembers,
    /// The learner of the host gets a vote.
    Promote,
    /// The members reach one of them at another address.
    MoveMember { name: String, address: Ipv4Addr },
    /// A member of etcd is removed.
    RemoveMember(String),
    /// The data of the host's member is made out of the snapshot, for a cluster with these members.
    RestoreMember(Vec<String>),
    /// A unit is stopped; its file stays.
    Down(String),
    /// A file is removed.
    Erase(String),
    /// The journal forgets a unit and files.
    Forget { name: String, files: Vec<String> },
    /// The journal forgets checks.
    ForgetChecks(Vec<String>),
    /// A step is recorded in an object of the cluster.
    ClusterRecord { object: String, id: String, digest: String },
    /// A step is recorded in the journal.
    Journal { id: String, digest: String, op: Op },
    /// A unit is stopped and its file is removed.
    Stop(String),
    /// Content of one kind is removed.
    Remove(HostContent),
}

impl Effect {
    /// Whether the host asks its API server for it.
    pub(super) fn is_through_api(&self) -> bool {
        matches!(
            self,
            Self::Object { .. }
                | Self::RemoveObject(_)
                | Self::ForgetClusterRecord(_)
                | Self::ClusterRecord { .. }
                | Self::Taint { .. }
                | Self::NodeTaints { .. }
                | Self::Drain(_)
                | Self::Uncordon(_)
                | Self::RemoveNode(_)
        )
    }
}

/// A file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileOnDisk {
    pub mode: u32,
    pub text: String,
    pub secret: bool,
}

/// What a cluster leaves on a host, in the order in which a reset removes it.
#[derive(Debug, Clone, Copy)]
pub(super) enum HostContent {
    Images,
    Links,
    Files,
    Parts,
    Etcd,
    Kernel,
    Names,
    Journal,
    Claim,
}

pub(super) const ALL_CONTENT: [HostContent; 9] = [
    HostContent::Images,
    HostContent::Links,
    HostContent::Files,
    HostContent::Parts,
    HostContent::Etcd,
    HostContent::Kernel,
    HostContent::Names,
    HostContent::Journal,
    HostContent::Claim,
];
