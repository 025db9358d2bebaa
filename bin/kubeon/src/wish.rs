//! What is wanted: from flags or a file to a specification, with every reason against it at once.

mod file;

use std::collections::BTreeMap;

use kubeon_api::kubernetes_cluster::defaults::MAX_CA_YEARS;
use kubeon_api::kubernetes_cluster::{
    ApiServer, Certificates, DeclaredCluster, LoadBalancer as DeclaredBalancer, LoadBalancerMode, Network,
    ProxyMode as DeclaredProxy, Reach, Settings,
};
use kubeon_api::{ClusterName, HostAddress, NameError, PrivateKey, Version};
use kubeon_plan::{ClusterSpec, HostSpec, LoadBalancer, Note, PlanError, ProxyMode, Refusal, Valid};

use crate::args::login::LoginWish;
use crate::args::node::HostWish;
use crate::args::settings::SettingFlags;
use crate::args::wish::WishArgs;
use crate::cli_error::CliError;

pub use file::from_file;

/// How to log in to a host, as far as it was said.
#[derive(Debug, Clone, Default)]
pub struct SaidLogin {
    /// What flags say.
    pub flags: LoginWish,
    /// A private key that a file holds.
    pub private_key: Option<PrivateKey>,
    /// A password, or with a key its passphrase, that a file holds.
    pub password: Option<kubeon_api::Secret>,
    /// What sudo asks for, where it is not the password.
    pub sudo_password: Option<kubeon_api::Secret>,
}

/// A cluster that is wanted.
#[derive(Debug, Clone)]
pub struct Wish {
    /// What it should be, proven as far as it can be without asking a host.
    pub spec: Valid<ClusterSpec>,
    /// What a person should know.
    pub notes: Vec<Note>,
    /// How to log in to each host.
    pub logins: BTreeMap<HostAddress, SaidLogin>,
}

fn refuse(subject: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal { subject: subject.into(), reason: reason.into() }
}

/// The wish that flags make.
///
/// # Errors
/// Every reason at once.
pub fn from_flags(
    args: &WishArgs,
    name: &str,
    version: &str,
    supported: &[Version],
) -> Result<Wish, CliError> {
    let mut refusals = args.missing.refusals.clone();
    refusals.extend(args.settings.refusals());
    let cluster =
        name.parse::<ClusterName>().map_err(|error| refusals.push(refuse(name, error.to_string()))).ok();
    let version = version
        .parse::<Version>()
        .map_err(|error| {
            refusals.push(refuse(
                format!("version {version}"),
                format!("Input version [{version}] error: {error}"),
            ))
        })
        .ok();
    let declared = declared(&args.settings, &mut refusals);
    let hosts = args.nodes.hosts(&mut refusals);
    let settings = settings(&declared, &mut refusals)?;
    let logins = hosts.masters.iter().chain(&hosts.workers).map(|host| (host.address, host.login.clone()));
    let logins =
        logins.map(|(address, flags)| (address, SaidLogin { flags, ..SaidLogin::default() })).collect();
    let host = |wish: HostWish| HostSpec { address: wish.address, name: wish.name, labels: wish.labels };
    let spec = spec(
        // A name or version that cannot be read is refused below; a stand-in lets the rest be checked as well.
        cluster
            .map_or_else(|| "x".parse(), Ok)
            .map_err(|error: NameError| CliError::failed(error.to_string()))?,
        version.or_else(|| supported.last().copied()),
        &settings,
        hosts.masters.into_iter().map(host).collect(),
        hosts.workers.into_iter().map(host).collect(),
        &mut refusals,
    )?;
    let feature_gates = args.settings.feature_gates.clone().unwrap_or_default();
    let spec = ClusterSpec { feature_gates, ..spec };
    // What could not be read was left out above; an empty list would only be told a second time.
    let unread_masters = spec.masters.is_empty() && !args.nodes.masters.addresses.is_empty();
    let (spec, notes) = validated(spec, supported, refusals, name, unread_masters)?;
    Ok(Wish { spec, notes, logins })
}

/// Checks a specification that was written down before.
///
/// # Errors
/// Every reason at once why it cannot be planned any more.
pub fn stored(spec: ClusterSpec, supported: &[Version]) -> Result<(Valid<ClusterSpec>, Vec<Note>), CliError> {
    Ok(kubeon_plan::validate(spec, supported)?)
}

fn validated(
    spec: ClusterSpec,
    supported: &[Version],
    mut refusals: Vec<Refusal>,
    name: &str,
    unread_masters: bool,
) -> Result<(Valid<ClusterSpec>, Vec<Note>), CliError> {
    match kubeon_plan::validate(spec, supported) {
        Ok(valid) if refusals.is_empty() => Ok(valid),
        Ok((_, notes)) => Err(CliError::refusals(name, refusals, &notes)),
        Err(PlanError { refusals: more, notes, .. }) => {
            refusals.extend(more.into_iter().filter(|refusal| !(unread_masters && refusal.subject == "-m")));
            Err(CliError::refusals(name, refusals, &notes))
        }
    }
}

fn settings(declared: &DeclaredCluster, refusals: &mut Vec<Refusal>) -> Result<Settings, CliError> {
    declared.settings().or_else(|error| {
        refusals.push(refuse("load balancer", error.to_string()));
        let plain = DeclaredCluster { load_balancer: None, external_load_balancer: None, ..declared.clone() };
        plain.settings().map_err(|error| CliError::failed(crate::cli_error::chain(&error)))
    })
}

fn spec(
    name: ClusterName,
    version: Option<Version>,
    settings: &Settings,
    masters: Vec<HostSpec>,
    workers: Vec<HostSpec>,
    refusals: &mut Vec<Refusal>,
) -> Result<ClusterSpec, CliError> {
    let version = version.ok_or_else(|| CliError::failed("the catalogue holds no version"))?;
    let load_balancer = match &settings.reach {
        Reach::External { address, port } => match address.ip() {
            Some(address) => LoadBalancer::External { address, port: *port },
            None => {
                let reason = "is a name; give the load balancer's IPv4 address in this version";
                refusals.push(refuse(format!("load balancer {address}"), reason));
                LoadBalancer::Haproxy
            }
        },
        Reach::Haproxy | Reach::Updater => LoadBalancer::Haproxy,
    };
    let network = &settings.network;
    Ok(ClusterSpec {
        name,
        version,
        masters,
        workers,
        api_domain: settings.api_domain.to_string(),
        cert_sans: settings.cert_sans.iter().map(ToString::to_string).collect(),
        load_balancer,
        pod_cidr: settings.pod_cidr,
        service_cidr: settings.service_cidr,
        node_mask_size: network.node_mask_size,
        max_pods: network.max_pods,
        node_ports: (network.node_port_range.first(), network.node_port_range.last()),
        dns_domain: network.dns_domain.to_string(),
        proxy_mode: match network.proxy_mode {
            DeclaredProxy::Iptables => ProxyMode::Iptables,
            DeclaredProxy::Nftables | DeclaredProxy::Ipvs => ProxyMode::Nftables,
        },
        // A declaration has no field for them; flags add theirs.
        feature_gates: String::new(),
        ca_years: settings.ca_years,
    })
}

/// What the flags declare; what cannot be read is refused and left at its default.
fn declared(flags: &SettingFlags, refusals: &mut Vec<Refusal>) -> DeclaredCluster {
    let mut read = Reader { refusals };
    let lb_mode = match flags.lb_mode.as_deref() {
        Some("external") if flags.lb_ip.is_some() => Some(LoadBalancerMode::External),
        _ => None,
    };
    let address = if lb_mode.is_some() { read.text("--lb-ip", flags.lb_ip.as_deref()) } else { None };
    let port = read.number("--lb-port", flags.lb_port, 1, 65535);
    if let (Some(port), None) = (port, &lb_mode)
        && port != 6443
    {
        read.refusals
            .push(refuse(format!("--lb-port {port}"), "needs --lb-mode external: masters listen on 6443"));
    }
    DeclaredCluster {
        pod_cidr: read.text("--pod-cidr", flags.pod_cidr.as_deref()),
        service_cidr: read.text("--svc-cidr", flags.svc_cidr.as_deref()),
        api_server: Some(ApiServer {
            domain: read.text("--lb-domain", flags.lb_domain.as_deref()),
            port: None,
            cert_sans: flags.cert_san.iter().filter_map(|san| read.text("--cert-san", Some(san))).collect(),
        }),
        load_balancer: Some(DeclaredBalancer {
            mode: lb_mode,
            address,
            port: port.and_then(|p| u16::try_from(p).ok()),
        }),
        network: Some(Network {
            proxy_mode: (flags.proxy.as_deref() == Some("iptables")).then_some(DeclaredProxy::Iptables),
            dns_domain: read.text("--dns-domain", flags.dns_domain.as_deref()),
            node_mask_size: read
                .number("--node-mask-size", flags.node_mask_size, 16, 28)
                .and_then(|bits| u8::try_from(bits).ok()),
            max_pods: read.number("--max-pods", flags.max_pods, 4, 65000),
            node_port_range: read.text("--port-range", flags.port_range.as_deref()),
            ..Network::default()
        }),
        certificates: Some(Certificates {
            ca_years: read.number("--cert-years", flags.cert_years, 1, MAX_CA_YEARS),
        }),
        ..DeclaredCluster::default()
    }
}

struct Reader<'a> {
    refusals: &'a mut Vec<Refusal>,
}

impl Reader<'_> {
    fn text<T: std::str::FromStr<Err = NameError>>(&mut self, flag: &str, text: Option<&str>) -> Option<T> {
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

#[cfg(test)]
mod tests;
