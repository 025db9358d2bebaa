//! Flags about hosts that run etcd and nothing else.

use std::path::PathBuf;

use clap::Args;
use kubeon_api::HostRole;
use kubeon_engine::cluster_request::HostRequest;
use kubeon_engine::login_request::{LoginRequest, SecretSource};
use kubeon_plan::Refusal;

use super::login::port_number;
use super::node::{Listed, hosts_of};

/// Hosts of etcd and their logins. Lists: repeat the flag or use commas.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Hosts of etcd")]
pub(crate) struct EtcdHostFlags {
    /// Address of a host that runs etcd and nothing else; repeat it or use commas
    #[arg(id = "etcd", long = "etcd", value_name = "ADDRESS", value_delimiter = ',')]
    pub addresses: Vec<String>,
    /// Its name in the cluster, in the order of the addresses [default: the host name]
    #[arg(id = "etcd-name", long = "etcd-name", value_name = "NAME", value_delimiter = ',')]
    pub names: Vec<String>,
    /// Its own address in the cluster's network, in the order of the addresses [default: the address]
    #[arg(
        id = "etcd-internal-address",
        long = "etcd-internal-address",
        value_name = "ADDRESS",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub internal_addresses: Vec<String>,
    /// Its port, in the order of the addresses
    #[arg(
        id = "etcd-port",
        long = "etcd-port",
        value_name = "PORT",
        value_delimiter = ',',
        value_parser = port_number()
    )]
    pub ports: Vec<u16>,
    /// Its user, in the order of the addresses
    #[arg(
        id = "etcd-user",
        long = "etcd-user",
        value_name = "USER",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub users: Vec<String>,
    /// Its password, @FILE or -
    #[arg(
        id = "etcd-passwd",
        long = "etcd-passwd",
        value_name = "@FILE",
        value_delimiter = ',',
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub passwds: Vec<SecretSource>,
    /// Its private key
    #[arg(
        id = "etcd-pk-file",
        long = "etcd-pk-file",
        value_name = "FILE",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub pk_files: Vec<PathBuf>,
    /// The passphrase of its key, @FILE or -
    #[arg(
        id = "etcd-pk-password",
        long = "etcd-pk-password",
        value_name = "@FILE",
        value_delimiter = ',',
        allow_hyphen_values = true,
        hide_short_help = true
    )]
    pub pk_passwords: Vec<SecretSource>,
}

impl EtcdHostFlags {
    /// Whether any flag names a host.
    pub(crate) fn names_hosts(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// The valid hosts with their logins: the value in the list, else `default`. Adds a refusal for every invalid value.
    pub(crate) fn hosts(&self, default: &LoginRequest, refusals: &mut Vec<Refusal>) -> Vec<HostRequest> {
        let listed = Listed {
            role: HostRole::Etcd,
            flag: "--etcd",
            addresses: &self.addresses,
            names: &self.names,
            internal_addresses: &self.internal_addresses,
            labels: &[],
            taints: &[],
            ports: &self.ports,
            users: &self.users,
            passwds: &self.passwds,
            pk_files: &self.pk_files,
            pk_passwords: &self.pk_passwords,
        };
        hosts_of(&listed, default, refusals)
    }
}
