//! The state of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use jiff::Timestamp;
use kubeon_api::{CloudRoutes, ClusterKeys, ClusterName, Digest, HostAddress, HostName, Version};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The newest schema version of the state file that this program reads.
pub const SCHEMA: u32 = 6;

/// The schema version of a cluster whose nodes had an older version than its control plane.
const NODES_SCHEMA: u32 = 6;

/// The schema version of a cluster that kubeadm made.
const KUBEADM_SCHEMA: u32 = 5;

/// The schema version of a cluster with etcd on hosts of its own.
const ETCD_HOSTS_SCHEMA: u32 = 4;

/// The schema version of a cluster whose masters changed.
const MASTERS_SCHEMA: u32 = 3;

/// The number of snapshots that are remembered.
const MOST_SNAPSHOTS: usize = 100;

/// The schema version of a cluster whose keys were replaced.
const KEYS_SCHEMA: u32 = 2;

/// The schema version of a cluster that has the keys with which it was made. Older programs read it too.
const FIRST_SCHEMA: u32 = 1;

/// The state of one cluster. `S` is the specification that plans are computed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState<S> {
    /// The schema version, up to [`SCHEMA`].
    pub schema: u32,
    /// The cluster's name, also that of its file.
    pub name: ClusterName,
    /// The cluster's identity: two clusters of one name differ here.
    pub uid: String,
    /// The generation of the last applied plan; it only grows.
    pub generation: u64,
    /// The phase of its life.
    pub status: Status,
    /// When it was first saved, UTC.
    pub created_at: Timestamp,
    /// When it was last saved, UTC.
    pub updated_at: Timestamp,
    /// The installed Kubernetes version; `None` before the first success.
    pub version: Option<Version>,
    /// The version that the control plane tries before the cluster changes to it: until then the change can be aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Version>,
    /// The version at the end of an upgrade over several minor versions that is not complete. Older programs do not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrading_to: Option<Version>,
    /// The version of the programs of the nodes, if it is older than that of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_at: Option<Version>,
    /// The version from which the cluster came to the installed one. Older programs did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_before: Option<Version>,
    /// The specification.
    pub spec: S,
    /// Addresses derived from the spec, for readers of the file.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// Hosts that must still be removed, with their node names if they have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving: BTreeMap<HostAddress, Option<HostName>>,
    /// The masters among them, with their addresses in the cluster's network.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving_masters: BTreeMap<HostAddress, HostAddress>,
    /// Masters whose addition to the existing cluster is not finished.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub joining_masters: BTreeSet<HostAddress>,
    /// Workers that changes of the masters did not reach, with the masters that each still knows: none if all of them left.
    /// The other workers know all masters. Older programs did not record them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub known_masters: BTreeMap<HostAddress, BTreeSet<HostAddress>>,
    /// The leaving hosts of etcd alone, with their addresses in the cluster's network.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub leaving_etcd_hosts: BTreeMap<HostAddress, HostAddress>,
    /// Hosts of etcd alone whose addition to the existing cluster is not finished.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub joining_etcd_hosts: BTreeSet<HostAddress>,
    /// Hosts that kubeadm made nodes of the cluster, until a change of kubeon reached all of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_over: BTreeSet<HostAddress>,
    /// The digests of the programs in use, by part of the bundle. Older programs did not record them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bundle: BTreeMap<String, Digest>,
    /// Whether the API servers may have stored Secrets encrypted: from then on the key must not be lost. Older programs did
    /// not encrypt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypts_secrets: bool,
    /// Which keys sign and which are trusted.
    #[serde(default, skip_serializing_if = "ClusterKeys::is_first")]
    pub keys: ClusterKeys,
    /// Workers whose addition is not finished.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub joining: BTreeSet<HostAddress>,
    /// The snapshots of etcd that were saved last, by the SHA-256 of the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub snapshots: BTreeMap<String, SavedSnapshot>,
    /// The snapshot out of which the cluster is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<RestoredPart>,
    /// Where the cloud provider has routes to the pods. Older programs do not write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_routes: Option<CloudRoutes>,
    /// How to log in to the hosts, without anything secret.
    #[serde(default)]
    pub logins: BTreeMap<HostAddress, HostLogin>,
}

impl<S> ClusterState<S> {
    /// A cluster that is about to be created, with a new identity and generation 0.
    #[must_use]
    pub fn new(name: ClusterName, spec: S) -> Self {
        let now = Timestamp::now();
        Self {
            schema: FIRST_SCHEMA,
            name,
            uid: Uuid::new_v4().to_string(),
            generation: 0,
            status: Status::Creating,
            created_at: now,
            updated_at: now,
            version: None,
            trial: None,
            upgrading_to: None,
            nodes_at: None,
            version_before: None,
            spec,
            addresses: Addresses::default(),
            leaving: BTreeMap::new(),
            leaving_masters: BTreeMap::new(),
            joining_masters: BTreeSet::new(),
            known_masters: BTreeMap::new(),
            leaving_etcd_hosts: BTreeMap::new(),
            joining_etcd_hosts: BTreeSet::new(),
            taken_over: BTreeSet::new(),
            bundle: BTreeMap::new(),
            encrypts_secrets: false,
            keys: ClusterKeys::default(),
            joining: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            restoring: None,
            cloud_routes: None,
            logins: BTreeMap::new(),
        }
    }

    /// Changes the keys of the cluster. Older programs, which know the first keys only, refuse the state from then on.
    pub fn set_keys(&mut self, keys: ClusterKeys) {
        self.keys = keys;
        self.schema = self.schema.max(KEYS_SCHEMA);
    }

    /// Changes the version of the programs of the nodes; `None` for that of the control plane. Older programs refuse the state from
    /// then on: they would bring the nodes forward.
    pub fn set_nodes_at(&mut self, version: Option<Version>) {
        self.nodes_at = version;
        self.schema = self.schema.max(NODES_SCHEMA);
    }

    /// Marks a new master as joining. Older programs refuse the state from then on: they would start a second etcd
    /// cluster on it.
    pub fn add_master(&mut self, host: HostAddress) {
        self.joining_masters.insert(host);
        self.schema = self.schema.max(MASTERS_SCHEMA);
    }

    /// Marks a leaving host as a master. Older programs refuse the state from then on: they would leave its etcd member
    /// behind.
    pub fn remove_master(&mut self, host: HostAddress, cluster_address: HostAddress) {
        self.joining_masters.remove(&host);
        self.leaving_masters.insert(host, cluster_address);
        self.schema = self.schema.max(MASTERS_SCHEMA);
    }

    /// Marks the cluster as one with etcd on hosts of its own. Older programs refuse the state from then on: they would start a
    /// second etcd cluster on its masters.
    pub fn has_etcd_hosts(&mut self) {
        self.schema = self.schema.max(ETCD_HOSTS_SCHEMA);
    }

    /// Marks hosts as nodes that kubeadm made. Older programs refuse the state from then on: they would start a second cluster on
    /// them.
    pub fn take_over(&mut self, hosts: BTreeSet<HostAddress>) {
        self.taken_over = hosts;
        self.schema = self.schema.max(KUBEADM_SCHEMA);
    }

    /// Marks a new host of etcd as joining.
    pub fn add_etcd_host(&mut self, host: HostAddress) {
        self.joining_etcd_hosts.insert(host);
    }

    /// Marks a leaving host as one of etcd alone.
    pub fn remove_etcd_host(&mut self, host: HostAddress, cluster_address: HostAddress) {
        self.joining_etcd_hosts.remove(&host);
        self.leaving_etcd_hosts.insert(host, cluster_address);
    }

    /// Remembers a snapshot, and forgets the oldest ones.
    pub fn remember_snapshot(&mut self, sha256: String, snapshot: SavedSnapshot) {
        self.snapshots.insert(sha256, snapshot);
        while self.snapshots.len() > MOST_SNAPSHOTS {
            let oldest = self.snapshots.iter().min_by_key(|(_, snapshot)| snapshot.taken_at);
            let Some(oldest) = oldest.map(|(sha256, _)| sha256.clone()) else { return };
            self.snapshots.remove(&oldest);
        }
    }

    /// Whether the addition or removal of a master is not finished.
    #[must_use]
    pub fn changes_masters(&self) -> bool {
        !self.joining_masters.is_empty() || !self.leaving_masters.is_empty()
    }

    /// Whether the addition or removal of a master or of a host of etcd alone is not finished.
    #[must_use]
    pub fn changes_members(&self) -> bool {
        self.changes_masters() || !self.joining_etcd_hosts.is_empty() || !self.leaving_etcd_hosts.is_empty()
    }

    /// Whether a host may have been written to: the generation is counted before the first effect.
    #[must_use]
    pub fn may_be_on_hosts(&self) -> bool {
        self.generation > 0 || self.status != Status::Creating
    }

    /// Identifies one saved version of the state.
    pub(crate) fn saving(&self) -> (&str, u64, Timestamp) {
        (&self.uid, self.generation, self.updated_at)
    }
}

/// A snapshot of etcd that was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SavedSnapshot {
    /// When it was taken, UTC.
    pub taken_at: Timestamp,
    /// The Kubernetes version of the cluster at that time.
    pub version: Version,
}

/// A snapshot as a part for hosts, in the folder of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoredPart {
    /// Tells one restore from another one, also of the same snapshot: eight hexadecimal digits. Empty in states of older
    /// versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// SHA-256 of the compressed file, which is also its name.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The size of the snapshot in bytes.
    pub unpacked_size: u64,
}

impl RestoredPart {
    /// A part for a new restore.
    #[must_use]
    pub fn new(digest: Digest, size: u64, unpacked_size: u64) -> Self {
        let mut attempt = Uuid::new_v4().simple().to_string();
        attempt.truncate(8);
        Self { attempt, digest, size, unpacked_size }
    }
}

/// Addresses of a cluster's own services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// The API, from inside the cluster.
    #[serde(rename = "apiIP", default, skip_serializing_if = "Option::is_none")]
    pub api: Option<Ipv4Addr>,
    /// DNS, from inside the cluster.
    #[serde(rename = "dnsIP", default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<Ipv4Addr>,
    /// The load balancer between workers and masters.
    #[serde(rename = "lbIP", default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<Ipv4Addr>,
}

/// The phase of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// Not finished for the first time.
    Creating,
    /// The last change was finished.
    Running,
    /// A change of version is not finished.
    Upgrading,
    /// The control plane keeps its version, and a change of the version of the nodes is not finished.
    ChangingNodes,
    /// It is being removed.
    Destroying,
}

/// How to log in to a host. There is no field for passwords and passphrases: they must be given again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostLogin {
    /// The user.
    pub user: String,
    /// The port.
    pub port: u16,
    /// Private keys in order; when empty, the default keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub key_files: Vec<PathBuf>,
    /// The jump hosts, as a user writes them: `USER@HOST:PORT`, several joined by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<String>,
}
