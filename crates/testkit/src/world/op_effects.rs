//! The effects that an operation has on a host.

use kubeon_wire::{Content, HostStep, Op};

use super::effect::{ALL_CONTENT, Effect, FileOnDisk};
use super::host::SimulatedHost;
use super::pods::service_of;

/// The effects of an operation on a host, in order.
pub(super) fn effects_of(op: &Op, host: &SimulatedHost) -> Result<Vec<Effect>, String> {
    Ok(match op.clone() {
        Op::Kernel { modules, parameters, optional: _ } => {
            let wanted = |key: &&String| key.starts_with("module ") || parameters.contains_key(*key);
            let dropped: Vec<String> = host.kernel.keys().filter(|key| !wanted(key)).cloned().collect();
            let modules = modules.into_iter().map(|name| (format!("module {name}"), "loaded".to_owned()));
            let set = modules.chain(parameters).map(|(key, value)| Effect::Kernel { key, value });
            dropped.into_iter().map(Effect::RestoreParameter).chain(set).collect()
        }
        Op::Hosts { entries } => vec![Effect::Names(entries)],
        Op::Files { files } => files
            .into_iter()
            .map(|file| Ok(Effect::File { file: on_disk(file.mode, file.content)?, path: file.path }))
            .collect::<Result<_, String>>()?,
        Op::Part { name: _, digest, size: _, unpacked_size: _, source: _ } => vec![Effect::Part(digest)],
        Op::Links { links } => {
            links.into_iter().map(|link| Effect::Link { path: link.path, target: link.target }).collect()
        }
        Op::Service { name, unit, watches, ready: _ } => {
            let name = service_of(&name);
            let halt = Effect::Halt { name: name.clone(), watches: watches.clone() };
            vec![Effect::Unit { name: name.clone(), text: unit }, halt, Effect::Start { name, watches }]
        }
        Op::Image { name, part } => vec![Effect::Image { name, part }],
        Op::Objects { objects } => objects
            .into_iter()
            .map(|object| Effect::Object { path: object.path, body: object.body })
            .collect(),
        Op::RemoveObjects { paths, step } => {
            let removals = paths.into_iter().map(Effect::RemoveObject);
            removals.chain([Effect::ForgetClusterRecord(step)]).collect()
        }
        Op::Taint { node, present } => vec![Effect::Taint { node: node.to_string(), present }],
        Op::NodeTaints { node, taints } => {
            let taints = taints.iter().map(ToString::to_string).collect();
            vec![Effect::NodeTaints { node: node.to_string(), taints }]
        }
        Op::Drain { node } => vec![Effect::Drain(node.to_string())],
        Op::Uncordon { node } => vec![Effect::Uncordon(node.to_string())],
        Op::RemoveNode { node } => vec![Effect::RemoveNode(node.to_string())],
        Op::JoinEtcd { name, .. } => vec![Effect::AddLearner(name.to_string()), Effect::WriteMembers],
        Op::PromoteMember { .. } => vec![Effect::Promote],
        Op::MoveMember { name, address } => {
            vec![Effect::MoveMember { name: name.to_string(), address }]
        }
        Op::RemoveMember { name, .. } => vec![Effect::RemoveMember(name.to_string())],
        Op::RestoreMember { members, .. } => {
            let mut names: Vec<String> = members.iter().map(|member| member.name.to_string()).collect();
            names.sort_unstable();
            vec![Effect::RestoreMember(names)]
        }
        Op::StopServices { units, before_member: _ } => {
            units.iter().map(|unit| Effect::Down(service_of(unit))).collect()
        }
        Op::RemoveService { name, files } => {
            let name = service_of(&name);
            let erased = files.iter().cloned().map(Effect::Erase);
            let forget = Effect::Forget { name: name.clone(), files: files.clone() };
            [Effect::Stop(name)].into_iter().chain(erased).chain([forget]).collect()
        }
        Op::ForgetChecks { steps } => vec![Effect::ForgetChecks(steps)],
        Op::ForgetIdentity { .. } => vec![Effect::Stop("kubelet.service".to_owned())],
        // No simulated host has a firewall, and no simulated cluster has Secrets. The simulated haproxy
        // reads its configuration for every connection.
        Op::Reload { .. }
        | Op::Firewall { .. }
        | Op::EndLeadership { .. }
        | Op::RewriteSecrets { .. }
        | Op::Await { .. } => Vec::new(),
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

fn reset(host: &SimulatedHost, cluster: &str) -> Result<Vec<Effect>, String> {
    if let Some(claim) = host.claim.as_ref().filter(|claim| claim.cluster.as_str() != cluster) {
        return Err(format!("the host belongs to {}", claim.cluster));
    }
    let stops = host.units.keys().cloned().map(Effect::Stop);
    Ok(stops.chain(ALL_CONTENT.into_iter().map(Effect::Remove)).collect())
}

/// The effect that records the step in the journal or in the cluster.
pub(super) fn record(step: HostStep) -> Effect {
    if let Some(object) = step.record_in {
        return Effect::ClusterRecord { object, id: step.id, digest: step.digest };
    }
    Effect::Journal { id: step.id, digest: step.digest, op: step.op }
}
