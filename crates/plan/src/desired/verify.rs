//! Stage `verify`: what a person would check by hand. Changes nothing.

use kubeon_wire::{Check, Op};

use super::control::{api_ready, apiserver_id, controller_manager_id, scheduler_id};
use super::join::{image_id, ready_id};
use super::network::{self, flannel_id, kube_proxy_id};
use super::step::DesiredStep;
use crate::context::PlanContext;
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// The name of this stage.
pub(crate) const STAGE: StageName = StageName::Verify;

fn dns_id(site: &PlanContext<'_>) -> StepId {
    site.first().id(STAGE, "dns")
}

/// API servers ready, DNS deployed, names resolved on every host.
pub(crate) fn cluster(site: &PlanContext<'_>, wishes: &mut Vec<DesiredStep>) {
    let first = site.first();
    for host in site.masters() {
        let unmet = host.facts.cluster.as_ref().filter(|seen| !seen.api_ready);
        wishes.push(
            DesiredStep::new(host, host.id(STAGE, "api"), Op::Await { checks: vec![api_ready()] })
                .title(format!("the API server on {} is ready", host.name))
                .because("it was changed")
                .within(60)
                .needs([apiserver_id(host), controller_manager_id(host), scheduler_id(host)])
                .check(unmet.map(|_| "the API server does not answer /readyz".to_owned())),
        );
    }
    let available =
        Check::DeploymentAvailable { namespace: "kube-system".to_owned(), name: "coredns".to_owned() };
    wishes.push(
        DesiredStep::new(first, dns_id(site), Op::Await { checks: vec![available] })
            .title("CoreDNS is available")
            .because("it was changed")
            .within(180)
            .needs([network::dns_id(site)])
            .needs(
                site.hosts
                    .iter()
                    .flat_map(|host| [ready_id(site, host), flannel_id(host), image_id("coredns", host)]),
            )
            .check(None),
    );
    let name = format!("kubernetes.default.svc.{}.", site.spec().settings.dns_domain);
    for host in &site.hosts {
        let check = Check::Dns { server: site.service_dns(), name: name.clone() };
        wishes.push(
            DesiredStep::new(host, host.id(STAGE, "resolve"), Op::Await { checks: vec![check] })
                .title(format!("DNS answers on {}", host.name))
                .because("what it rests on was changed")
                .within(120)
                .needs([dns_id(site)])
                // What happens to other hosts is no reason to ask here again.
                .reads([network::dns_id(site), kube_proxy_id(host), flannel_id(host)])
                .check(None),
        );
    }
}
