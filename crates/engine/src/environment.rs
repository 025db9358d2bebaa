//! The environment of the engine: files and settings of this machine, as values.

use std::path::PathBuf;

use kubeon_api::HostAddress;
use kubeon_cloud::CloudAccount;
use kubeon_s3::S3Settings;

/// Files and settings of this machine.
#[derive(Debug, Clone, Default)]
pub struct EngineEnvironment {
    /// Folder with the state of clusters.
    pub state_folder: Option<PathBuf>,
    /// The home folder.
    pub home: Option<PathBuf>,
    /// The user of this machine, as which ssh logs in to a jump host by default.
    pub user: Option<String>,
    /// Folder with downloaded and built files.
    pub cache: Option<PathBuf>,
    /// Folder with bundles, if it is not in the cache.
    pub bundles: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The node program for hosts of its architecture, instead of that in this program or next to it.
    pub node_program: Option<PathBuf>,
    /// This program. The node programs are attached to it, or one is next to it.
    pub program: Option<PathBuf>,
    /// Display name of the source of the pinned host keys, if it is not a file on this machine.
    pub pinned_in: Option<String>,
    /// The socket of the SSH agent.
    pub ssh_agent: Option<PathBuf>,
    /// The longest life of leaf certificates in minutes, for tests of their renewal.
    pub leaf_minutes: Option<u32>,
    /// Lines of the format `allowed_signers`: keys to trust instead of those in the state folder.
    pub trusted_keys: Option<String>,
    /// Where object stores are, and the keys for them.
    pub s3: S3Settings,
    /// The keys of the cloud provider whose route tables follow clusters.
    pub cloud_account: Option<CloudAccount>,
    /// How to log in to labs on this machine.
    pub labs: Vec<LabAccess>,
}

/// How to log in to the hosts of a lab.
#[derive(Debug, Clone)]
pub struct LabAccess {
    /// The hosts of the lab.
    pub hosts: Vec<HostAddress>,
    /// The private key that the hosts accept.
    pub key: PathBuf,
    /// The host keys, in OpenSSH format.
    pub known_hosts: String,
}
