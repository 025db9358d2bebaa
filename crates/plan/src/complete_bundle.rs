//! Whether the bundle has everything that the hosts of a plan need.

use kubeon_api::{HostRole, Refusal, RefusedField, Remedy};

use crate::bundle_in_use;
use crate::context::PlanContext;
use crate::desired::prepare::{NET_TOOLS, NODE_IMAGES, images, parts};
use crate::output::{Note, PlanRefused};
use crate::proxy_mode::missing_tool;

/// The refusal of a host that lacks a tool which the bundle does not hold either.
fn missing_tool_refusal(context: &PlanContext<'_>) -> Option<Refusal> {
    let wanted = context.spec().settings.proxy_mode;
    let lacking = context.hosts.iter().filter(|host| !context.artifacts(host).parts.contains_key(NET_TOOLS));
    let (host, tool) = lacking.filter_map(|host| Some((host, missing_tool(host.facts, wanted)?))).next()?;
    let version = context.spec().version;
    let reason = format!(
        "{}, and the bundle of {version} does not hold {NET_TOOLS}: install {} on the host",
        tool.lack(),
        tool.name
    );
    Some(Refusal::host(host.address(), reason).with(Remedy::BuildBundle(version)))
}

/// Refuses a plan whose bundle lacks a part, an image or a tool, or is another build than the one in use.
pub(crate) fn require_complete_bundle(
    context: PlanContext<'_>,
    mut notes: Vec<Note>,
) -> Result<(PlanContext<'_>, Vec<Note>), PlanRefused> {
    let all = context.artifacts_in_use();
    let lacks_part = |name: &&str| all.iter().any(|artifacts| !artifacts.parts.contains_key(*name));
    let mode = context.spec().settings.deploy_mode;
    let programs = parts(&HostRole::Master, mode).chain(parts(&HostRole::Worker, mode)).filter(lacks_part);
    let lacks_image = |role: &&str| all.iter().any(|artifacts| !artifacts.images.contains_key(*role));
    let of_worker = images(&HostRole::Worker, mode).filter(|role| !NODE_IMAGES.contains(role));
    let images = images(&HostRole::Master, mode).chain(of_worker).filter(lacks_image);
    let named =
        |role: &str| if NODE_IMAGES.contains(&role) { role.to_owned() } else { format!("the image {role}") };
    let version = context.spec().version;
    let incomplete = |name: String| {
        let refusal = Refusal::new(RefusedField::Bundle, version, format!("does not hold {name}"));
        refusal.with(Remedy::BuildBundle(version))
    };
    let mut refusals: Vec<Refusal> =
        programs.map(str::to_owned).chain(images.map(named)).map(incomplete).collect();
    refusals.dedup();
    refusals.extend(missing_tool_refusal(&context));
    match bundle_in_use::other_build(&context) {
        Ok(note) => notes.extend(note),
        Err(refusal) => refusals.push(refusal),
    }
    if refusals.is_empty() {
        return Ok((context, notes));
    }
    Err(PlanRefused { cluster: context.spec().name.to_string(), refusals, notes })
}
