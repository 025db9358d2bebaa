//! The step of stage `prepare` that opens the firewall of a host, if the settings say that kubeon manages firewalls.

use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_render::firewall;
use kubeon_wire::firewall::single;
use kubeon_wire::{FirewallProgram, Op, PacketMatch};

use super::step::{Daemon, DesiredStep, PREPARE};
use crate::context::{ObservedHost, PlanContext};
use crate::firewall::{API, Closed, PortOpening, opening_for_parts, openings, pod_links};
use crate::step_id::StepId;

/// Opens the firewalls of all hosts. A host whose firewall lets everything needed pass, or that has none, has no step.
pub(super) fn open(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    if context.spec().settings.firewall == FirewallMode::Manage {
        for host in context.all_hosts() {
            let open = open_one(context, host);
            let keeps_rules = host
                .facts
                .firewall
                .as_ref()
                .is_none_or(|firewall| firewall.program != FirewallProgram::Nftables);
            let restore = open.as_ref().filter(|_| !keeps_rules).map(|open| restore(host, open));
            steps.extend(open.into_iter().chain(restore));
        }
    }
}

/// The step that opens the firewall of the host; `None` if kubeon leaves the firewall as it is.
pub(super) fn opened(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    to_open(context, host).map(|_| opening_id(host))
}

fn opening_id(host: &ObservedHost<'_>) -> StepId {
    host.id(PREPARE, "firewall")
}

/// What the firewall of the host does not let in yet; `None` if kubeon leaves the firewall as it is.
fn to_open(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<Closed> {
    let (spec, firewall) = (context.spec(), host.facts.firewall.as_ref()?);
    if spec.settings.firewall != FirewallMode::Manage || !is_managed(firewall.program) {
        return None;
    }
    let closed = Closed::of(spec, host.spec, &host.role, host.facts, firewall);
    (!closed.is_empty() || host.has_executed(&opening_id(host))).then_some(closed)
}

fn open_one(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<DesiredStep> {
    let closed = to_open(context, host)?;
    let (spec, program) = (context.spec(), host.facts.firewall.as_ref()?.program);
    let parts = opening_for_parts(spec, host.spec);
    let link = host.facts.links.iter().find(|link| link.address == host.ip());
    let op = Op::Firewall {
        link: link.map(|link| link.name.clone()).unwrap_or_default(),
        lets_in: openings(spec, host.spec, &host.role).iter().chain(&parts).flat_map(packets).collect(),
        pod_links: pod_links(spec, &host.role).iter().map(|&link| link.to_owned()).collect(),
    };
    let mut step = DesiredStep::new(host, opening_id(host), op)
        .title(format!("open {program} for the other hosts and the pods"))
        .because("its firewall is closed")
        .within(300);
    step.unmet = (!closed.is_empty()).then(|| format!("{program} does not let in {closed}"));
    Some(step)
}

/// nft forgets the rules when the owner loads the rules of the host again, and at boot.
fn restore(host: &ObservedHost<'_>, open: &DesiredStep) -> DesiredStep {
    let id = host.id(PREPARE, "firewall-restore");
    Daemon {
        id,
        unit_name: firewall::SERVICE,
        unit: firewall::service(),
        watches: Vec::new(),
        ready: Vec::new(),
    }
    .into_step(host)
    .title("open the firewall again after its rules were loaded")
    .because("nft forgets rules that are not in the files of the owner")
    .needs([open.id.clone()])
}

/// Whether a program manages the rules, so that kubeon can add some.
pub(crate) fn is_managed(program: FirewallProgram) -> bool {
    matches!(program, FirewallProgram::Firewalld | FirewallProgram::Ufw | FirewallProgram::Nftables)
}

/// The packets of an opening. The API is open for everyone who logs in to it, also from outside of the cluster.
fn packets(opening: &PortOpening) -> Vec<PacketMatch> {
    let packets = |source| PacketMatch {
        source,
        transport: Some(opening.transport),
        ports: Some((opening.first, opening.last)),
        ..PacketMatch::default()
    };
    if opening.first == API {
        return vec![packets(None)];
    }
    opening.sources.iter().filter_map(|host| single(host.ip())).map(|source| packets(Some(source))).collect()
}
