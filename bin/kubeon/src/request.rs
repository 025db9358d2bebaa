//! Builds cluster requests from flags.

use std::collections::BTreeMap;
use std::str::FromStr;

use kubeon_api::kubernetes_cluster::defaults::MAX_CA_YEARS;
use kubeon_api::kubernetes_cluster::{
    ApiServer, Certificates, Cni, DeclaredCluster, DeclaredLoadBalancer, LoadBalancerMode, Network, ProxyMode,
};
use kubeon_api::{NameError, Version};
use kubeon_engine::cluster_request::{ClusterRequest, RequestParts, from_parts};
use kubeon_plan::Refusal;

use crate::args::cluster::ClusterArgs;
use crate::args::settings::{BPF, SettingFlags};
use crate::cli_error::CliError;

/// Builds a request from flags.
///
/// # Errors
/// Refuses with all reasons at once.
pub(crate) fn from_flags(
    args: &ClusterArgs,
    name: &str,
    version: &str,
    supported: &[Version],
) -> Result<ClusterRequest, CliError> {
    let mut refusals = args.missing.refusals.clone();
    refusals.extend(args.settings.refusals());
    let declared = declared(&args.settings, &mut refusals);
    let hosts = args.nodes.hosts(&mut refusals);
    let parts = RequestParts {
        declared,
        feature_gates: args.settings.feature_gates.clone().unwrap_or_default(),
        // Invalid hosts are refused above. The empty list of masters must not be refused a second time.
        unread_masters: hosts.masters.is_empty() && !args.nodes.masters.addresses.is_empty(),
        masters: hosts.masters,
        workers: hosts.workers,
        refusals,
    };
    Ok(from_parts(name, version, parts, supported)?)
}

fn refuse(subject: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal::argument(subject, reason)
}

/// The network plugin and the proxy mode. Values that are refused elsewhere keep the default.
fn network_plugin(flags: &SettingFlags) -> (Option<Cni>, Option<ProxyMode>) {
    if flags.cni.as_deref() == Some(BPF) {
        return (Some(Cni::None), Some(ProxyMode::Bpf));
    }
    let cni = choice(flags.cni.as_deref()).filter(|cni: &Cni| cni.unsupported().is_none());
    let mode = choice(flags.proxy.as_deref()).filter(|mode: &ProxyMode| mode.unsupported().is_none());
    (cni, mode)
}

/// The declaration in the flags. An invalid value is refused, and its field keeps the default.
#[expect(clippy::needless_update, reason = "a new setting may have no flag")]
fn declared(flags: &SettingFlags, refusals: &mut Vec<Refusal>) -> DeclaredCluster {
    let mut read = Reader { refusals };
    let lb_mode = match flags.lb_mode.as_deref() {
        Some("external") if flags.lb_ip.is_some() => Some(LoadBalancerMode::External),
        Some("updater") => Some(LoadBalancerMode::Updater),
        _ => None,
    };
    let is_external = lb_mode == Some(LoadBalancerMode::External);
    let address = if is_external { read.text("--lb-ip", flags.lb_ip.as_deref()) } else { None };
    let port = read.number("--lb-port", flags.lb_port, 1, 65535);
    if let Some(port) = port.filter(|port| !is_external && *port != 6443) {
        read.refusals
            .push(refuse(format!("--lb-port {port}"), "needs --lb-mode external: masters listen on 6443"));
    }
    let kernel_parameters = kernel_parameters(&flags.kernel_parameter, read.refusals);
    let container_runtime = Some(registry::container_runtime(flags, read.refusals));
    let (cni, proxy_mode) = network_plugin(flags);
    DeclaredCluster {
        container_runtime,
        kernel_parameters,
        deploy_mode: choice(flags.deploy_mode.as_deref()),
        pod_cidr: read.text("--pod-cidr", flags.pod_cidr.as_deref()),
        service_cidr: read.text("--svc-cidr", flags.svc_cidr.as_deref()),
        api_server: Some(ApiServer {
            domain: read.text("--lb-domain", flags.lb_domain.as_deref()),
            cert_sans: flags.cert_san.iter().filter_map(|san| read.text("--cert-san", Some(san))).collect(),
            ..ApiServer::default()
        }),
        load_balancer: Some(DeclaredLoadBalancer {
            mode: lb_mode,
            address,
            port: port.filter(|_| is_external).and_then(|p| u16::try_from(p).ok()),
        }),
        network: Some(Network {
            cni,
            proxy_mode,
            dns_domain: read.text("--dns-domain", flags.dns_domain.as_deref()),
            node_mask_size: read
                .number("--node-mask-size", flags.node_mask_size, 16, 28)
                .and_then(|bits| u8::try_from(bits).ok()),
            max_pods: read.number("--max-pods", flags.max_pods, 4, 65000),
            mtu: read.number("--mtu", flags.mtu, 576, 65000),
            node_port_range: read.text("--port-range", flags.port_range.as_deref()),
            firewall: choice(flags.firewall.as_deref()),
            ..Network::default()
        }),
        certificates: Some(Certificates {
            ca_years: read.number("--cert-years", flags.cert_years, 1, MAX_CA_YEARS),
            ..Certificates::default()
        }),
        ..DeclaredCluster::default()
    }
}

/// The kernel parameters in the flags. The plan refuses those that cannot be set.
fn kernel_parameters(flags: &[String], refusals: &mut Vec<Refusal>) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    for text in flags {
        let reason = match text.split_once('=') {
            None => Some("is not NAME=VALUE"),
            Some((name, value)) => {
                parameters.insert(name.to_owned(), value.to_owned()).map(|_| "is named twice")
            }
        };
        refusals.extend(reason.map(|reason| refuse(format!("--kernel-parameter {text}"), reason)));
    }
    parameters
}

/// The value of a flag with a fixed set of values. [`SettingFlags::refusals`] refuses other values.
fn choice<T: FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

struct Reader<'a> {
    refusals: &'a mut Vec<Refusal>,
}

impl Reader<'_> {
    fn text<T: FromStr<Err = NameError>>(&mut self, flag: &str, text: Option<&str>) -> Option<T> {
        let text = text?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.refusals.push(refuse(format!("{flag} {text}"), error.to_string()));
                None
            }
        }
    }

    fn number(&mut self, flag: &str, number: Option<u32>, low: u32, high: u32) -> Option<u32> {
        let number = number?;
        if (low..=high).contains(&number) {
            return Some(number);
        }
        self.refusals.push(refuse(format!("{flag} {number}"), format!("must lie between {low} and {high}")));
        None
    }
}

mod registry;

#[cfg(test)]
mod tests;
