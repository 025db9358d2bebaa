//! Check of the firewall: it lets in what the other hosts of the cluster send, and forwards packets of pods.

use kubeon_api::Remedy;
use kubeon_api::kubernetes_cluster::FirewallMode;
use kubeon_wire::FirewallFact;

use super::rule::{Subject, Verdict};
use crate::desired::firewall::is_managed;
use crate::firewall::Closed;

/// The firewall of the host lets in the packets of the other hosts and of pods. A rule that the probe does not
/// understand may let them in, so the check only warns. On a host of the cluster it only warns too.
pub(super) fn firewall(subject: &Subject<'_>) -> Verdict {
    let wanted = "lets in the other hosts and the pods";
    let Some(firewall) = &subject.facts.firewall else { return Verdict::good("none", wanted) };
    let spec = &subject.intent.spec;
    let (mode, program) = (spec.settings.firewall, firewall.program);
    match mode {
        FirewallMode::Ignore => return Verdict::good(format!("{program}, not checked"), wanted),
        FirewallMode::Manage if is_managed(program) => return managed(subject, firewall),
        FirewallMode::Manage | FirewallMode::Check => {}
    }
    let closed = Closed::of(spec, subject.spec, &subject.role, subject.facts, firewall);
    let found = if closed.is_empty() { program.to_string() } else { format!("{program}, closed") };
    let verdict = Verdict::good(found, wanted);
    if closed.is_empty() {
        return verdict.error(None);
    }
    let certain = firewall.understood && subject.facts.claim.is_none();
    let does = if firewall.understood { "does not let in" } else { "may not let in" };
    let managed = if mode == FirewallMode::Manage { "is not managed by kubeon and " } else { "" };
    let message = Some(format!("its firewall ({program}) {managed}{does} {closed}"));
    let verdict = if certain { verdict.error(message) } else { verdict.warning(message) };
    let remedy = if is_managed(program) {
        Remedy::ManageFirewall(subject.spec.address)
    } else {
        Remedy::Ignore("firewall".to_owned())
    };
    verdict.remedy(remedy)
}

/// Rules that kubeon adds overrule no earlier rule that refuses the packets.
fn managed(subject: &Subject<'_>, firewall: &FirewallFact) -> Verdict {
    let (spec, program) = (&subject.intent.spec, firewall.program);
    let verdict = Verdict::good(format!("{program}, managed"), "lets in the other hosts and the pods");
    let refused = Closed::despite_opening(spec, subject.spec, &subject.role, subject.facts, firewall);
    let message = refused.map(|refused| {
        format!(
            "rules of the owner in its firewall ({program}) refuse {refused}: kubeon cannot overrule them"
        )
    });
    let certain = firewall.understood && subject.facts.claim.is_none();
    let verdict = if certain { verdict.error(message) } else { verdict.warning(message) };
    verdict.remedy(Remedy::Ignore("firewall".to_owned()))
}
