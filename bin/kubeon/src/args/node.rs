//! Flags that name hosts and how to log in to them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use kubeon_api::{HostAddress, HostName, LabelKey, LabelValue, NameError};
use kubeon_plan::Refusal;

/// A port that can be dialled: 0 is none.
fn port_number() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..)
}

/// Login for all hosts, where nothing closer is said.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login")]
pub struct LoginFlags {
    /// Port of sshd [default: 22]
    #[arg(long, value_name = "PORT", value_parser = port_number())]
    pub default_port: Option<u16>,
    /// User [default: root]; another one needs sudo
    #[arg(long, value_name = "USER")]
    pub default_user: Option<String>,
    /// Password: @FILE reads it from a file, - asks for it
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_passwd: Option<SecretText>,
    /// What sudo asks another user than root for: @FILE or - [default: the password]
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_sudo_passwd: Option<SecretText>,
    /// Private key
    #[arg(long, value_name = "FILE")]
    pub default_pk_file: Option<PathBuf>,
    /// Passphrase of the private key: @FILE or -
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_pk_password: Option<SecretText>,
}

/// A secret as a flag names it. Never shows a literal one.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretText {
    /// `@FILE`.
    File(PathBuf),
    /// `-`.
    Ask,
    /// Given in clear on the command line.
    Literal(String),
}

impl From<&str> for SecretText {
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(file) => Self::File(file.into()),
            None if text == "-" => Self::Ask,
            None => Self::Literal(text.to_owned()),
        }
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "@{}", file.display()),
            Self::Ask => f.write_str("-"),
            Self::Literal(_) => f.write_str("…"),
        }
    }
}

macro_rules! role_flags {
    ($name:ident, $heading:literal, $role:literal,
     $short:literal, $name_short:literal, $default_port:literal, $default_user:literal, $default_passwd:literal,
     $default_pk_file:literal, $default_pk_password:literal, $names:literal, $labels:literal, $port:literal,
     $user:literal, $passwd:literal, $pk_file:literal, $pk_password:literal) => {
        #[doc = concat!("Hosts of role ", $role, ", and how to log in to them. Lists: repeat the flag or use commas.")]
        #[derive(Debug, Clone, Default, Args)]
        #[command(next_help_heading = $heading)]
        pub struct $name {
            #[arg(help = concat!("Address of a ", $role, "; repeat it or use commas"), id = $role, short = $short, long = $role, value_name = "ADDRESS", value_delimiter = ',')]
            pub addresses: Vec<String>,
            #[doc = "Its name as a node, in the order of the addresses [default: the host's own]"]
            #[arg(id = $names, short = $name_short, long = $names, value_name = "NAME", value_delimiter = ',')]
            pub names: Vec<String>,
            #[doc = "Its labels, k=v,k=v; one flag for each host, in the order of the addresses"]
            #[arg(id = $labels, long = $labels, value_name = "K=V,…")]
            pub labels: Vec<String>,
            #[arg(help = "Its port, in the order of the addresses", id = $port, long = $port, value_name = "PORT", value_delimiter = ',', value_parser = port_number())]
            pub ports: Vec<u16>,
            #[arg(help = "Its user, in the order of the addresses", id = $user, long = $user, value_name = "USER", value_delimiter = ',', hide_short_help = true)]
            pub users: Vec<String>,
            #[arg(help = "Its password, @FILE or -", id = $passwd, long = $passwd, value_name = "@FILE", value_delimiter = ',', allow_hyphen_values = true, hide_short_help = true)]
            pub passwds: Vec<SecretText>,
            #[arg(help = "Its private key", id = $pk_file, long = $pk_file, value_name = "FILE", value_delimiter = ',', hide_short_help = true)]
            pub pk_files: Vec<PathBuf>,
            #[arg(help = "The passphrase of its key, @FILE or -", id = $pk_password, long = $pk_password, value_name = "@FILE", value_delimiter = ',', allow_hyphen_values = true, hide_short_help = true)]
            pub pk_passwords: Vec<SecretText>,
            #[arg(help = concat!("Port for every ", $role, " that is not named closer"), id = $default_port, long = $default_port, value_name = "PORT", value_parser = port_number(), hide_short_help = true)]
            pub default_port: Option<u16>,
            #[arg(help = concat!("User for every ", $role, " that is not named closer"), id = $default_user, long = $default_user, value_name = "USER", hide_short_help = true)]
            pub default_user: Option<String>,
            #[arg(help = concat!("Password for every ", $role, " that is not named closer"), id = $default_passwd, long = $default_passwd, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_passwd: Option<SecretText>,
            #[arg(help = concat!("Private key for every ", $role, " that is not named closer"), id = $default_pk_file, long = $default_pk_file, value_name = "FILE", hide_short_help = true)]
            pub default_pk_file: Option<PathBuf>,
            #[arg(help = concat!("Passphrase of the key for every ", $role, " that is not named closer"), id = $default_pk_password, long = $default_pk_password, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_pk_password: Option<SecretText>,
        }

        impl $name {
            fn role(&self) -> Role<'_> {
                Role {
                    role: $role,
                    flag: concat!("-", $short),
                    addresses: &self.addresses,
                    names: &self.names,
                    labels: &self.labels,
                    ports: &self.ports,
                    users: &self.users,
                    passwds: &self.passwds,
                    pk_files: &self.pk_files,
                    pk_passwords: &self.pk_passwords,
                    default: LoginFlags {
                        default_port: self.default_port,
                        default_user: self.default_user.clone(),
                        default_passwd: self.default_passwd.clone(),
                        default_sudo_passwd: None,
                        default_pk_file: self.default_pk_file.clone(),
                        default_pk_password: self.default_pk_password.clone(),
                    },
                }
            }
        }
    };
}

role_flags!(
    MasterFlags,
    "Masters",
    "master",
    'm',
    'M',
    "default-master-port",
    "default-master-user",
    "default-master-passwd",
    "default-master-pk-file",
    "default-master-pk-password",
    "master-name",
    "master-labels",
    "master-port",
    "master-user",
    "master-passwd",
    "master-pk-file",
    "master-pk-password"
);
role_flags!(
    WorkerFlags,
    "Workers",
    "worker",
    'w',
    'W',
    "default-worker-port",
    "default-worker-user",
    "default-worker-passwd",
    "default-worker-pk-file",
    "default-worker-pk-password",
    "worker-name",
    "worker-labels",
    "worker-port",
    "worker-user",
    "worker-passwd",
    "worker-pk-file",
    "worker-pk-password"
);

/// All flags about hosts.
#[derive(Debug, Clone, Default, Args)]
pub struct NodeFlags {
    #[command(flatten)]
    pub masters: MasterFlags,
    #[command(flatten)]
    pub workers: WorkerFlags,
    #[command(flatten)]
    pub all: LoginFlags,
}

struct Role<'a> {
    role: &'static str,
    flag: &'static str,
    addresses: &'a [String],
    names: &'a [String],
    labels: &'a [String],
    ports: &'a [u16],
    users: &'a [String],
    passwds: &'a [SecretText],
    pk_files: &'a [PathBuf],
    pk_passwords: &'a [SecretText],
    default: LoginFlags,
}

/// How to log in to one host, as flags say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginWish {
    /// Port of sshd.
    pub port: Option<u16>,
    /// User.
    pub user: Option<String>,
    /// Password.
    pub password: Option<SecretText>,
    /// What sudo asks for, where it is not the password.
    pub sudo_password: Option<SecretText>,
    /// Private key.
    pub key_file: Option<PathBuf>,
    /// Passphrase of the private key.
    pub key_password: Option<SecretText>,
}

/// One host, as flags say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostWish {
    /// Its address.
    pub address: HostAddress,
    /// Its name as a node.
    pub name: Option<HostName>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// How to log in.
    pub login: LoginWish,
}

/// All hosts, as flags say them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostWishes {
    /// Masters in order.
    pub masters: Vec<HostWish>,
    /// Workers in order.
    pub workers: Vec<HostWish>,
}

impl NodeFlags {
    /// Whether any flag names a host.
    pub fn names_hosts(&self) -> bool {
        !self.masters.addresses.is_empty() || !self.workers.addresses.is_empty()
    }

    /// The hosts that could be read, with each one's login: the list's entry, else the role's default,
    /// else the general one. What could not be read is added to the refusals.
    pub fn hosts(&self, refusals: &mut Vec<Refusal>) -> HostWishes {
        let masters = hosts_of(&self.masters.role(), &self.all, refusals);
        let workers = hosts_of(&self.workers.role(), &self.all, refusals);
        HostWishes { masters, workers }
    }
}

fn refuse(subject: impl Into<String>, reason: impl Into<String>) -> Refusal {
    Refusal { subject: subject.into(), reason: reason.into() }
}

fn hosts_of(role: &Role<'_>, all: &LoginFlags, refusals: &mut Vec<Refusal>) -> Vec<HostWish> {
    count_lists(role, refusals);
    let mut hosts = Vec::new();
    for (i, text) in role.addresses.iter().enumerate() {
        let address = text.parse::<HostAddress>();
        let name = role.names.get(i).map(|name| name.parse::<HostName>()).transpose();
        let labels = labels(role, i);
        match (address, name, labels) {
            (Ok(address), Ok(name), Ok(labels)) => {
                hosts.push(HostWish { address, name, labels, login: login(role, all, i) });
            }
            (address, name, labels) => {
                if let Err(error) = address {
                    refusals.push(refuse(format!("{} {text}", role.flag), error.to_string()));
                }
                if let Err(error) = name {
                    let subject = format!("--{}-name {}", role.role, role.names[i]);
                    refusals.push(refuse(subject, error.to_string()));
                }
                refusals.extend(labels.err().into_iter().flatten());
            }
        }
    }
    hosts
}

/// A list that is given must have one entry for each host: a shorter one would leave to guess whose it is.
fn count_lists(role: &Role<'_>, refusals: &mut Vec<Refusal>) {
    let hosts = role.addresses.len();
    let mut check = |list: &str, count: usize, fewer_allowed: bool| {
        if count == 0 || count == hosts || (fewer_allowed && count < hosts) {
            return;
        }
        let hosts = if hosts == 1 { "1 host".to_owned() } else { format!("{hosts} hosts") };
        let text =
            format!("[{}] {count} given for {hosts}: give one for each -{}", role.role, &role.flag[1..]);
        refusals.push(refuse(format!("--{}-{list}", role.role), text));
    };
    check("name", role.names.len(), false);
    check("labels", role.labels.len(), true);
    check("port", role.ports.len(), false);
    check("user", role.users.len(), false);
    check("passwd", role.passwds.len(), false);
    check("pk-file", role.pk_files.len(), false);
    check("pk-password", role.pk_passwords.len(), false);
}

/// The labels of one host, or what is wrong with each of them.
fn labels(role: &Role<'_>, i: usize) -> Result<BTreeMap<String, String>, Vec<Refusal>> {
    let text = role.labels.get(i).map(String::as_str).unwrap_or_default();
    let (mut labels, mut refusals) = (BTreeMap::new(), Vec::new());
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let reason = match label(pair) {
            Ok((key, value)) => labels.insert(key, value).map(|_| "is named twice".to_owned()),
            Err(reason) => Some(reason),
        };
        refusals.extend(reason.map(|reason| refuse(format!("--{}-labels {pair}", role.role), reason)));
    }
    if refusals.is_empty() { Ok(labels) } else { Err(refusals) }
}

/// A label by the rules of a file: an API server would refuse any other when all else stands.
fn label(pair: &str) -> Result<(String, String), String> {
    let (key, value) = pair.split_once('=').ok_or("is not KEY=VALUE")?;
    let wrong = |error: NameError| error.to_string();
    let key = key.parse::<LabelKey>().map_err(wrong)?;
    let value = value.parse::<LabelValue>().map_err(wrong)?;
    Ok((key.into(), value.into()))
}

fn login(role: &Role<'_>, all: &LoginFlags, i: usize) -> LoginWish {
    let role_default = LoginWish::from(&role.default);
    let own = LoginWish {
        port: role.ports.get(i).copied(),
        user: role.users.get(i).cloned(),
        password: role.passwds.get(i).cloned(),
        sudo_password: None,
        key_file: role.pk_files.get(i).cloned(),
        key_password: role.pk_passwords.get(i).cloned(),
    };
    own.or(role_default).or(LoginWish::from(all))
}

impl From<&LoginFlags> for LoginWish {
    fn from(flags: &LoginFlags) -> Self {
        Self {
            port: flags.default_port,
            user: flags.default_user.clone(),
            password: flags.default_passwd.clone(),
            sudo_password: flags.default_sudo_passwd.clone(),
            key_file: flags.default_pk_file.clone(),
            key_password: flags.default_pk_password.clone(),
        }
    }
}

impl LoginWish {
    /// What is said here, and for the rest what `other` says.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            port: self.port.or(other.port),
            user: self.user.or(other.user),
            password: self.password.or(other.password),
            sudo_password: self.sudo_password.or(other.sudo_password),
            key_file: self.key_file.or(other.key_file),
            key_password: self.key_password.or(other.key_password),
        }
    }
}
