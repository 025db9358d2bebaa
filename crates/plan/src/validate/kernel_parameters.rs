//! Further kernel parameters: those that kubeon or a program of the cluster sets, and texts that a line cannot hold are refused.

use std::collections::BTreeMap;

use kubeon_api::Refusal;

use crate::desired::prepare::own_parameters;

/// Parameters that kube-proxy sets when it starts.
const OF_KUBE_PROXY: [&str; 4] = [
    "net.ipv4.conf.all.route_localnet",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
];
/// Another name of the parameter for forwarding.
const FORWARDING: &str = "net.ipv4.conf.all.forwarding";

/// The refusals of further kernel parameters, each with the name of the parameter.
pub(super) fn refusals(declared: &BTreeMap<String, String>) -> impl Iterator<Item = Refusal> {
    declared.iter().filter_map(|(name, value)| {
        let reason = mistake(name, value)?;
        Some(Refusal::setting(format!("spec.cluster.kernelParameters.{name}"), reason))
    })
}

fn mistake(name: &str, value: &str) -> Option<String> {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    if !name.contains('.') || name.starts_with('-') || !name.split('.').all(is_word) {
        return Some("is not the name of a kernel parameter, such as vm.max_map_count".to_owned());
    }
    if let Some((_, own)) = own_parameters().find(|(own, _)| *own == name) {
        return Some(format!("is set to {own} by kubeon: the node needs it"));
    }
    if name == FORWARDING {
        return Some("is net.ipv4.ip_forward by another name, which kubeon sets".to_owned());
    }
    if OF_KUBE_PROXY.contains(&name) {
        return Some("is set by kube-proxy when it starts".to_owned());
    }
    let is_line = !value.is_empty() && value.trim() == value && !value.chars().any(char::is_control);
    (!is_line).then(|| "needs a value of one line, such as 262144".to_owned())
}
