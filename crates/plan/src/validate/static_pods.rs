//! What a control plane of static pods cannot do: it is refused before a host is changed.

use std::collections::BTreeMap;

use kubeon_api::Refusal;
use kubeon_render::static_pods::is_visible;

use crate::input::DesiredCluster;

/// The refusals of a cluster in `container` mode; none in `binary` mode.
pub(super) fn refusals(spec: &DesiredCluster) -> Vec<Refusal> {
    if !spec.runs_static_pods() {
        return Vec::new();
    }
    let etcd = spec.has_external_etcd().then(|| {
        let reason = "is container, which has no members of etcd on hosts of their own: no kubelet runs there; leave etcdList out, \
                      or use binary";
        Refusal::setting("spec.cluster.deployMode", reason)
    });
    let extra = &spec.settings.extra_args;
    let programs = [
        ("etcd", &extra.etcd),
        ("kubeApiserver", &extra.kube_apiserver),
        ("kubeControllerManager", &extra.kube_controller_manager),
        ("kubeScheduler", &extra.kube_scheduler),
    ];
    let files = programs.into_iter().flat_map(|(field, arguments)| invisible(field, arguments));
    etcd.into_iter().chain(files).collect()
}

/// The arguments whose value is a file that the pod of the program does not see.
fn invisible(field: &str, arguments: &BTreeMap<String, String>) -> Vec<Refusal> {
    let is_hidden = |value: &str| value.starts_with('/') && (field == "etcd" || !is_visible(value));
    let hidden = arguments.iter().filter(|(_, value)| is_hidden(value));
    hidden
        .map(|(name, value)| {
            let place = if field == "etcd" {
                "no file of the owner"
            } else {
                "only files in /etc/kubernetes and /etc/ssl/certs"
            };
            let reason = format!("is {value}, but in container mode the program sees {place}");
            Refusal::setting(format!("spec.cluster.extraArgs.{field}.{name}"), reason)
        })
        .collect()
}
