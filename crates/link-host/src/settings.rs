//! Settings of a pool of hosts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use kubeon_api::HostAddress;

use crate::login::Login;
use crate::node_program::NodeProgram;

/// Limits on parallel work and on time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time limit for the TCP connection.
    pub connect: Duration,
    /// Maximum number of hosts that are logged in to, or whose facts are read, at the same time.
    pub hosts_at_once: usize,
    /// Maximum number of logins per host and process: the first, and one for each broken connection.
    pub logins_per_host: u32,
    /// How long a host may send nothing while its facts are read.
    pub facts_silence: Duration,
    /// Time limit for reading the facts of a host that keeps sending.
    pub facts: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [connect, facts_silence, facts] = [5, 30, 300].map(Duration::from_secs);
        Self { connect, hosts_at_once: 64, logins_per_host: 3, facts_silence, facts }
    }
}

/// Logins, node programs and limits of a pool of hosts.
#[derive(Debug, Clone)]
pub struct SshSettings {
    /// The login of every host that is not in `logins`.
    pub login: Login,
    /// The logins of individual hosts.
    pub logins: HashMap<HostAddress, Login>,
    /// The programs that `open` starts on hosts, one per architecture. Without them only facts, commands and copies are possible.
    pub node_programs: Vec<NodeProgram>,
    /// The folder that keeps packed node programs for later commands; without one each command packs them.
    pub packed_programs: Option<PathBuf>,
    /// The limits.
    pub limits: Limits,
}

impl SshSettings {
    /// One login for all hosts, the default limits, no node program.
    #[must_use]
    pub fn new(login: Login) -> Self {
        Self {
            login,
            logins: HashMap::new(),
            node_programs: Vec::new(),
            packed_programs: None,
            limits: Limits::default(),
        }
    }
}
