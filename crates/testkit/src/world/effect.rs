//! The smallest things that happen on a host. A process can die between any two of them.

use kubeon_api::Digest;
use kubeon_wire::{Fence, HostsEntry, Op};
use serde_json::Value;

/// One effect. Done twice it changes nothing the second time.
pub(super) enum Effect {
    /// The host is claimed, or its claim raised.
    Claim(Fence),
    /// A module is loaded or a parameter set.
    Kernel { key: String, value: String },
    /// The block in the hosts file.
    Names(Vec<HostsEntry>),
    /// A file.
    File { path: String, file: FileOnDisk },
    /// A part is unpacked.
    Part(Digest),
    /// A link.
    Link { path: String, target: String },
    /// A unit file.
    Unit { name: String, text: String },
    /// A unit that runs with something older is stopped, to be started again.
    Halt { name: String, watches: Vec<String> },
    /// A unit is enabled, and started where it does not run.
    Start { name: String, watches: Vec<String> },
    /// An image is imported.
    Image { name: String, part: Digest },
    /// An object is applied.
    Object { path: String, body: Value },
    /// A master's node keeps ordinary pods off, or takes them.
    Taint { node: String, present: bool },
    /// A node takes no new pods, and has none.
    Drain(String),
    /// A node takes new pods again.
    Uncordon(String),
    /// A node leaves the cluster.
    RemoveNode(String),
    /// A step is forgotten.
    Forget(String),
    /// A step is remembered.
    Journal { id: String, digest: String, op: Op },
    /// A unit is stopped and its file taken away.
    Stop(String),
    /// HostContent of one kind are taken away.
    Remove(HostContent),
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
