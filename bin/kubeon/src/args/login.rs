//! Flags that say how to log in to hosts: to all of them, and to those of a role.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedI64ValueParser;

/// A port that can be dialled: 0 is none.
pub(super) fn port_number() -> RangedI64ValueParser<u16> {
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

macro_rules! role_login {
    ($name:ident, $role:literal, $port:literal, $user:literal, $passwd:literal, $pk_file:literal,
     $pk_password:literal) => {
        #[doc = concat!("Login for every ", $role, ", where nothing closer is said.")]
        #[derive(Debug, Clone, Default, Args)]
        pub struct $name {
            #[arg(help = concat!("Port for every ", $role, " that is not named closer"), id = $port, long = $port, value_name = "PORT", value_parser = port_number(), hide_short_help = true)]
            pub default_port: Option<u16>,
            #[arg(help = concat!("User for every ", $role, " that is not named closer"), id = $user, long = $user, value_name = "USER", hide_short_help = true)]
            pub default_user: Option<String>,
            #[arg(help = concat!("Password for every ", $role, " that is not named closer"), id = $passwd, long = $passwd, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_passwd: Option<SecretText>,
            #[arg(help = concat!("Private key for every ", $role, " that is not named closer"), id = $pk_file, long = $pk_file, value_name = "FILE", hide_short_help = true)]
            pub default_pk_file: Option<PathBuf>,
            #[arg(help = concat!("Passphrase of the key for every ", $role, " that is not named closer"), id = $pk_password, long = $pk_password, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_pk_password: Option<SecretText>,
        }

        impl From<&$name> for LoginWish {
            fn from(flags: &$name) -> Self {
                Self {
                    port: flags.default_port,
                    user: flags.default_user.clone(),
                    password: flags.default_passwd.clone(),
                    sudo_password: None,
                    key_file: flags.default_pk_file.clone(),
                    key_password: flags.default_pk_password.clone(),
                }
            }
        }
    };
}

role_login!(
    MasterLogin,
    "master",
    "default-master-port",
    "default-master-user",
    "default-master-passwd",
    "default-master-pk-file",
    "default-master-pk-password"
);
role_login!(
    WorkerLogin,
    "worker",
    "default-worker-port",
    "default-worker-user",
    "default-worker-passwd",
    "default-worker-pk-file",
    "default-worker-pk-password"
);

/// Login for the hosts of a cluster that is known.
#[derive(Debug, Clone, Default, Args)]
pub struct KnownLoginFlags {
    #[command(flatten)]
    pub all: LoginFlags,
    #[command(flatten)]
    pub masters: MasterLogin,
    #[command(flatten)]
    pub workers: WorkerLogin,
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

/// How to log in to a host, as flags say it.
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

    /// Whether it says who logs in, or with what.
    pub fn names_a_way_in(&self) -> bool {
        self.user.is_some() || self.password.is_some() || self.key_file.is_some()
    }

    /// The parts of it, as flags end, that hold for none of these hosts.
    pub fn idle(&self, hosts: &[&Self]) -> Vec<&'static str> {
        let parts = [
            ("port", is_idle(self, hosts, |login| &login.port)),
            ("user", is_idle(self, hosts, |login| &login.user)),
            ("passwd", is_idle(self, hosts, |login| &login.password)),
            ("pk-file", is_idle(self, hosts, |login| &login.key_file)),
            ("pk-password", is_idle(self, hosts, |login| &login.key_password)),
        ];
        parts.into_iter().filter(|(_, idle)| *idle).map(|(part, _)| part).collect()
    }
}

fn is_idle<T: PartialEq>(
    said: &LoginWish,
    hosts: &[&LoginWish],
    part: impl Fn(&LoginWish) -> &Option<T>,
) -> bool {
    part(said).is_some() && !hosts.iter().any(|&host| part(host) == part(said))
}

/// What a host is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It runs the control plane.
    Master,
    /// It runs workloads, or is about to leave.
    Worker,
}

impl Role {
    /// As flags name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Master => "master",
            Self::Worker => "worker",
        }
    }
}

/// How to log in to hosts that no flag names, as flags say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginWishes {
    /// To all of them, where nothing is said of their role.
    pub all: LoginWish,
    /// To masters.
    pub masters: LoginWish,
    /// To workers.
    pub workers: LoginWish,
}

impl LoginWishes {
    /// What is said of a role alone.
    pub fn only(&self, role: Role) -> &LoginWish {
        match role {
            Role::Master => &self.masters,
            Role::Worker => &self.workers,
        }
    }

    /// What is said of a role, and for the rest what is said of all hosts.
    pub fn of(&self, role: Role) -> LoginWish {
        self.only(role).clone().or(self.all.clone())
    }
}

impl From<&KnownLoginFlags> for LoginWishes {
    fn from(flags: &KnownLoginFlags) -> Self {
        let KnownLoginFlags { all, masters, workers } = flags;
        Self { all: all.into(), masters: masters.into(), workers: workers.into() }
    }
}
