//! The step of stage `prepare` that opens the firewall of a host, if the settings say that kubeon manages firewalls.

use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_wire::firewall::single;
use kubeon_wire::{FirewallProgram, Op, PacketMatch};

use super::step::DesiredStep;
use crate::context::{ObservedHost, PlanContext};
use crate::firewall::{API, Closed, POD_LINKS, PortOpening, openings};
use crate::stage_name::StageName;

/// Opens the firewalls of all hosts. A host whose firewall lets everything needed pass, or that has none, has no step.
pub(super) fn open(context: &PlanContext<'_>, stage: StageName, steps: &mut Vec<DesiredStep>) {
    if context.spec().settings.firewall == FirewallMode::Manage {
        steps.extend(context.hosts.iter().filter_map(|host| open_one(context, host, stage)));
    }
}

fn open_one(context: &PlanContext<'_>, host: &ObservedHost<'_>, stage: StageName) -> Option<DesiredStep> {
    let id = host.id(stage, "firewall");
    let firewall = host.facts.firewall.as_ref()?;
    let spec = context.spec();
    let closed = Closed::of(spec, host.spec, host.is_master(), host.facts, firewall);
    if !is_managed(firewall.program) || closed.is_empty() && !host.has_executed(&id) {
        return None;
    }
    let link = host.facts.links.iter().find(|link| link.address == host.ip());
    let op = Op::Firewall {
        link: link.map(|link| link.name.clone()).unwrap_or_default(),
        lets_in: openings(spec, host.spec, host.is_master()).iter().flat_map(packets).collect(),
        pod_links: POD_LINKS.map(str::to_owned).to_vec(),
    };
    let program = firewall.program;
    let mut step = DesiredStep::new(host, id, op)
        .title(format!("open {program} for the other hosts and the pods"))
        .because("its firewall is closed")
        .within(300);
    step.unmet = (!closed.is_empty()).then(|| format!("{program} does not let in {closed}"));
    Some(step)
}

/// Whether a program manages the rules, so that kubeon can add some.
pub(crate) fn is_managed(program: FirewallProgram) -> bool {
    matches!(program, FirewallProgram::Firewalld | FirewallProgram::Ufw)
}

/// The packets of an opening. The API is open for everyone who logs in to it, also from outside of the cluster.
fn packets(opening: &PortOpening) -> Vec<PacketMatch> {
    let packets = |source| PacketMatch {
        source,
        link: None,
        transport: Some(opening.transport),
        ports: Some((opening.first, opening.last)),
    };
    if opening.first == API {
        return vec![packets(None)];
    }
    opening.sources.iter().filter_map(|host| single(host.ip())).map(|source| packets(Some(source))).collect()
}
