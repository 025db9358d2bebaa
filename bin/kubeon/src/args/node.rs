//! Flags about hosts and their logins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use kubeon_api::kubernetes_cluster::NodeTaint;
use kubeon_api::{HostAddress, HostName, HostRole, LabelKey, LabelValue, NameError, TaintEffect};
use kubeon_engine::cluster_request::HostRequest;
use kubeon_engine::login_request::{LoginRequest, LoginRequests, SecretSource};
use kubeon_plan::Refusal;

use super::login::{LoginFlags, MasterLogin, WorkerLogin, port_number};

macro_rules! role_flags {
    ($name:ident, $heading:literal, $default:ident, $variant:ident, $role:literal,
     $short:literal, $name_short:literal, $names:literal, $internal:literal, $labels:literal, $taints:literal, $port:literal,
     $user:literal, $passwd:literal, $pk_file:literal, $pk_password:literal) => {
        #[doc = concat!("Hosts of role ", $role, " and their logins. Lists: repeat the flag or use commas.")]
        #[derive(Debug, Clone, Default, Args)]
        #[command(next_help_heading = $heading)]
        pub struct $name {
            #[arg(help = concat!("Address of a ", $role, "; repeat it or use commas"), id = $role, short = $short, long = $role, value_name = "ADDRESS", value_delimiter = ',')]
            pub addresses: Vec<String>,
            #[doc = "Its node name, in the order of the addresses [default: the host name]"]
            #[arg(id = $names, short = $name_short, long = $names, value_name = "NAME", value_delimiter = ',')]
            pub names: Vec<String>,
            #[arg(help = "Its own address in the cluster's network, in the order of the addresses [default: the address]", id = $internal, long = $internal, value_name = "ADDRESS", value_delimiter = ',', hide_short_help = true)]
            pub internal_addresses: Vec<String>,
            #[doc = "Its labels, k=v,k=v; one flag for each host, in the order of the addresses"]
            #[arg(id = $labels, long = $labels, value_name = "K=V,…")]
            pub labels: Vec<String>,
            #[doc = "Its taints, k=v:NoSchedule,k:NoExecute; one flag for each host, in the order of the addresses"]
            #[arg(id = $taints, long = $taints, value_name = "K=V:EFFECT,…", hide_short_help = true)]
            pub taints: Vec<String>,
            #[arg(help = "Its port, in the order of the addresses", id = $port, long = $port, value_name = "PORT", value_delimiter = ',', value_parser = port_number())]
            pub ports: Vec<u16>,
            #[arg(help = "Its user, in the order of the addresses", id = $user, long = $user, value_name = "USER", value_delimiter = ',', hide_short_help = true)]
            pub users: Vec<String>,
            #[arg(help = "Its password, @FILE or -", id = $passwd, long = $passwd, value_name = "@FILE", value_delimiter = ',', allow_hyphen_values = true, hide_short_help = true)]
            pub passwds: Vec<SecretSource>,
            #[arg(help = "Its private key", id = $pk_file, long = $pk_file, value_name = "FILE", value_delimiter = ',', hide_short_help = true)]
            pub pk_files: Vec<PathBuf>,
            #[arg(help = "The passphrase of its key, @FILE or -", id = $pk_password, long = $pk_password, value_name = "@FILE", value_delimiter = ',', allow_hyphen_values = true, hide_short_help = true)]
            pub pk_passwords: Vec<SecretSource>,
            #[command(flatten)]
            pub default: $default,
        }

        impl $name {
            fn listed(&self) -> Listed<'_> {
                Listed {
                    role: HostRole::$variant,
                    flag: concat!("-", $short),
                    addresses: &self.addresses,
                    names: &self.names,
                    internal_addresses: &self.internal_addresses,
                    labels: &self.labels,
                    taints: &self.taints,
                    ports: &self.ports,
                    users: &self.users,
                    passwds: &self.passwds,
                    pk_files: &self.pk_files,
                    pk_passwords: &self.pk_passwords,
                }
            }
        }
    };
}

role_flags!(
    MasterFlags,
    "Masters",
    MasterLogin,
    Master,
    "master",
    'm',
    'M',
    "master-name",
    "master-internal-address",
    "master-labels",
    "master-taints",
    "master-port",
    "master-user",
    "master-passwd",
    "master-pk-file",
    "master-pk-password"
);
role_flags!(
    WorkerFlags,
    "Workers",
    WorkerLogin,
    Worker,
    "worker",
    'w',
    'W',
    "worker-name",
    "worker-internal-address",
    "worker-labels",
    "worker-taints",
    "worker-port",
    "worker-user",
    "worker-passwd",
    "worker-pk-file",
    "worker-pk-password"
);

/// All host flags.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeFlags {
    #[command(flatten)]
    pub masters: MasterFlags,
    #[command(flatten)]
    pub workers: WorkerFlags,
    #[command(flatten)]
    pub all: LoginFlags,
}

/// The flags of a role that list one value per host.
pub(super) struct Listed<'a> {
    pub(super) role: HostRole,
    pub(super) flag: &'static str,
    pub(super) addresses: &'a [String],
    pub(super) names: &'a [String],
    pub(super) internal_addresses: &'a [String],
    pub(super) labels: &'a [String],
    pub(super) taints: &'a [String],
    pub(super) ports: &'a [u16],
    pub(super) users: &'a [String],
    pub(super) passwds: &'a [SecretSource],
    pub(super) pk_files: &'a [PathBuf],
    pub(super) pk_passwords: &'a [SecretSource],
}

/// The hosts in the flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRequests {
    /// Masters in order.
    pub masters: Vec<HostRequest>,
    /// Workers in order.
    pub workers: Vec<HostRequest>,
}

impl NodeFlags {
    /// Whether any flag names a host.
    pub fn names_hosts(&self) -> bool {
        !self.masters.addresses.is_empty() || !self.workers.addresses.is_empty()
    }

    /// The valid hosts with their logins: the value in the list, else the default of the role, else the
    /// default of all hosts. Adds a refusal for every invalid value.
    pub fn hosts(&self, refusals: &mut Vec<Refusal>) -> HostRequests {
        let logins = LoginRequests::from(self);
        let masters = hosts_of(&self.masters.listed(), &logins.of(&HostRole::Master), refusals);
        let workers = hosts_of(&self.workers.listed(), &logins.of(&HostRole::Worker), refusals);
        HostRequests { masters, workers }
    }
}

fn refuse(subject: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal::argument(subject, reason)
}

/// The valid hosts of a role: each with the values in the lists, else those of `default`. Adds a refusal for every invalid value.
pub(super) fn hosts_of(
    listed: &Listed<'_>,
    default: &LoginRequest,
    refusals: &mut Vec<Refusal>,
) -> Vec<HostRequest> {
    count_lists(listed, refusals);
    let mut hosts = Vec::new();
    for (i, text) in listed.addresses.iter().enumerate() {
        let address = text.parse::<HostAddress>();
        let name = listed.names.get(i).map(|name| name.parse::<HostName>()).transpose();
        let internal = listed.internal_addresses.get(i).map(|text| text.parse::<HostAddress>()).transpose();
        let (labels, taints) = (labels(listed, i), taints(listed, i));
        match (address, name, internal, labels, taints) {
            (Ok(address), Ok(name), Ok(internal_address), Ok(labels), Ok(taints)) => {
                let login = login(listed, i).or(default.clone());
                hosts.push(HostRequest { address, internal_address, name, labels, taints, login });
            }
            (address, name, internal, labels, taints) => {
                if let Err(error) = address {
                    refusals.push(refuse(format!("{} {text}", listed.flag), error.to_string()));
                }
                if let Err(error) = name {
                    let subject = format!("--{}-name {}", listed.role, listed.names[i]);
                    refusals.push(refuse(subject, error.to_string()));
                }
                if let Err(error) = internal {
                    let subject =
                        format!("--{}-internal-address {}", listed.role, listed.internal_addresses[i]);
                    refusals.push(refuse(subject, error.to_string()));
                }
                refusals.extend(labels.err().into_iter().chain(taints.err()).flatten());
            }
        }
    }
    hosts
}

/// A list must have one entry per host: the host of an entry in a shorter list would be ambiguous.
fn count_lists(listed: &Listed<'_>, refusals: &mut Vec<Refusal>) {
    let (role, flag, hosts) = (&listed.role, listed.flag, listed.addresses.len());
    let mut check = |list: &str, count: usize, fewer_allowed: bool| {
        if count == 0 || count == hosts || (fewer_allowed && count < hosts) {
            return;
        }
        let text = match hosts {
            0 => format!("[{role}] {count} given, but no {flag}{}", default_flag_hint(role, list)),
            1 => format!("[{role}] {count} given for 1 host: give one for each {flag}"),
            _ => format!("[{role}] {count} given for {hosts} hosts: give one for each {flag}"),
        };
        refusals.push(refuse(format!("--{role}-{list}"), text));
    };
    check("name", listed.names.len(), false);
    check("internal-address", listed.internal_addresses.len(), false);
    check("labels", listed.labels.len(), true);
    check("taints", listed.taints.len(), true);
    check("port", listed.ports.len(), false);
    check("user", listed.users.len(), false);
    check("passwd", listed.passwds.len(), false);
    check("pk-file", listed.pk_files.len(), false);
    check("pk-password", listed.pk_passwords.len(), false);
}

/// A hint to the flag that applies to all hosts of a role.
fn default_flag_hint(role: &HostRole, list: &str) -> String {
    match list {
        "name" | "internal-address" | "labels" | "taints" => String::new(),
        _ if *role == HostRole::Etcd => String::new(),
        _ => format!("; --default-{role}-{list} is for every {role}"),
    }
}

/// The labels of a host, or a refusal for every invalid label.
fn labels(listed: &Listed<'_>, i: usize) -> Result<BTreeMap<String, String>, Vec<Refusal>> {
    let text = listed.labels.get(i).map(String::as_str).unwrap_or_default();
    let (mut labels, mut refusals) = (BTreeMap::new(), Vec::new());
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let reason = match label(pair) {
            Ok((key, value)) => labels.insert(key, value).map(|_| "is named twice".to_owned()),
            Err(reason) => Some(reason),
        };
        refusals.extend(reason.map(|reason| refuse(format!("--{}-labels {pair}", listed.role), reason)));
    }
    if refusals.is_empty() { Ok(labels) } else { Err(refusals) }
}

/// Parses a label by the rules of the API server, which would refuse an invalid label at the end of the run.
fn label(pair: &str) -> Result<(String, String), String> {
    let (key, value) = pair.split_once('=').ok_or("is not KEY=VALUE")?;
    let text = |error: NameError| error.to_string();
    let key = key.parse::<LabelKey>().map_err(text)?;
    let value = value.parse::<LabelValue>().map_err(text)?;
    Ok((key.into(), value.into()))
}

/// The taints of a host, or a refusal for every invalid taint.
fn taints(listed: &Listed<'_>, i: usize) -> Result<BTreeSet<NodeTaint>, Vec<Refusal>> {
    let text = listed.taints.get(i).map(String::as_str).unwrap_or_default();
    let (mut taints, mut refusals) = (BTreeSet::new(), Vec::new());
    for text in text.split(',').filter(|text| !text.is_empty()) {
        match taint(text) {
            Ok(taint) => {
                taints.insert(taint);
            }
            Err(reason) => refusals.push(refuse(format!("--{}-taints {text}", listed.role), reason)),
        }
    }
    if refusals.is_empty() { Ok(taints) } else { Err(refusals) }
}

/// Parses a taint as kubectl writes it.
fn taint(text: &str) -> Result<NodeTaint, String> {
    let (pair, effect) = text.rsplit_once(':').ok_or("is not KEY=VALUE:EFFECT or KEY:EFFECT")?;
    let (key, value) = pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value)));
    let reason = |error: NameError| error.to_string();
    let key = key.parse::<LabelKey>().map_err(reason)?;
    let value = value.filter(|value| !value.is_empty()).map(str::parse::<LabelValue>);
    let effect = effect.parse::<TaintEffect>().map_err(reason)?;
    Ok(NodeTaint { key, value: value.transpose().map_err(reason)?, effect })
}

fn login(listed: &Listed<'_>, i: usize) -> LoginRequest {
    LoginRequest {
        port: listed.ports.get(i).copied(),
        user: listed.users.get(i).cloned(),
        password: listed.passwds.get(i).cloned(),
        sudo_password: None,
        key_file: listed.pk_files.get(i).cloned(),
        key_password: listed.pk_passwords.get(i).cloned(),
        jump: None,
    }
}

impl From<&NodeFlags> for LoginRequests {
    fn from(flags: &NodeFlags) -> Self {
        let (masters, workers) = (&flags.masters.default, &flags.workers.default);
        Self { all: (&flags.all).into(), masters: masters.into(), workers: workers.into() }
    }
}
