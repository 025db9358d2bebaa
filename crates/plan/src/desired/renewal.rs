//! Stage `certificates`: every host renews its certificates by a timer. Masters have the keys of the authorities for
//! it; workers have an identity to request their certificates from a master.

use kubeon_api::HostRole;
use kubeon_render::paths::pki;
use kubeon_render::renewal::{self, SERVICE, TIMER};
use kubeon_wire::{
    CertificateAuthority, HOST_CERTIFICATE, HOST_GROUP, HOST_USER_PREFIX, Leaf, Op, SecretRef,
};

use super::control;
use super::etcd;
use super::files::{client, pair, secret};
use super::join::{kubelet_id, ready_id};
use super::prepare::prepared;
use super::step::{Daemon, DesiredStep};
use crate::context::{ObservedHost, PlanContext};
use crate::stage_name::StageName;
use crate::step_id::StepId;

/// 100 years: the longest life of an authority, which no certificate outlives.
const IDENTITY_HOURS: u32 = 100 * 365 * 24;

pub(crate) const STAGE: StageName = StageName::new("certificates");

/// The last step in which a host that is not a node yet becomes one. What it needs only later is not in the way.
fn joined(context: &PlanContext<'_>, host: &ObservedHost<'_>) -> Option<StepId> {
    let is_new = host.role.runs_node() && !context.takes_over(host) && !host.has_executed(&kubelet_id(host));
    is_new.then(|| ready_id(&host.name))
}

/// The keys of the authorities on every master, and the timer on every host.
pub(crate) fn timers(context: &PlanContext<'_>, steps: &mut Vec<DesiredStep>) {
    for host in context.all_hosts() {
        steps.push(match host.role {
            HostRole::Master => authorities(host),
            HostRole::Etcd => etcd_authority(host),
            _ => identity(host),
        });
        let service = service(host).needs(joined(context, host));
        let timer = timer(host).needs([service.id.clone()]);
        steps.extend([service, timer]);
    }
}

/// The keys that `control/keys` does not write. They are a step of their own, because a step that changes repeats the
/// steps that read it, and these keys restart nothing.
fn authorities(host: &ObservedHost<'_>) -> DesiredStep {
    let key = |file: &str, ca| secret(pki(file), SecretRef::CaKey { ca });
    let files = vec![
        key("etcd/ca.key", CertificateAuthority::Etcd),
        key("front-proxy-ca.key", CertificateAuthority::FrontProxy),
        key("kubelet-serving-ca.key", CertificateAuthority::KubeletServing),
    ];
    DesiredStep::new(host, host.id(STAGE, "authorities"), Op::Files { files })
        .title("write the keys of the authorities")
        .because("the master cannot renew its certificates")
        // Their certificates are written there, and both must belong together when the timer runs.
        .needs([control::keys_id(host)])
}

/// The key of the only authority whose certificates a host of etcd alone has.
fn etcd_authority(host: &ObservedHost<'_>) -> DesiredStep {
    let files = vec![secret(pki("etcd/ca.key"), SecretRef::CaKey { ca: CertificateAuthority::Etcd })];
    DesiredStep::new(host, host.id(STAGE, "authorities"), Op::Files { files })
        .title("write the key of the authority of etcd")
        .because("the host cannot renew its certificates")
        .needs([etcd::keys_id(host)])
}

/// The identity with which a worker requests its certificates. It outlives the certificates of a host that is off for
/// years, and ends with the node: a master signs nothing for a node that does not exist.
fn identity(host: &ObservedHost<'_>) -> DesiredStep {
    let user = format!("{HOST_USER_PREFIX}{}", host.name);
    let leaf =
        Leaf { hours: IDENTITY_HOURS, ..client(CertificateAuthority::Kubernetes, &user, &[HOST_GROUP]) };
    let files = pair(HOST_CERTIFICATE.trim_end_matches(".crt"), leaf).into();
    DesiredStep::new(host, host.id(STAGE, "identity"), Op::Files { files })
        .title("write the identity of the host")
        .because("the host cannot request certificates")
}

fn service(host: &ObservedHost<'_>) -> DesiredStep {
    let id = host.id(STAGE, "renew");
    Daemon { id, unit_name: SERVICE, unit: renewal::service(), watches: Vec::new(), ready: Vec::new() }
        .into_step(host)
        .title("renew due certificates at boot")
        .because("the host does not renew its certificates")
        .needs(prepared(host))
}

fn timer(host: &ObservedHost<'_>) -> DesiredStep {
    let id = host.id(STAGE, "timer");
    Daemon { id, unit_name: TIMER, unit: renewal::timer(), watches: Vec::new(), ready: Vec::new() }
        .into_step(host)
        .title("renew due certificates by a timer")
        .because("the host does not renew its certificates")
}
