//! How to log in to a host.

use std::path::PathBuf;

use kubeon_api::Secret;

/// User, port and the ways to prove who one is, tried in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The user; any but `root` becomes root with sudo.
    pub user: String,
    /// The port of sshd.
    pub port: u16,
    /// The ways to log in, in the order in which they are tried.
    pub methods: Vec<Method>,
    /// The password for sudo; without it, `sudo -n` must do.
    pub sudo_password: Option<Secret>,
}

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// A private key: OpenSSH or PEM; RSA, Ed25519 or ECDSA. It must be readable.
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What opens it, where it is protected.
        passphrase: Option<Secret>,
    },
    /// A password, also where the server asks for it in a dialogue.
    Password(Secret),
    /// The keys of an agent.
    Agent {
        /// Its socket, from `$SSH_AUTH_SOCK`.
        socket: PathBuf,
    },
    /// `id_ed25519`, `id_ecdsa` and `id_rsa` in a folder; missing and protected ones are passed over.
    DefaultKeys {
        /// The folder, normally `~/.ssh`.
        folder: PathBuf,
    },
}

impl Login {
    /// A login at port 22 without any method yet.
    #[must_use]
    pub fn new(user: impl Into<String>) -> Self {
        Self { user: user.into(), port: 22, methods: Vec::new(), sudo_password: None }
    }

    /// The same at another port.
    #[must_use]
    pub fn at_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Adds a method after those already there.
    #[must_use]
    pub fn with(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Gives the password for sudo.
    #[must_use]
    pub fn with_sudo_password(mut self, password: Secret) -> Self {
        self.sudo_password = Some(password);
        self
    }

    /// Adds what is tried when nothing was asked for: the agent, if `socket` names one, and the default
    /// keys in `home`.
    #[must_use]
    pub fn with_usual_keys(mut self, socket: Option<PathBuf>, home: Option<PathBuf>) -> Self {
        self.methods.extend(socket.map(|socket| Method::Agent { socket }));
        self.methods.extend(home.map(|home| Method::DefaultKeys { folder: home.join(".ssh") }));
        self
    }
}
