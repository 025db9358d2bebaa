//! The operations of steps on a host. Every operation is idempotent: the second time, it changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::NodeTaint;
use kubeon_api::{ClusterName, Digest, HostName, KeyNumber};
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::firewall::PacketMatch;
use crate::forwarding::PartForwarder;
use crate::secret_ref::SecretRef;

/// One complete operation on one host. The host makes no further decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "op")]
pub enum Op {
    /// Load kernel modules, set kernel parameters and turn swap off, now and at every boot. A module that is
    /// built into the kernel counts as loaded. The kernel may refuse the parameters in `optional`.
    #[serde(rename_all = "camelCase")]
    Kernel {
        /// Modules to load, such as `br_netfilter`.
        modules: Vec<String>,
        /// Parameter to value, such as `net.ipv4.ip_forward` to `1`.
        parameters: BTreeMap<String, String>,
        /// Parameters that are skipped with a log line if the kernel does not have them.
        optional: Vec<String>,
    },
    /// Replace the block of kubeon in `/etc/hosts`. Other lines are kept.
    Hosts {
        /// The names of every address.
        entries: Vec<HostsEntry>,
    },
    /// Let packets through the active firewall of the host, firewalld, ufw or rules of nft, and close what an earlier run of the
    /// step opened. A host without an active firewall is not changed.
    #[serde(rename_all = "camelCase")]
    Firewall {
        /// The link with the host's address. In firewalld, its zone gets the rules.
        link: String,
        /// The packets that are let in: each has a protocol and ports, and may have a source.
        lets_in: Vec<PacketMatch>,
        /// Links of the pod network. Everything that arrives on them is let in and forwarded.
        pod_links: Vec<String>,
    },
    /// Write files atomically (temporary file, sync, rename) and create missing folders.
    Files {
        /// The files, in order.
        files: Vec<File>,
    },
    /// Unpack a part of the bundle to `/var/lib/kubeon/parts/<digest>/`. Its bytes follow the request line, or come from
    /// another host.
    #[serde(rename_all = "camelCase")]
    Part {
        /// The part's name, such as `kubelet`.
        name: String,
        /// SHA-256 of the compressed blob. The part is installed only if it matches.
        digest: Digest,
        /// Size of the compressed blob in bytes.
        size: u64,
        /// Size after unpacking in bytes, for the check of the disk space.
        unpacked_size: u64,
        /// The host that forwards the bytes; `None` if they follow the request line. A plan never names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source: Option<PartForwarder>,
    },
    /// Create or replace symbolic links atomically.
    Links {
        /// The links, in order.
        links: Vec<Link>,
    },
    /// Write a unit of systemd or of a static pod, enable and start it, and wait until it is ready. It is restarted if its text,
    /// or a file or link in `watches`, changed after kubeon started it. A member of
    /// etcd that serves is restarted only while the others are a quorum without it.
    #[serde(rename_all = "camelCase")]
    Service {
        /// The unit's name with suffix, such as `etcd.service`, or `etcd.pod` for a static pod.
        name: String,
        /// The unit file's text: of systemd, or a [`crate::StaticPod`] as JSON.
        unit: String,
        /// Paths whose change needs a restart.
        watches: Vec<String>,
        /// The checks that must succeed before the step is done.
        ready: Vec<Check>,
    },
    /// Let a running unit read its files again, without an interruption, unless it was started after their last change.
    Reload {
        /// The unit's name with suffix, such as `haproxy.service`.
        name: String,
        /// The paths of what it reads.
        files: Vec<String>,
        /// The checks that must succeed before the step is done.
        ready: Vec<Check>,
    },
    /// Import the image archive of an unpacked part into containerd, unless containerd has the image.
    Image {
        /// The upstream name, such as `registry.k8s.io/pause:3.10.2`.
        name: String,
        /// The part that holds `image.tar`.
        part: Digest,
    },
    /// Server-side apply objects through this host's API server, as field manager `kubeon`.
    Objects {
        /// The objects, in order.
        objects: Vec<ApiObject>,
    },
    /// Delete objects through the API server of this host, and the record of the step that applied them.
    RemoveObjects {
        /// The URL paths of the objects, in order.
        paths: Vec<String>,
        /// The id of the step.
        step: String,
    },
    /// Set or remove the control plane taint of a master through the API server of this host.
    Taint {
        /// The node.
        node: HostName,
        /// Whether the taint must exist.
        present: bool,
    },
    /// Give a node its declared taints through the API server of this host, and remove those that an earlier run of the step
    /// gave it. Taints of others stay. Waits until the node exists.
    NodeTaints {
        /// The node.
        node: HostName,
        /// The taints.
        taints: Vec<NodeTaint>,
    },
    /// Cordon a node and evict its pods, as disruption budgets allow, through the API server of this host.
    /// Pods that end with the host, such as those of DaemonSets, are not evicted.
    Drain {
        /// The node.
        node: HostName,
    },
    /// Uncordon a node whose removal was cancelled, through the API server of this host.
    Uncordon {
        /// The node.
        node: HostName,
    },
    /// Delete a node, the steps that it records and the pods that are left on it, through the API server of this host.
    RemoveNode {
        /// The node.
        node: HostName,
    },
    /// Let the controllers of other masters lead in place of those of a lost one at once, through the API server of this host: give up the
    /// leases that programs of the lost master hold.
    EndLeadership {
        /// The node of the lost master.
        node: HostName,
    },
    /// Add the member of this host to the etcd cluster of other masters, as a learner that has no vote, and write the file
    /// with which it starts. A host that is a member already keeps its vote.
    JoinEtcd {
        /// The name of the member.
        name: HostName,
        /// The address at which the other members reach it.
        address: Ipv4Addr,
        /// The addresses of masters that have a member.
        members: Vec<Ipv4Addr>,
        /// The file that names the members.
        file: String,
    },
    /// Give the learner of this host a vote, as soon as it has all data.
    PromoteMember {
        /// The address at which the other members reach it.
        address: Ipv4Addr,
        /// The addresses of masters that have a member.
        members: Vec<Ipv4Addr>,
    },
    /// Tell etcd the new address of the host of a member, through the member of this host. The member keeps its data and its
    /// vote.
    MoveMember {
        /// The name of the member.
        name: HostName,
        /// The address at which the other members reach it from now on.
        address: Ipv4Addr,
    },
    /// Remove a member from the etcd cluster, through the member of this host. The removal waits until the members that
    /// stay have a quorum without it.
    RemoveMember {
        /// The name of the member.
        name: HostName,
        /// The address at which the other members reach it.
        address: Ipv4Addr,
    },
    /// Make the data of this host's member out of a snapshot in an unpacked part, unless a member runs here. All members
    /// that are made out of one snapshot with one token form a cluster.
    RestoreMember {
        /// The name of the member.
        name: HostName,
        /// The part that holds `snapshot.db`.
        snapshot: Digest,
        /// The part that holds etcd's programs.
        etcd: Digest,
        /// All members, this one among them.
        members: Vec<EtcdPeer>,
        /// What distinguishes the cluster from the one of which the snapshot is.
        token: String,
    },
    /// Stop services, each in an orderly way. They start again with the host, static pods only with their next step.
    #[serde(rename_all = "camelCase")]
    StopServices {
        /// The units, in order.
        units: Vec<String>,
        /// Whether the etcd member of this host restarts afterwards. Then they stop only while the other members are a quorum without
        /// it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        before_member: bool,
    },
    /// Stop a service, and remove its unit, the files and their records in the journal.
    RemoveService {
        /// The unit's name with suffix, such as `haproxy.service`.
        name: String,
        /// The paths of files that only this service reads.
        files: Vec<String>,
    },
    /// Remove the records of checks from the journal of this host: what they checked is not used any more.
    ForgetChecks {
        /// The ids of their steps.
        steps: Vec<String>,
    },
    /// Stop the kubelet and remove the certificate that it got from the cluster, so that it requests a new one when it
    /// starts.
    ForgetIdentity {
        /// The keys from which it gets the new one.
        keys: KeyNumber,
    },
    /// Write all Secrets again through the API server of this host, so that they are stored under the key that encrypts
    /// now.
    RewriteSecrets {
        /// The key that encrypts.
        keys: KeyNumber,
    },
    /// Wait until all checks succeed. It changes nothing.
    Await {
        /// The checks. They need not succeed at the same time.
        checks: Vec<Check>,
    },
    /// Remove everything that kubeon created on this host: units, processes, mounts, links, files. The
    /// journal and the claim are removed last, so that an interrupted reset can continue.
    Reset {
        /// The cluster. The host refuses the reset if it belongs to another cluster.
        cluster: ClusterName,
    },
}

impl Op {
    /// Returns the operation with each content replaced by the result of `change`.
    ///
    /// # Errors
    /// The first error of `change`.
    pub fn with_contents<E>(
        &self,
        mut change: impl FnMut(&Content) -> Result<Content, E>,
    ) -> Result<Self, E> {
        match self {
            Self::Files { files } => {
                let file = |File { path, mode, content }: &File| {
                    Ok(File { path: path.clone(), mode: *mode, content: change(content)? })
                };
                Ok(Self::Files { files: files.iter().map(file).collect::<Result<_, E>>()? })
            }
            // The list is explicit, so that a new operation with contents must be handled here.
            Self::Kernel { .. }
            | Self::Hosts { .. }
            | Self::Firewall { .. }
            | Self::Part { .. }
            | Self::Links { .. }
            | Self::Service { .. }
            | Self::Reload { .. }
            | Self::Image { .. }
            | Self::Objects { .. }
            | Self::RemoveObjects { .. }
            | Self::Taint { .. }
            | Self::NodeTaints { .. }
            | Self::Drain { .. }
            | Self::Uncordon { .. }
            | Self::RemoveNode { .. }
            | Self::EndLeadership { .. }
            | Self::JoinEtcd { .. }
            | Self::PromoteMember { .. }
            | Self::MoveMember { .. }
            | Self::RemoveMember { .. }
            | Self::RestoreMember { .. }
            | Self::StopServices { .. }
            | Self::RemoveService { .. }
            | Self::ForgetChecks { .. }
            | Self::ForgetIdentity { .. }
            | Self::RewriteSecrets { .. }
            | Self::Await { .. }
            | Self::Reset { .. } => Ok(self.clone()),
        }
    }
}

/// A member of etcd, as the others reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdPeer {
    /// Its name.
    pub name: HostName,
    /// The address of its host in the cluster's network.
    pub address: Ipv4Addr,
}

/// A line in the block of kubeon in `/etc/hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsEntry {
    /// The address.
    pub address: Ipv4Addr,
    /// The names of the address.
    pub names: Vec<String>,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// The absolute path.
    pub path: String,
    /// Permission bits, such as `0o644`. Never wider than `0o600` for secret content.
    pub mode: u32,
    /// The content.
    pub content: Content,
}

/// A symbolic link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The absolute path of the link.
    pub path: String,
    /// The target of the link.
    pub target: String,
}

/// An object for the API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiObject {
    /// The object's URL path, such as `/apis/apps/v1/namespaces/kube-system/deployments/coredns`.
    pub path: String,
    /// The object itself.
    pub body: serde_json::Value,
}

/// Text for a host: plain, or a secret that only `apply` may resolve.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Plain text, part of the plan.
    Text(String),
    /// A reference to a secret. Plans hold secrets only in this form.
    Secret(SecretRef),
    /// The text of a secret, only for sending to the host. It is never in a plan, a log or an error.
    Sealed(String),
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.debug_tuple("Text").field(text).finish(),
            Self::Secret(secret) => f.debug_tuple("Secret").field(secret).finish(),
            Self::Sealed(_) => f.write_str("Sealed(…)"),
        }
    }
}
