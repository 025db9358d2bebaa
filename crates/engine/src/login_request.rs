//! Login requests: for all hosts, for the hosts of a role, for one host.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;

use kubeon_api::{HostRole, PrivateKey, Secret};

use crate::jump_path::JumpPath;

/// The source of a secret, as a flag names it. `Debug` never prints a literal secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// `@FILE`.
    File(PathBuf),
    /// `-`.
    Ask,
    /// The secret itself, on the command line.
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

/// A part of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginPart {
    /// The port of sshd.
    Port,
    /// The user.
    User,
    /// The password.
    Password,
    /// The private key.
    KeyFile,
    /// The passphrase of the private key.
    KeyPassword,
}

impl fmt::Display for LoginPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Port => "port",
            Self::User => "user",
            Self::Password => "password",
            Self::KeyFile => "private key",
            Self::KeyPassword => "passphrase",
        })
    }
}

/// Login settings of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginRequest {
    /// Port of sshd.
    pub port: Option<u16>,
    /// User.
    pub user: Option<String>,
    /// Password.
    pub password: Option<SecretSource>,
    /// Password for sudo, if it differs from the login password.
    pub sudo_password: Option<SecretSource>,
    /// Private key.
    pub key_file: Option<PathBuf>,
    /// Passphrase of the private key.
    pub key_password: Option<SecretSource>,
    /// The jump hosts through which the host is reached.
    pub jump: Option<JumpPath>,
}

impl LoginRequest {
    /// These settings, completed with the settings of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            port: self.port.or(other.port),
            user: self.user.or(other.user),
            password: self.password.or(other.password),
            sudo_password: self.sudo_password.or(other.sudo_password),
            key_file: self.key_file.or(other.key_file),
            key_password: self.key_password.or(other.key_password),
            jump: self.jump.or(other.jump),
        }
    }

    /// Whether the request has a user, a password or a key.
    pub fn has_credentials(&self) -> bool {
        self.user.is_some() || self.password.is_some() || self.key_file.is_some()
    }

    /// The settings that apply to none of these hosts.
    pub fn unused(&self, hosts: &[&Self]) -> Vec<LoginPart> {
        let parts = [
            (LoginPart::Port, is_unused(self, hosts, |login| &login.port)),
            (LoginPart::User, is_unused(self, hosts, |login| &login.user)),
            (LoginPart::Password, is_unused(self, hosts, |login| &login.password)),
            (LoginPart::KeyFile, is_unused(self, hosts, |login| &login.key_file)),
            (LoginPart::KeyPassword, is_unused(self, hosts, |login| &login.key_password)),
        ];
        parts.into_iter().filter(|(_, unused)| *unused).map(|(part, _)| part).collect()
    }
}

fn is_unused<T: PartialEq>(
    request: &LoginRequest,
    hosts: &[&LoginRequest],
    part: impl Fn(&LoginRequest) -> &Option<T>,
) -> bool {
    part(request).is_some() && !hosts.iter().any(|&host| part(host) == part(request))
}

/// Default logins: for all hosts and by role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoginRequests {
    /// For all hosts.
    pub all: LoginRequest,
    /// For masters; these settings replace `all`.
    pub masters: LoginRequest,
    /// For workers; these settings replace `all`.
    pub workers: LoginRequest,
}

impl LoginRequests {
    /// The settings of a role without the settings of all hosts. A host without the control plane is a worker.
    pub fn only(&self, role: &HostRole) -> &LoginRequest {
        if role.is_master() { &self.masters } else { &self.workers }
    }

    /// The settings of a role, completed with the settings of all hosts.
    pub fn of(&self, role: &HostRole) -> LoginRequest {
        self.only(role).clone().or(self.all.clone())
    }
}

/// The requested login of a host.
#[derive(Debug, Clone, Default)]
pub struct HostLoginRequest {
    /// Settings of the caller.
    pub flags: LoginRequest,
    /// A private key from the request file.
    pub private_key: Option<PrivateKey>,
    /// A password from the request file; with a key, its passphrase.
    pub password: Option<Secret>,
    /// Password for sudo, if it differs from the login password.
    pub sudo_password: Option<Secret>,
    /// The address and port at which the same host was logged in to before: it must show the key that is known for them.
    pub formerly: Option<SocketAddrV4>,
}
