//! Checks of the ownership of a host, and of identities that hosts must not share.

use kubeon_api::kubernetes_cluster::LoadBalancer;
use kubeon_api::{HostRole, Remedy};
use kubeon_render::paths::program;

use super::rule::{CheckRule, Subject, Verdict, rule};
use crate::desired::prepare::{PartProgram, commands};
use crate::node_name::node_name;

/// Checks that the host is free or belongs to the cluster.
pub(super) const OWNER: &[CheckRule] = &[
    rule("claim", claim),
    rule("leftover", leftover),
    rule("own-services", own_services),
    rule("own-programs", own_programs),
];

/// Checks of identities that must be unique.
pub(super) const IDENTITY: &[CheckRule] =
    &[rule("name", name), rule("machine-id", machine_id), rule("product-uuid", product_uuid)];

/// The host does not belong to another cluster that kubeon created.
fn claim(subject: &Subject<'_>) -> Verdict {
    let name = &subject.intent.spec.name;
    let Some(claim) = &subject.facts.claim else { return Verdict::good("free", "free") };
    let verdict = Verdict::good(format!("cluster {}", claim.cluster), format!("free, or cluster {name}"));
    if claim.cluster != *name {
        return verdict
            .error(Some(format!("belongs to cluster {}", claim.cluster)))
            .remedy(Remedy::FreeHost(subject.spec.address));
    }
    let is_other = claim.uid != subject.intent.uid;
    let message = is_other.then(|| {
        format!(
            "belongs to another cluster named {name} (identity {}), which was created elsewhere",
            claim.uid
        )
    });
    verdict.error(message).remedy(Remedy::AdoptCluster(name.to_string()))
}

/// The host does not contain a cluster that another program created.
fn leftover(subject: &Subject<'_>) -> Verdict {
    let foreign =
        if subject.facts.claim.is_none() { subject.facts.foreign.join(", ") } else { String::new() };
    let message = (!foreign.is_empty()).then(|| format!("contains another cluster (found {foreign})"));
    let found = if foreign.is_empty() { "nothing".to_owned() } else { foreign };
    Verdict::good(found, "nothing of another cluster")
        .error(message)
        .remedy(Remedy::FreeHost(subject.spec.address))
}

/// The host has no services of its own that the cluster would replace. Destroying the cluster would remove
/// their data.
fn own_services(subject: &Subject<'_>) -> Verdict {
    let uses_haproxy = subject.intent.spec.settings.load_balancer == LoadBalancer::Haproxy;
    let is_replaced = |name: &&str| match subject.role {
        // A host of etcd alone keeps its other services.
        HostRole::Etcd => *name == "etcd",
        // Only workers get a haproxy. On other hosts, haproxy may be the external load balancer.
        HostRole::Master => *name != "haproxy",
        _ => *name != "haproxy" || uses_haproxy,
    };
    let free = subject.facts.claim.is_none();
    let services = subject.facts.own_services.iter().map(String::as_str);
    let replaced: Vec<&str> = services.filter(|name| free && is_replaced(name)).collect();
    let replaced = replaced.join(", ");
    let message = (!replaced.is_empty()).then(|| {
        format!(
            "has services of its own ({replaced}): the cluster would replace them, and destroying the cluster would remove \
             their data; remove them first, or ignore this check"
        )
    });
    let found = if replaced.is_empty() { "none".to_owned() } else { replaced };
    Verdict::good(found, "none that the cluster would replace")
        .error(message)
        .remedy(Remedy::Ignore("own-services".to_owned()))
}

/// The host has no programs of its own in `/usr/local/bin` with names of the cluster's programs. They are kept.
fn own_programs(subject: &Subject<'_>) -> Verdict {
    let own = |name: &str| subject.facts.own_programs.iter().any(|own| own == name);
    let kept: Vec<PartProgram> = commands(&subject.role).filter(|(_, name)| own(name)).collect();
    let names = kept.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let places = kept.iter().map(|(part, name)| program(part, name)).collect::<Vec<_>>().join(", ");
    let message = (!kept.is_empty()).then(|| {
        format!("has {names} of its own in /usr/local/bin, which stays; the cluster's is at {places}")
    });
    let found = if kept.is_empty() { "none".to_owned() } else { names };
    Verdict::good(found, "none with the name of a program of the cluster").warning(message)
}

/// The host has a valid node name that no other host has.
fn name(subject: &Subject<'_>) -> Verdict {
    let wanted = "a name that no other host has";
    let Ok(name) = node_name(subject.spec, subject.facts).map(|name| name.to_string()) else {
        let why = "has no hostname that is a valid node name".to_owned();
        let verdict = Verdict::good(subject.facts.hostname.clone(), wanted).error(Some(why));
        return verdict.remedy(Remedy::NameHost(subject.spec.address));
    };
    let message = subject
        .host_conflicts
        .same_name(&name, subject.spec.address)
        .map(|other| format!("has the same name {name} as {other} (Cluster hostname is duplicate)"));
    Verdict::good(name, wanted).error(message).remedy(Remedy::NameHost(subject.spec.address))
}

/// The machine id is unique. Copies of a machine share it, and systemd derives network addresses from it.
fn machine_id(subject: &Subject<'_>) -> Verdict {
    let id = &subject.facts.machine_id;
    let message = subject.host_conflicts.same_machine_id(id, subject.spec.address).map(|other| {
        format!("has the same machine id as {other}, as copied machines do; create a new one: rm /etc/machine-id && systemd-machine-id-setup")
    });
    Verdict::good(id.clone(), "unique").warning(message)
}

/// The product UUID is unique. Kubernetes uses it to distinguish machines.
fn product_uuid(subject: &Subject<'_>) -> Verdict {
    let id = &subject.facts.product_uuid;
    let message = subject
        .host_conflicts
        .same_product_uuid(id, subject.spec.address)
        .map(|other| format!("has the same product UUID as {other}, as copied virtual machines do"));
    Verdict::good(id.clone(), "unique").warning(message)
}
