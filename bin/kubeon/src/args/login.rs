//! Login flags: for all hosts, and for the hosts of a role.

use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedI64ValueParser;
use kubeon_engine::cluster_nodes::NodeAccess;
use kubeon_engine::jump_path::JumpPath;
use kubeon_engine::login_request::{LoginRequest, LoginRequests, SecretSource};

use super::contact::ContactFlags;

/// A parser of ports from 1 to 65535.
pub(super) fn port_number() -> RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..)
}

/// Login for all hosts without a more specific setting.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Login")]
pub struct LoginFlags {
    /// Port of sshd [default: 22]
    #[arg(long, value_name = "PORT", value_parser = port_number())]
    pub default_port: Option<u16>,
    /// User [default: root]; another user needs sudo
    #[arg(long, value_name = "USER")]
    pub default_user: Option<String>,
    /// Password: @FILE reads it from a file, - asks for it
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_passwd: Option<SecretSource>,
    /// Password for sudo if the user is not root: @FILE or - [default: the password]
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_sudo_passwd: Option<SecretSource>,
    /// Private key
    #[arg(long, value_name = "FILE")]
    pub default_pk_file: Option<PathBuf>,
    /// Passphrase of the private key: @FILE or -
    #[arg(long, value_name = "@FILE", allow_hyphen_values = true)]
    pub default_pk_password: Option<SecretSource>,
    /// Jump host through which all hosts are reached; join several with commas [default: ProxyJump in ~/.ssh/config]
    #[arg(short = 'J', long, value_name = "USER@HOST:PORT")]
    pub jump_host: Option<JumpPath>,
}

macro_rules! role_login {
    ($name:ident, $role:literal, $port:literal, $user:literal, $passwd:literal, $pk_file:literal,
     $pk_password:literal) => {
        #[doc = concat!("Login for every ", $role, " without a more specific setting.")]
        #[derive(Debug, Clone, Default, Args)]
        pub struct $name {
            #[arg(help = concat!("Port for every ", $role, " without a more specific setting"), id = $port, long = $port, value_name = "PORT", value_parser = port_number(), hide_short_help = true)]
            pub default_port: Option<u16>,
            #[arg(help = concat!("User for every ", $role, " without a more specific setting"), id = $user, long = $user, value_name = "USER", hide_short_help = true)]
            pub default_user: Option<String>,
            #[arg(help = concat!("Password for every ", $role, " without a more specific setting"), id = $passwd, long = $passwd, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_passwd: Option<SecretSource>,
            #[arg(help = concat!("Private key for every ", $role, " without a more specific setting"), id = $pk_file, long = $pk_file, value_name = "FILE", hide_short_help = true)]
            pub default_pk_file: Option<PathBuf>,
            #[arg(help = concat!("Passphrase of the key for every ", $role, " without a more specific setting"), id = $pk_password, long = $pk_password, value_name = "@FILE", allow_hyphen_values = true, hide_short_help = true)]
            pub default_pk_password: Option<SecretSource>,
        }

        impl From<&$name> for LoginRequest {
            fn from(flags: &$name) -> Self {
                Self {
                    port: flags.default_port,
                    user: flags.default_user.clone(),
                    password: flags.default_passwd.clone(),
                    sudo_password: None,
                    key_file: flags.default_pk_file.clone(),
                    key_password: flags.default_pk_password.clone(),
                    jump: None,
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

/// Login for the hosts of a stored cluster.
#[derive(Debug, Clone, Default, Args)]
pub struct KnownLoginFlags {
    #[command(flatten)]
    pub all: LoginFlags,
    #[command(flatten)]
    pub masters: MasterLogin,
    #[command(flatten)]
    pub workers: WorkerLogin,
}

impl KnownLoginFlags {
    /// How to reach the nodes of a cluster.
    pub(crate) fn access(&self, contact: &ContactFlags) -> NodeAccess {
        NodeAccess { logins: self.into(), host_keys: contact.options(), ..NodeAccess::default() }
    }
}

impl From<&LoginFlags> for LoginRequest {
    fn from(flags: &LoginFlags) -> Self {
        Self {
            port: flags.default_port,
            user: flags.default_user.clone(),
            password: flags.default_passwd.clone(),
            sudo_password: flags.default_sudo_passwd.clone(),
            key_file: flags.default_pk_file.clone(),
            key_password: flags.default_pk_password.clone(),
            jump: flags.jump_host.clone(),
        }
    }
}

impl From<&KnownLoginFlags> for LoginRequests {
    fn from(flags: &KnownLoginFlags) -> Self {
        let KnownLoginFlags { all, masters, workers } = flags;
        Self { all: all.into(), masters: masters.into(), workers: workers.into() }
    }
}
