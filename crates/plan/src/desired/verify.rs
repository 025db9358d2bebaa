//! Stage `verify`: what a person would check by hand. Changes nothing.

use kubeon_wire::{Check, Op};

use super::DesiredStep;
use super::control::api_ready;
use super::join::ready_id;
use crate::context::PlanContext;

/// API servers ready, DNS deployed, names resolved on every host.
pub(crate) fn cluster(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    let first = site.first();
    for host in site.masters() {
        let unmet = host.facts.cluster.as_ref().filter(|seen| !seen.api_ready);
        wishes.push(
            DesiredStep::new("verify", host, "api", Op::Await { checks: vec![api_ready()] })
                .title(format!("the API server on {} is ready", host.name))
                .because("it was changed")
                .within(60)
                .needs([host.id("control/apiserver"), host.id("control/controller-manager")])
                .needs([host.id("control/scheduler")])
                .check(unmet.map(|_| "the API server does not answer /readyz".to_owned())),
        );
    }
    let available =
        Check::DeploymentAvailable { namespace: "kube-system".to_owned(), name: "coredns".to_owned() };
    wishes.push(
        DesiredStep::new("verify", first, "dns", Op::Await { checks: vec![available] })
            .title("CoreDNS is available")
            .because("it was changed")
            .within(180)
            .needs([first.id("network/dns")])
            .needs(site.hosts.iter().flat_map(|host| {
                [ready_id(site, host), host.id("network/flannel"), host.id("join/image-coredns")]
            }))
            .check(None),
    );
    let name = format!("kubernetes.default.svc.{}.", site.spec().dns_domain);
    for host in &site.hosts {
        let check = Check::Dns { server: site.service_dns(), name: name.clone() };
        wishes.push(
            DesiredStep::new("verify", host, "resolve", Op::Await { checks: vec![check] })
                .title(format!("DNS answers on {}", host.name))
                .because("what it rests on was changed")
                .within(120)
                .needs([first.id("verify/dns")])
                // What happens to other hosts is no reason to ask here again.
                .reads([first.id("network/dns"), host.id("network/kube-proxy"), host.id("network/flannel")])
                .check(None),
        );
    }
}
