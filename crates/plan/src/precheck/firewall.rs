//! Check of the firewall: it lets in what the other hosts of the cluster send, and forwards packets of pods.

use kubeon_api::Remedy;
use kubeon_api::kubernetes_cluster::FirewallMode;

use super::rule::{Subject, Verdict};
use crate::desired::firewall::is_managed;
use crate::firewall::Closed;

/// The firewall of the host lets in the packets of the other hosts and of pods. A rule that the probe does not
/// understand may let them in, so the check only warns. On a host of the cluster it only warns too.
pub(super) fn firewall(subject: &Subject<'_>) -> Verdict {
    let wanted = "lets in the other hosts and the pods";
    let Some(firewall) = &subject.facts.firewall else { return Verdict::good("none", wanted) };
    let mode = subject.intent.spec.settings.firewall;
    let program = firewall.program;
    match mode {
        FirewallMode::Ignore => return Verdict::good(format!("{program}, not checked"), wanted),
        FirewallMode::Manage if is_managed(program) => {
            return Verdict::good(format!("{program}, managed"), wanted);
        }
        FirewallMode::Manage | FirewallMode::Check => {}
    }
    let spec = &subject.intent.spec;
    let closed = Closed::of(spec, subject.spec, &subject.role, subject.facts, firewall);
    let found = if closed.is_empty() { program.to_string() } else { format!("{program}, closed") };
    let verdict = Verdict::good(found, wanted);
    if closed.is_empty() {
        return verdict.error(None);
    }
    let certain = firewall.understood && subject.facts.claim.is_none();
    let does = if firewall.understood { "does not let in" } else { "may not let in" };
    let message = Some(format!("its firewall ({program}) {does} {closed}"));
    let verdict = if certain { verdict.error(message) } else { verdict.warning(message) };
    let remedy = if is_managed(program) {
        Remedy::ManageFirewall(subject.spec.address)
    } else {
        Remedy::Ignore("firewall".to_owned())
    };
    verdict.remedy(remedy)
}
