//! Flags about the settings of a cluster. An omitted flag keeps the default.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, builder::BoolishValueParser};
use kubeon_api::kubernetes_cluster::{Cni, DeployMode, FirewallMode, LoadBalancerMode, ProxyMode};
use kubeon_plan::Refusal;

/// The settings of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct SettingFlags {
    /// How the control plane runs: as services (binary), or as static pods that kubeadm makes (container) [default: binary]
    #[arg(long, value_name = "MODE")]
    pub deploy_mode: Option<String>,
    /// DNS name of the API server on every host [default: apiserver.cluster.local]
    #[arg(long, value_name = "NAME")]
    pub lb_domain: Option<String>,
    /// How workers reach the masters: haproxy on every worker, a Service of the cluster (updater), or external [default: haproxy]
    #[arg(long, value_name = "MODE")]
    pub lb_mode: Option<String>,
    /// Address of the external load balancer; needs --lb-mode external
    #[arg(long, value_name = "ADDRESS")]
    pub lb_ip: Option<String>,
    /// Port of the external load balancer [default: 6443]
    #[arg(long, value_name = "PORT")]
    pub lb_port: Option<u32>,
    /// A further name or address for the API server's certificate; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub cert_san: Vec<String>,
    /// Pod network [default: 10.96.0.0/12]
    #[arg(long, value_name = "CIDR")]
    pub pod_cidr: Option<String>,
    /// Service network [default: 10.64.0.0/12]
    #[arg(long, value_name = "CIDR")]
    pub svc_cidr: Option<String>,
    /// Prefix length of the pod network of each node [default: 24]
    #[arg(long, value_name = "BITS")]
    pub node_mask_size: Option<u32>,
    /// Maximum number of pods per node
    #[arg(long, value_name = "N")]
    pub max_pods: Option<u32>,
    /// The largest packet of a pod, in bytes [default: as large as the links of each host allow]
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<u32>,
    /// Node ports, first-last [default: 30000-32767]
    #[arg(long, value_name = "RANGE")]
    pub port_range: Option<String>,
    /// DNS domain of the cluster [default: cluster.local]
    #[arg(long, value_name = "NAME")]
    pub dns_domain: Option<String>,
    /// How Services are implemented: nftables or iptables, or bpf with --cni none (by your network plugin) [default: nftables]
    #[arg(long, value_name = "MODE")]
    pub proxy: Option<String>,
    /// What to do with firewalls of hosts: check, manage (open firewalld, ufw or nft rules), or ignore [default: check]
    #[arg(long, value_name = "MODE")]
    pub firewall: Option<String>,
    /// A mirror of a registry for containerd: docker.io=https://mirror.example.com; may be repeated
    #[arg(long, value_name = "REGISTRY=URL")]
    pub registry_mirror: Vec<String>,
    /// Certificate authorities of registries, as PEM
    #[arg(long, value_name = "FILE")]
    pub registry_ca: Option<PathBuf>,
    /// Proxy of containerd for http, and for https without --https-proxy
    #[arg(long, value_name = "URL")]
    pub http_proxy: Option<String>,
    /// Proxy of containerd for https
    #[arg(long, value_name = "URL")]
    pub https_proxy: Option<String>,
    /// What containerd reaches without the proxy, besides the cluster's networks; may be repeated
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub no_proxy: Vec<String>,
    /// Registry that mirrors docker.io for containerd: yes, no, or its name [default: no]
    #[arg(long, value_name = "REGISTRY")]
    pub mirror: Option<String>,
    /// Network plugin: flannel, none (yours, applied after create), or bpf (yours, and it replaces kube-proxy) [default: flannel]
    #[arg(long, value_name = "NAME")]
    pub cni: Option<String>,
    /// Container runtime: containerd [default: containerd]
    #[arg(long, value_name = "NAME")]
    pub cri: Option<String>,
    /// Ingress controller: none [default: none]
    #[arg(long, value_name = "NAME")]
    pub ic: Option<String>,
    /// Feature gates of the Kubernetes programs: Name=true|false, joined by commas
    #[arg(long, value_name = "PAIRS")]
    pub feature_gates: Option<String>,
    /// A further kernel parameter of every host that runs a node: vm.max_map_count=262144; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub kernel_parameter: Vec<String>,
    /// Lifetime of the certificate authorities in years, 1 to 100 [default: 100]
    #[arg(long, value_name = "YEARS")]
    pub cert_years: Option<u32>,
    /// Accepted for compatibility: hosts always get every part from the bundle
    #[arg(short = 'O', long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = BoolishValueParser::new())]
    pub offline: Option<bool>,
}

/// The value of `--cni` for a cluster without flannel and without kube-proxy: a network plugin that the user applies replaces both.
pub(crate) const BPF: &str = "bpf";

/// A flag with a fixed set of values.
struct Choice {
    flag: &'static str,
    noun: &'static str,
    /// The reason why a value is refused, and the supported values; `None` if the value is supported.
    refuses: fn(&str) -> Option<String>,
}

/// The flags with a fixed set of values. Some values of the CLI contract are not supported.
const CHOICES: [Choice; 6] = [
    Choice {
        flag: "cni",
        noun: "cni",
        refuses: |value| match value.parse::<Cni>() {
            Ok(cni) => cni.unsupported().map(str::to_owned),
            Err(_) => unsupported_value(value, &["flannel", "none", BPF], &[]),
        },
    },
    Choice {
        flag: "cri",
        noun: "cri",
        refuses: |value| unsupported_value(value, &["containerd"], &["docker"]),
    },
    Choice {
        flag: "ic",
        noun: "ingress",
        refuses: |value| unsupported_value(value, &["none"], &["contour", "istio"]),
    },
    Choice {
        flag: "firewall",
        noun: "firewall mode",
        refuses: |value| match value.parse::<FirewallMode>() {
            Ok(_) => None,
            Err(_) => unsupported_value(value, &["check", "manage", "ignore"], &[]),
        },
    },
    Choice {
        flag: "deploy-mode",
        noun: "deploy mode",
        refuses: |value| match value.parse::<DeployMode>() {
            Ok(_) => None,
            Err(_) => unsupported_value(value, &["binary", "container"], &[]),
        },
    },
    Choice {
        flag: "proxy",
        noun: "proxy mode",
        refuses: |value| match value.parse::<ProxyMode>() {
            Ok(mode) => mode.unsupported().map(str::to_owned),
            Err(_) => unsupported_value(value, &["nftables", "iptables"], &["calico", "cilium"]),
        },
    },
];

/// The reason why a value is refused, unless it is `supported`. No bundle contains the parts of `missing`
/// values.
fn unsupported_value(value: &str, supported: &[&str], missing: &[&str]) -> Option<String> {
    if supported.contains(&value) {
        return None;
    }
    let why =
        if missing.contains(&value) { format!("no bundle carries {value}") } else { "unknown".to_owned() };
    Some(format!("{why}; use {}", supported.join(" or ")))
}

impl SettingFlags {
    /// The refusals of unsupported values.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        let given = [&self.cni, &self.cri, &self.ic, &self.firewall, &self.deploy_mode, &self.proxy];
        let mut refusals: Vec<_> = CHOICES
            .iter()
            .zip(given)
            .filter_map(|(choice, value)| choice.refusal(value.as_deref()?))
            .collect();
        refusals.extend(self.bpf_refusal());
        refusals.extend(self.lb_refusals());
        refusals.extend(self.gate_refusals());
        refusals
    }

    /// The refusal of a kube-proxy in a cluster without it.
    fn bpf_refusal(&self) -> Option<Refusal> {
        let proxy = self.proxy.as_deref().filter(|mode| *mode != BPF)?;
        (self.cni.as_deref() == Some(BPF)).then(|| {
            let reason =
                "needs kube-proxy, and --cni bpf is a cluster without it: use --cni none, or leave it out";
            Refusal::argument(format!("--proxy {proxy}"), reason)
        })
    }

    /// The refusals of invalid feature gates. A program with an invalid feature gate does not start.
    fn gate_refusals(&self) -> Vec<Refusal> {
        let pairs = self.feature_gates.as_deref().filter(|pairs| !pairs.is_empty());
        let mut names = BTreeSet::new();
        let mistake = |pair: &str| {
            let Some((name, value)) = pair.split_once('=') else {
                return Some("is not Name=true or Name=false");
            };
            let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
                && name.chars().all(|c| c.is_ascii_alphanumeric());
            match value {
                _ if !is_name => Some("is not the name of a feature gate, such as InPlacePodVerticalScaling"),
                "true" | "false" => None,
                _ => Some("must be =true or =false"),
            }
        };
        let mut refusals = Vec::new();
        for pair in pairs.into_iter().flat_map(|pairs| pairs.split(',')) {
            let name = pair.split('=').next().unwrap_or_default();
            let reason = mistake(pair).or_else(|| (!names.insert(name)).then_some("is named twice"));
            let subject = format!("--feature-gates {pair}");
            refusals.extend(reason.map(|reason| Refusal::argument(subject, reason)));
        }
        refusals
    }

    fn lb_refusals(&self) -> Option<Refusal> {
        let refuse = |subject: String, reason: String| Some(Refusal::argument(subject, reason));
        let unsupported = |mode: &str, why: &str| {
            refuse(format!("--lb-mode {mode}"), format!("[check] Input lb mode[{mode}] not support: {why}"))
        };
        let mode = match self.lb_mode.as_deref().map(|mode| (mode, mode.parse::<LoadBalancerMode>())) {
            None => None,
            Some((_, Ok(mode))) => Some(mode),
            Some((mode, Err(_))) => return unsupported(mode, "use haproxy, updater or external"),
        };
        match (mode, &self.lb_ip) {
            (Some(LoadBalancerMode::Updater), Some(address)) => refuse(
                format!("--lb-ip {address}"),
                "is not used by --lb-mode updater: its Service has the fifteenth address of --svc-cidr"
                    .to_owned(),
            ),
            (Some(LoadBalancerMode::External), None) => refuse(
                "--lb-mode external".to_owned(),
                "needs --lb-ip ADDRESS of the external load balancer".to_owned(),
            ),
            (Some(LoadBalancerMode::Haproxy) | None, Some(address)) => refuse(
                format!("--lb-ip {address}"),
                "is the address of an external load balancer: add --lb-mode external".to_owned(),
            ),
            (Some(LoadBalancerMode::External), Some(_))
            | (Some(LoadBalancerMode::Haproxy | LoadBalancerMode::Updater) | None, None) => None,
        }
    }
}

impl Choice {
    fn refusal(&self, value: &str) -> Option<Refusal> {
        let reason = format!("[check] Input {}[{value}] not support: {}", self.noun, (self.refuses)(value)?);
        Some(Refusal::argument(format!("--{} {value}", self.flag), reason))
    }
}
