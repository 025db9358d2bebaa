//! Compares the bundle with the one that the cluster uses. Another build of the same version replaces every program and
//! restarts every node, so it is never a silent part of another change.

use std::collections::BTreeSet;

use kubeon_api::{HostRole, Refusal, RefusedField, Remedy};
use kubeon_wire::Facts;

use crate::context::PlanContext;
use crate::desired::control_plane::is_control_plane_part;
use crate::desired::join::kubelet_id;
use crate::desired::kubelet_version::has_node_version;
use crate::desired::prepare::{is_node_part, parts, parts_of};
use crate::output::Note;

/// The name of the check.
pub const CHECK: &str = "bundle";

/// The refusal of another build, or the note if a user accepts it.
pub(crate) fn other_build(context: &PlanContext<'_>) -> Result<Option<Note>, Refusal> {
    let other = differing(context);
    if other.is_empty() {
        return Ok(None);
    }
    let version = context.spec().version;
    let names = other.into_iter().collect::<Vec<_>>().join(", ");
    let text = format!(
        "is another build than the one in use ({names} changed): the nodes get it and restart one after another"
    );
    if context.intent.ignore.contains(CHECK) {
        return Ok(Some(Note { host: None, text: format!("the bundle of {version} {text}") }));
    }
    Err(Refusal::new(RefusedField::Bundle, version, text).with(Remedy::Ignore(CHECK.to_owned())))
}

/// The programs of the bundle that differ from those in use. An older state does not record them; then a program differs if
/// a node of this version does not have it. The control plane's programs are of another version while it is tried, and those of a
/// node while it changes to another version than the control plane.
fn differing<'a>(context: &PlanContext<'a>) -> BTreeSet<&'a str> {
    let mut names = all_differing(context);
    names.retain(|name| context.intent.trial.is_none() || !is_control_plane_part(name));
    names
}

fn all_differing<'a>(context: &PlanContext<'a>) -> BTreeSet<&'a str> {
    let used = &context.intent.bundle_in_use;
    if !used.is_empty() {
        let mode = context.spec().settings.deploy_mode;
        let names = || parts(&HostRole::Master, mode).chain(parts(&HostRole::Worker, mode));
        let all = context.artifacts_in_use().into_iter().flat_map(|artifacts| {
            names().filter_map(|name| {
                Some((artifacts.recorded_name(name), artifacts.parts.get_key_value(name)?))
            })
        });
        let differ = all
            .filter(|(recorded, (_, part))| used.get(recorded).is_some_and(|digest| *digest != part.digest));
        return differ.map(|(_, (name, _))| name.as_str()).collect();
    }
    let works = |facts: &Facts| {
        facts
            .claim
            .as_ref()
            .is_some_and(|claim| claim.uid == context.intent.uid && claim.version == context.spec().version)
    };
    // kubeadm started the programs of a host that is taken over: they are of no bundle.
    let nodes = context.hosts.iter().filter(|host| !context.takes_over(host));
    let nodes = nodes.filter(|host| works(host.facts) && host.has_executed(&kubelet_id(host)));
    let missing = nodes.flat_map(|host| {
        let artifacts = context.artifacts(host);
        let changes = !has_node_version(context, &host.name);
        let wanted = parts_of(context, host).filter(move |name| !(changes && is_node_part(name)));
        let wanted = wanted.filter_map(|name| artifacts.parts.get_key_value(name));
        wanted.filter(|(_, part)| !host.facts.parts.contains(&part.digest)).map(|(name, _)| name.as_str())
    });
    missing.collect()
}
