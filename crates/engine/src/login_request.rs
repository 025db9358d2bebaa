//! How a request says to log in to hosts: to all of them, to those of a role, to one.

use std::fmt;
use std::path::PathBuf;

use kubeon_api::{PrivateKey, Secret};

/// A secret as a flag names it. Never shows a literal one.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// `@FILE`.
    File(PathBuf),
    /// `-`.
    Ask,
    /// Given in clear on the command line.
    Literal(String),
}

impl From<&str> for SecretSource {
    fn from(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(file) => Self::File(file.into()),
            None if text == "-" => Self::Ask,
            None => Self::Literal(text.to_owned()),
        }
    }
}

impl fmt::Debug for SecretSource {
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
pub struct LoginRequest {
    /// Port of sshd.
    pub port: Option<u16>,
    /// User.
    pub user: Option<String>,
    /// Password.
    pub password: Option<SecretSource>,
    /// What sudo asks for, where it is not the password.
    pub sudo_password: Option<SecretSource>,
    /// Private key.
    pub key_file: Option<PathBuf>,
    /// Passphrase of the private key.
    pub key_password: Option<SecretSource>,
}

impl LoginRequest {
    /// These settings, and those of `other` where there are none.
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
    pub fn has_credentials(&self) -> bool {
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
    request: &LoginRequest,
    hosts: &[&LoginRequest],
    part: impl Fn(&LoginRequest) -> &Option<T>,
) -> bool {
    part(request).is_some() && !hosts.iter().any(|&host| part(host) == part(request))
}

/// What a host is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRole {
    /// It runs the control plane.
    Master,
    /// It runs workloads, or is about to leave.
    Worker,
}

impl LoginRole {
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
pub struct LoginRequests {
    /// To all of them, unless their role has a setting.
    pub all: LoginRequest,
    /// To masters.
    pub masters: LoginRequest,
    /// To workers.
    pub workers: LoginRequest,
}

impl LoginRequests {
    /// The settings of a role alone.
    pub fn only(&self, role: LoginRole) -> &LoginRequest {
        match role {
            LoginRole::Master => &self.masters,
            LoginRole::Worker => &self.workers,
        }
    }

    /// The settings of a role, and those of all hosts where it has none.
    pub fn of(&self, role: LoginRole) -> LoginRequest {
        self.only(role).clone().or(self.all.clone())
    }
}

/// How to log in to a host, as far as the request says it.
#[derive(Debug, Clone, Default)]
pub struct HostLoginRequest {
    /// What the caller says.
    pub flags: LoginRequest,
    /// A private key that a file holds.
    pub private_key: Option<PrivateKey>,
    /// A password, or with a key its passphrase, that a file holds.
    pub password: Option<Secret>,
    /// What sudo asks for, where it is not the password.
    pub sudo_password: Option<Secret>,
}
