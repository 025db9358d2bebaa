//! `kubeon lab`.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand, ValueEnum};
use kubeon_lab::{VmOs, VmProfile};

use super::format::FormatFlag;

const EXAMPLES: &str = "Examples:
  kubeon lab up --hosts 3
  kubeon lab up --lab vm --hosts 2 --kind vm --os debian-13 --profile resolved,firewalld
  kubeon lab ssh h1 -- uptime
  kubeon lab cut h2 && kubeon ls && kubeon lab heal h2
  kubeon lab down";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub command: Option<LabCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Boot hosts; builds the base root file system first if it is missing
    Up(LabUp),
    /// List the hosts of a lab, or all labs
    #[command(visible_alias = "list")]
    Ls(LabLs),
    /// Log in to a host, or run a command on it
    Ssh(LabSsh),
    /// Power off a host at once
    Kill(LabHostArgs),
    /// Boot a host again
    Start(LabHostArgs),
    /// Disconnect a host from the network
    Cut(LabHostArgs),
    /// Reconnect a host to the network
    Heal(LabHostArgs),
    /// Power off all hosts and delete the lab
    Down(LabDown),
}

/// The name of the lab.
#[derive(Debug, Clone, Args)]
pub(crate) struct LabFlag {
    /// The lab
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub lab: String,
}

#[derive(Debug, Args)]
pub(crate) struct LabUp {
    /// Number of hosts of the lab
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub hosts: u32,
    /// What the hosts are: namespaces on this machine's kernel (the default of a new lab), or virtual machines
    #[arg(long, value_name = "KIND")]
    pub kind: Option<LabKind>,
    /// Operating system of virtual machines [default: debian-12]
    #[arg(long, value_name = "OS", requires = "kind",
        value_parser = PossibleValuesParser::new(VmOs::ALL.map(VmOs::name)).try_map(|name| name.parse::<VmOs>()))]
    pub os: Option<VmOs>,
    /// How virtual machines differ from a plain Debian; several are separated by commas
    #[arg(long, value_name = "NAME", requires = "kind", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(VmProfile::ALL.map(VmProfile::name)).try_map(|name| name.parse::<VmProfile>()))]
    pub profile: Vec<VmProfile>,
    #[command(flatten)]
    pub lab: LabFlag,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// What the hosts of a lab are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabKind {
    Namespaces,
    Vm,
}

#[derive(Debug, Args)]
pub(crate) struct LabLs {
    /// List only this lab
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    #[command(flatten)]
    pub format: FormatFlag,
}

/// A user that every host of a lab has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabUser {
    Root,
    Admin,
    Operator,
}

#[derive(Debug, Args)]
pub(crate) struct LabSsh {
    /// The host, such as h1
    pub host: String,
    /// The user: root, admin (sudo without a password) or operator (sudo with one)
    #[arg(short = 'l', long, value_name = "USER", default_value = "root")]
    pub user: LabUser,
    /// A command instead of a shell
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
    #[command(flatten)]
    pub lab: LabFlag,
}

#[derive(Debug, Args)]
pub(crate) struct LabHostArgs {
    /// The host, such as h1
    pub host: String,
    #[command(flatten)]
    pub lab: LabFlag,
}

#[derive(Debug, Args)]
pub(crate) struct LabDown {
    #[command(flatten)]
    pub lab: LabFlag,
}
