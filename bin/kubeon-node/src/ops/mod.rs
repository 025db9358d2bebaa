//! The effects of steps: one module for each kind. Every effect is idempotent.

pub mod drain;
pub mod etcd;
pub mod files;
pub mod forget_checks;
pub mod hosts;
pub mod identity;
pub mod image;
pub mod kernel;
pub mod leadership;
pub mod links;
mod member_clients;
pub mod member_restart;
mod member_start;
pub mod node;
pub mod objects;
pub mod part;
pub mod part_stream;
pub mod reload;
pub mod remove_objects;
pub mod remove_service;
pub mod secrets;
pub mod service;
pub mod swap;
pub mod taints;

use kubeon_wire::{Op, StepFailure};

use crate::failure::failed;
use crate::job::{Job, StepEffect};
use crate::{checks, firewall, reset};
use part_stream::PartReader;

/// Runs one effect. Only a part has bytes.
///
/// # Errors
/// The failure of the effect. The effect may be incomplete; repeating it completes it.
pub fn run(job: &Job<'_>, op: &Op, bytes: Option<PartReader>) -> Result<StepEffect, StepFailure> {
    match op {
        Op::Kernel { modules, parameters, optional } => kernel::run(job, modules, parameters, optional),
        Op::Hosts { entries } => hosts::run(job, entries),
        Op::Firewall { link, lets_in, pod_links } => firewall::open(job, link, lets_in, pod_links),
        Op::Files { files } => files::run(job, files),
        Op::Part { name, digest, size, unpacked_size, source: _ } => {
            let part = part::PartSpec { name, digest, size: *size, unpacked_size: *unpacked_size };
            part::run(job, &part, bytes.ok_or_else(|| failed("the request for a part has no bytes"))?)
        }
        Op::Links { links } => links::run(job, links),
        Op::Service { name, unit, watches, ready } => {
            service::run(job, &service::Service { name, unit, watches, ready })
        }
        Op::Reload { name, files, ready } => reload::run(job, name, files, ready),
        Op::Image { name, part } => image::run(job, name, part),
        Op::Objects { objects } => objects::run(job, objects),
        Op::RemoveObjects { paths, step } => remove_objects::run(job, paths, step),
        Op::Taint { node, present } => node::taint(job, node, *present),
        Op::NodeTaints { node, taints } => taints::run(job, node, taints),
        Op::Drain { node } => drain::run(job, node),
        Op::Uncordon { node } => drain::uncordon(job, node),
        Op::RemoveNode { node } => node::remove(job, node),
        Op::EndLeadership { node } => leadership::end(job, node),
        Op::JoinEtcd { name, address, members, file } => {
            etcd::join(job, &etcd::NewMember { name, address: *address, members, file })
        }
        Op::PromoteMember { address, members } => etcd::promote(job, *address, members),
        Op::MoveMember { name, address } => etcd::relocate(job, name, *address),
        Op::RemoveMember { name, address } => etcd::remove(job, name, *address),
        Op::RestoreMember { name, snapshot, etcd, members, token } => {
            etcd::restore(job, &etcd::RestoredMember { name, snapshot, etcd, members, token })
        }
        Op::StopServices { units, before_member } => {
            if *before_member {
                member_restart::wait_until_harmless(job)?;
            }
            service::stop(job, units)
        }
        Op::RemoveService { name, files } => remove_service::run(job, name, files),
        Op::ForgetChecks { steps } => forget_checks::run(job, steps),
        Op::ForgetIdentity { .. } => identity::forget(job),
        Op::RewriteSecrets { .. } => secrets::rewrite(job),
        Op::Await { checks } => checks::wait_for(job, checks, &|| Ok(())).map(|()| StepEffect::default()),
        Op::Reset { cluster } => reset::run(job, cluster),
    }
}
