//! Whose a host is, and whether it can be told from the others.

use kubeon_api::Remedy;
use kubeon_api::kubernetes_cluster::LoadBalancer;

use super::host_conflicts;
use super::rule::{CheckRule, Subject, Verdict, rule};

/// Whose host it is.
pub(super) const OWNER: &[CheckRule] =
    &[rule("claim", claim), rule("leftover", leftover), rule("own-services", own_services)];

/// What hosts must not share.
pub(super) const IDENTITY: &[CheckRule] =
    &[rule("name", name), rule("machine-id", machine_id), rule("product-uuid", product_uuid)];

/// No other cluster that kubeon made holds the host.
fn claim(it: &Subject<'_>) -> Verdict {
    let name = &it.intent.spec.name;
    let Some(claim) = &it.facts.claim else { return Verdict::good("free", "free") };
    let message = if claim.cluster != *name {
        Some(format!("belongs to cluster {}", claim.cluster))
    } else if claim.uid != it.intent.uid {
        Some(format!(
            "belongs to another cluster named {} (identity {}), which was created elsewhere",
            claim.cluster, claim.uid
        ))
    } else {
        None
    };
    Verdict::good(format!("of cluster {}", claim.cluster), format!("free, or of {name}"))
        .error(message)
        .remedy(Remedy::FreeHost(it.spec.address))
}

/// No other program made a cluster here.
fn leftover(it: &Subject<'_>) -> Verdict {
    let foreign = if it.facts.claim.is_none() { it.facts.foreign.join(", ") } else { String::new() };
    let message = (!foreign.is_empty()).then(|| format!("carries another cluster (found {foreign})"));
    let found = if foreign.is_empty() { "nothing".to_owned() } else { foreign };
    Verdict::good(found, "nothing of another cluster")
        .error(message)
        .remedy(Remedy::FreeHost(it.spec.address))
}

/// It has none of the programs that a cluster brings along: a cluster takes their places, and its end their data.
fn own_services(it: &Subject<'_>) -> Verdict {
    // Only these hosts get a haproxy; on others it may well be the load balancer that is not managed.
    let haproxy = !it.master && it.intent.spec.settings.load_balancer == LoadBalancer::Haproxy;
    let free = it.facts.claim.is_none();
    let services = it.facts.own_services.iter().map(String::as_str);
    let own: Vec<&str> = services.filter(|name| free && (haproxy || *name != "haproxy")).collect();
    let own = own.join(", ");
    let message = (!own.is_empty()).then(|| {
        format!(
            "has services of its own ({own}), which the cluster would replace and whose data destroying it would remove; \
             remove them first, or go on all the same"
        )
    });
    let found = if own.is_empty() { "none".to_owned() } else { own };
    Verdict::good(found, "none that a cluster brings along")
        .error(message)
        .remedy(Remedy::Ignore("own-services".to_owned()))
}

/// It has a name that can be a node's, and no other host has it.
fn name(it: &Subject<'_>) -> Verdict {
    let wanted = "a name that no other host has";
    let Some(name) = host_conflicts::name(it.spec, it.facts) else {
        let why = "has no usable name of its own".to_owned();
        let verdict = Verdict::good(it.facts.hostname.clone(), wanted).error(Some(why));
        return verdict.remedy(Remedy::NameHost(it.spec.address));
    };
    let message = it
        .host_conflicts
        .same_name(&name, it.spec.address)
        .map(|other| format!("is named {name} like {other} (Cluster hostname is duplicate)"));
    Verdict::good(name, wanted).error(message).remedy(Remedy::NameHost(it.spec.address))
}

/// Copies of one machine share it, and with it the addresses that systemd derives from it.
fn machine_id(it: &Subject<'_>) -> Verdict {
    let id = &it.facts.machine_id;
    let message = it.host_conflicts.same_machine_id(id, it.spec.address).map(|other| {
        format!("has the machine id of {other}: a copied machine; make a new one: rm /etc/machine-id && systemd-machine-id-setup")
    });
    Verdict::good(id.clone(), "its own").warning(message)
}

/// Kubernetes tells machines apart by it.
fn product_uuid(it: &Subject<'_>) -> Verdict {
    let id = &it.facts.product_uuid;
    let message = it
        .host_conflicts
        .same_product_uuid(id, it.spec.address)
        .map(|other| format!("has the product uuid of {other}: a copied virtual machine"));
    Verdict::good(id.clone(), "its own").warning(message)
}
