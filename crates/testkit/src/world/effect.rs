//! The smallest things that happen on a host. A process can die between any two of them.

use kubeon_api::Digest;
use kubeon_wire::{Content, Fence, HostStep, HostsEntry, Op};
use serde_json::Value;

use super::host::{FileOnDisk, Host};

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
    /// Traces of one kind are taken away.
    Remove(Traces),
}

/// Kinds of traces, in the order in which a reset takes them away.
#[derive(Debug, Clone, Copy)]
pub(super) enum Traces {
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

const ALL_TRACES: [Traces; 9] = [
    Traces::Images,
    Traces::Links,
    Traces::Files,
    Traces::Parts,
    Traces::Etcd,
    Traces::Kernel,
    Traces::Names,
    Traces::Journal,
    Traces::Claim,
];

/// The effects of an operation on a host, in order.
pub(super) fn effects_of(op: &Op, host: &Host) -> Result<Vec<Effect>, String> {
    Ok(match op.clone() {
        Op::Kernel { modules, parameters, optional: _ } => {
            let modules = modules.into_iter().map(|name| (format!("module {name}"), "loaded".to_owned()));
            modules.chain(parameters).map(|(key, value)| Effect::Kernel { key, value }).collect()
        }
        Op::Hosts { entries } => vec![Effect::Names(entries)],
        Op::Files { files } => files
            .into_iter()
            .map(|file| Ok(Effect::File { file: on_disk(file.mode, file.content)?, path: file.path }))
            .collect::<Result<_, String>>()?,
        Op::Part { name: _, digest, size: _, unpacked_size: _ } => vec![Effect::Part(digest)],
        Op::Links { links } => {
            links.into_iter().map(|link| Effect::Link { path: link.path, target: link.target }).collect()
        }
        Op::Service { name, unit, watches, ready: _ } => {
            let halt = Effect::Halt { name: name.clone(), watches: watches.clone() };
            vec![Effect::Unit { name: name.clone(), text: unit }, halt, Effect::Start { name, watches }]
        }
        Op::Image { name, part } => vec![Effect::Image { name, part }],
        Op::Objects { objects } => objects
            .into_iter()
            .map(|object| Effect::Object { path: object.path, body: object.body })
            .collect(),
        Op::Taint { node, present } => vec![Effect::Taint { node: node.to_string(), present }],
        Op::Drain { node } => vec![Effect::Drain(node.to_string())],
        Op::Uncordon { node } => vec![Effect::Uncordon(node.to_string())],
        Op::RemoveNode { node, forget } => {
            let forget = forget.into_iter().map(Effect::Forget);
            forget.chain([Effect::RemoveNode(node.to_string())]).collect()
        }
        Op::Await { checks: _ } => Vec::new(),
        Op::Reset { cluster } => reset(host, cluster.as_str())?,
    })
}

fn on_disk(mode: u32, content: Content) -> Result<FileOnDisk, String> {
    match content {
        Content::Text(text) => Ok(FileOnDisk { mode, text, secret: false }),
        Content::Sealed(text) => Ok(FileOnDisk { mode, text, secret: true }),
        Content::Secret(_) => Err("a reference to a secret reached the host".to_owned()),
    }
}

fn reset(host: &Host, cluster: &str) -> Result<Vec<Effect>, String> {
    if let Some(claim) = host.claim.as_ref().filter(|claim| claim.cluster.as_str() != cluster) {
        return Err(format!("the host belongs to {}", claim.cluster));
    }
    let stops = host.units.keys().cloned().map(Effect::Stop);
    Ok(stops.chain(ALL_TRACES.into_iter().map(Effect::Remove)).collect())
}

/// The entry of the step in the journal.
pub(super) fn remember(step: HostStep) -> Effect {
    Effect::Journal { id: step.id, digest: step.digest, op: step.op }
}
