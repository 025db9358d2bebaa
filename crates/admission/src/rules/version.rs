//! Versions: those of the catalogue; raising one is an upgrade, which is not there yet.

use kubeon_api::kubernetes_cluster::Changes;

use super::wanted::{Stood, Wanted};
use crate::lookup::Lookup;
use crate::verdict::AdmissionVerdict;

pub(super) fn judge(
    wanted: &Wanted<'_>,
    stood: Option<&Stood>,
    changes: Option<&Changes>,
    lookup: &dyn Lookup,
    verdict: &mut AdmissionVerdict,
) {
    let now = wanted.cluster.kube_version;
    let declared = stood.is_some_and(|stood| stood.declared.kube_version == now && stood.built.is_some());
    // What runs may be written out, also when the catalogue has it no more.
    let runs = changes.is_some_and(|changes| !changes.fields.contains(&"kubeVersion"));
    if declared || runs {
        return;
    }
    let known = lookup.versions();
    if let Some(version) = now.filter(|version| !known.contains(version)) {
        let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        verdict.deny(
            wanted.field("kubeVersion"),
            format!("{version} is not in the catalogue; it holds {known}"),
        );
        return;
    }
    let Some(stood) = stood else { return };
    let Some(built) = &stood.built else { return };
    let reason = match (now, built.kube_version.or(stood.version)) {
        (None, None) => return,
        (Some(now), Some(runs)) if now < runs => format!("{runs} cannot be lowered to {now}"),
        (Some(now), Some(runs)) => format!("an upgrade from {runs} to {now} is not possible yet"),
        (Some(now), None) => {
            format!("it is not known yet which version runs; an upgrade to {now} is not possible yet")
        }
        (None, Some(runs)) => {
            format!("cannot be left out any more: {runs} runs, and an upgrade is not possible yet")
        }
    };
    verdict.deny(wanted.field("kubeVersion"), reason);
}
