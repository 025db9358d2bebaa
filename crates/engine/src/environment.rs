//! What the engine needs to know of the machine it runs on, as values.

use std::path::PathBuf;

use kubeon_api::HostAddress;

/// Files and names of this machine.
#[derive(Debug, Clone, Default)]
pub struct EngineEnvironment {
    /// Where the state of clusters is.
    pub state_folder: Option<PathBuf>,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// Where downloaded and built files are.
    pub cache: Option<PathBuf>,
    /// Where bundles are, if not in the cache.
    pub bundles: Option<PathBuf>,
    /// The program that is copied to hosts.
    pub node_program: Option<PathBuf>,
    /// What users call the place that pinned host keys were copied from, if that is no file here.
    pub pinned_in: Option<String>,
    /// The socket of the SSH agent.
    pub ssh_agent: Option<PathBuf>,
    /// How to log in to labs on this machine.
    pub labs: Vec<LabAccess>,
}

/// How to log in to the hosts of a lab.
#[derive(Debug, Clone)]
pub struct LabAccess {
    /// Its hosts.
    pub hosts: Vec<HostAddress>,
    /// The private key that they accept.
    pub key: PathBuf,
    /// Their host keys, in OpenSSH's format.
    pub known_hosts: String,
}
