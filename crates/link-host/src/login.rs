//! Login data of a host.

use std::fmt;
use std::path::PathBuf;

use kubeon_api::Secret;

/// User, port and login methods of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user. Every user except `root` becomes root with sudo.
    pub user: String,
    /// The port of sshd.
    pub port: u16,
    /// The jump host through which the host is reached.
    pub jump: Option<Box<JumpHost>>,
    /// The login methods, in the order in which they are tried.
    pub methods: Vec<LoginMethod>,
    /// The password for sudo; without it `sudo -n` is used.
    pub sudo_password: Option<Secret>,
}

/// A host through which another host is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JumpHost {
    /// Its name or address.
    pub host: String,
    /// The login to it. Rights of root are not necessary.
    pub login: Login,
}

/// `admin@bastion:22`, with its own jump host.
impl fmt::Display for JumpHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Login { user, port, jump, .. } = &self.login;
        write!(f, "{user}@{}:{port}", self.host)?;
        jump.iter().try_for_each(|jump| write!(f, " through {jump}"))
    }
}

/// A login method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMethod {
    /// A private key: OpenSSH or PEM; RSA, Ed25519 or ECDSA. It must be readable.
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Its passphrase, if it has one.
        passphrase: Option<Secret>,
    },
    /// A password, also by keyboard-interactive authentication.
    Password(Secret),
    /// The keys of an agent.
    Agent {
        /// Its socket, from `$SSH_AUTH_SOCK`.
        socket: PathBuf,
    },
    /// `id_ed25519`, `id_ecdsa` and `id_rsa` in a folder; missing and protected keys are skipped.
    DefaultKeys {
        /// The folder, normally `~/.ssh`.
        folder: PathBuf,
    },
}

impl Login {
    /// A login at port 22 without methods.
    #[must_use]
    pub fn new(user: impl Into<String>) -> Self {
        Self { user: user.into(), port: 22, jump: None, methods: Vec::new(), sudo_password: None }
    }

    /// Sets the port.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the jump host.
    #[must_use]
    pub fn through(mut self, jump: Option<JumpHost>) -> Self {
        self.jump = jump.map(Box::new);
        self
    }

    /// Adds a method after the others.
    #[must_use]
    pub fn with(mut self, method: LoginMethod) -> Self {
        self.methods.push(method);
        self
    }

    /// Sets the password for sudo.
    #[must_use]
    pub fn with_sudo_password(mut self, password: Secret) -> Self {
        self.sudo_password = Some(password);
        self
    }

    /// Adds the default methods: the agent, if `socket` is given, and the default keys in `home`.
    #[must_use]
    pub fn with_usual_keys(mut self, socket: Option<PathBuf>, home: Option<PathBuf>) -> Self {
        self.methods.extend(socket.map(|socket| LoginMethod::Agent { socket }));
        self.methods.extend(home.map(|home| LoginMethod::DefaultKeys { folder: home.join(".ssh") }));
        self
    }
}
