//! Versions: only those of the catalogue, and no older one than the one that runs, except on the way back to a snapshot.

use kubeon_api::kubernetes_cluster::{Changes, DeclaredCluster};
use kubeon_api::upgrade_way;

use super::desired::{Desired, Existing};
use super::fixed::ips;
use crate::lookup::Lookup;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    desired: &Desired<'_>,
    existing: Option<&Existing>,
    changes: Option<&Changes>,
    lookup: &dyn Lookup,
    verdict: &mut AdmissionVerdict,
) {
    let now = desired.cluster.kube_version;
    let declared =
        existing.is_some_and(|existing| existing.declared.kube_version == now && existing.built.is_some());
    // The running version may be declared even when the catalogue no longer has it.
    let runs = changes.is_some_and(|changes| !changes.fields.contains(&"kubeVersion"));
    if declared || runs {
        return;
    }
    let known = lookup.versions();
    if let Some(version) = now.filter(|version| !known.contains(version)) {
        let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        verdict.deny(
            desired.field("kubeVersion"),
            format!("{version} is not in the catalogue; it holds {known}"),
        );
        return;
    }
    let Some(existing) = existing else { return };
    let Some(built) = &existing.built else { return };
    let reason = match (now, built.kube_version.or(existing.version)) {
        (None, None) => return,
        (Some(now), Some(runs)) if desired.rolls_back && now < runs => return,
        (Some(now), Some(runs)) => match upgrade_way(runs, now, known) {
            Ok(_) => return,
            Err(no_way) => format!("{now} {no_way}"),
        },
        (Some(_), None) => "it is not known yet which version runs; wait for it".to_owned(),
        (None, Some(runs)) => {
            format!("cannot be left out any more: declare {runs}, which runs, or a newer one")
        }
    };
    verdict.deny(desired.field("kubeVersion"), reason);
}

/// Hosts change after an upgrade that has begun. When it waits for a host that is lost, they never would: the version of before ends
/// it.
pub(super) fn advise_on_hosts(
    desired: &Desired<'_>,
    existing: &Existing,
    built: &DeclaredCluster,
    changes: &Changes,
    verdict: &mut AdmissionVerdict,
) {
    let runs = built.kube_version.or(existing.version);
    let open = desired.upgrades && changes.fields.contains(&"kubeVersion");
    let (Some(runs), Some(wanted), true) = (runs, desired.cluster.kube_version, open) else { return };
    let lists = [
        ("masterList", &desired.cluster.master_list, &built.master_list),
        ("etcdList", &desired.cluster.etcd_list, &built.etcd_list),
        ("nodeList", &desired.cluster.node_list, &built.node_list),
    ];
    let Some((list, ..)) = lists.into_iter().find(|(_, now, before)| ips(now) != ips(before)) else { return };
    verdict.warn(format!(
        "{}: hosts change after the upgrade to {wanted}; if it waits for one that is lost, declare kubeVersion {runs} again with the \
         other hosts",
        desired.field(list)
    ));
}
