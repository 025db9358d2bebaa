//! What a step does on a host. Every operation is idempotent: done twice it changes nothing the second time.

use std::collections::BTreeMap;
use std::fmt;

use kubeon_api::{ClusterName, Digest, HostAddress, HostName};
use serde::{Deserialize, Serialize};

/// One effect on one host, complete: nothing about it is left to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "op")]
pub enum Op {
    /// Load kernel modules (a missing one that is built in is no failure), set kernel parameters, turn
    /// swap off, now and at every boot. Parameters named in `optional` may be refused by the kernel.
    #[serde(rename_all = "camelCase")]
    Kernel {
        /// Modules to load, such as `br_netfilter`.
        modules: Vec<String>,
        /// Parameter to value, such as `net.ipv4.ip_forward` to `1`.
        parameters: BTreeMap<String, String>,
        /// Parameters that are set where the kernel has them and skipped with a log line where not.
        optional: Vec<String>,
    },
    /// Replace kubeon's own block in `/etc/hosts`; lines of others stay.
    Hosts {
        /// The names of every address.
        entries: Vec<HostsEntry>,
    },
    /// Write files atomically (temporary file, sync, rename), making missing folders.
    Files {
        /// The files, in order.
        files: Vec<File>,
    },
    /// Unpack a part of the bundle to `/var/lib/kubeon/parts/<digest>/`. Its bytes follow the request line.
    #[serde(rename_all = "camelCase")]
    Part {
        /// The part's name, such as `kubelet`.
        name: String,
        /// SHA-256 of the compressed blob; nothing is unpacked to its place unless it matches.
        digest: Digest,
        /// Bytes of the compressed blob that follow.
        size: u64,
        /// Bytes after unpacking, for the disk check.
        unpacked_size: u64,
    },
    /// Point links at their targets, atomically.
    Links {
        /// The links, in order.
        links: Vec<Link>,
    },
    /// Write a systemd unit, enable and start it, and wait until it is ready. It is restarted when its
    /// text, or a file or link in `watches`, changed since it was started by kubeon.
    #[serde(rename_all = "camelCase")]
    Service {
        /// The unit's name with suffix, such as `etcd.service`.
        name: String,
        /// The unit file's text.
        unit: String,
        /// Paths whose change needs a restart.
        watches: Vec<String>,
        /// What must hold before the step is done.
        ready: Vec<Check>,
    },
    /// Import the image archive of an unpacked part into containerd, where its name is missing.
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
    /// Through this host's API server, set or take away the taint that keeps ordinary pods off a master.
    Taint {
        /// The node.
        node: HostName,
        /// Whether it is to be there.
        present: bool,
    },
    /// Through this host's API server, keep new pods off a node and evict those on it, as disruption budgets
    /// allow, until only those are left that end with the host.
    Drain {
        /// The node.
        node: HostName,
    },
    /// Through this host's API server, let new pods onto a node again that was to leave and stays.
    Uncordon {
        /// The node.
        node: HostName,
    },
    /// Through this host's API server, take a node out of the cluster.
    RemoveNode {
        /// The node.
        node: HostName,
        /// Steps in this host's journal that are about it; they are forgotten.
        forget: Vec<String>,
    },
    /// Wait until all checks hold. Changes nothing.
    Await {
        /// The checks; all must hold at once or one after the other.
        checks: Vec<Check>,
    },
    /// Take everything that kubeon put on this host away again: units, processes, mounts, links, files.
    /// The last traces to go are the journal and the claim, so that a broken-off reset can be continued.
    Reset {
        /// Refuse when the host is claimed by another cluster.
        cluster: ClusterName,
    },
}

impl Op {
    /// The same operation, each content replaced by what `change` makes of it.
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
            // Named one by one: an operation that learns to carry contents must be decided on here.
            Self::Kernel { .. }
            | Self::Hosts { .. }
            | Self::Part { .. }
            | Self::Links { .. }
            | Self::Service { .. }
            | Self::Image { .. }
            | Self::Objects { .. }
            | Self::Taint { .. }
            | Self::Drain { .. }
            | Self::Uncordon { .. }
            | Self::RemoveNode { .. }
            | Self::Await { .. }
            | Self::Reset { .. } => Ok(self.clone()),
        }
    }
}

/// A line of kubeon's block in `/etc/hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsEntry {
    /// The address.
    pub address: std::net::Ipv4Addr,
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
    /// What it points at.
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
    /// A secret by reference. Plans hold only this form.
    Secret(SecretRef),
    /// The secret's text, on its way to the host. Never in a plan, a log or an error.
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

/// The certificate authorities of a cluster, each with a key of its own: a key that signs for one purpose cannot sign for
/// another. In JSON the name is written as in [`CertificateAuthority::as_str`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CertificateAuthority {
    /// Members of etcd and their clients.
    Etcd,
    /// The API server towards extension API servers.
    FrontProxy,
    /// Kubelets towards the API server.
    KubeletServing,
    /// The API server and its clients.
    Kubernetes,
}

impl CertificateAuthority {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kubernetes, Self::Etcd, Self::FrontProxy, Self::KubeletServing];

    /// Its name, such as `front-proxy`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::FrontProxy => "front-proxy",
            Self::KubeletServing => "kubelet-serving",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names a secret without holding it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "secret")]
pub enum SecretRef {
    /// The certificate of a certificate authority, PEM.
    CaCertificate {
        /// Which one.
        ca: CertificateAuthority,
    },
    /// The private key of a certificate authority, PEM.
    CaKey {
        /// Which one.
        ca: CertificateAuthority,
    },
    /// Certificate of a leaf, PEM. The certificate and the key of one equal [`Leaf`] belong together.
    LeafCertificate(Leaf),
    /// Private key of a leaf, PEM.
    LeafKey(Leaf),
    /// The private key that signs service account tokens, PEM.
    ServiceAccountKey,
    /// The public half of [`SecretRef::ServiceAccountKey`], PEM.
    ServiceAccountPublicKey,
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaf {
    /// The authority that signs it.
    pub ca: CertificateAuthority,
    /// Subject common name.
    pub common_name: String,
    /// Subject organizations: groups, for client certificates.
    pub organizations: Vec<String>,
    /// DNS names it is valid for.
    pub dns_names: Vec<String>,
    /// Addresses it is valid for.
    pub addresses: Vec<std::net::Ipv4Addr>,
    /// What it may be used for.
    pub usage: Usage,
    /// Hours from issue to expiry.
    pub hours: u32,
}

/// What a leaf certificate may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Usage {
    /// To be known as a client.
    Client,
    /// To serve.
    Server,
    /// Both, as etcd members do.
    Both,
}

/// Something that can be waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "check")]
pub enum Check {
    /// A TCP port accepts a connection.
    Tcp {
        /// The address.
        address: std::net::Ipv4Addr,
        /// The port.
        port: u16,
    },
    /// `https://ADDRESS:PORT/PATH` answers 200 under kubeon's admin certificate for this host.
    Https {
        /// The address.
        address: std::net::Ipv4Addr,
        /// The port.
        port: u16,
        /// The path, such as `/readyz`.
        path: String,
        /// Path of the authority's certificate on the host.
        ca_file: String,
        /// Path of the client certificate on the host, if one is needed.
        certificate_file: Option<String>,
        /// Path of the client key on the host.
        key_file: Option<String>,
    },
    /// A Unix socket accepts a connection.
    Socket {
        /// Its path.
        path: String,
    },
    /// A file exists.
    Path {
        /// Its path.
        path: String,
    },
    /// The nodes exist and are `Ready`, watched through this host's API server.
    NodesReady {
        /// The nodes' names.
        nodes: Vec<HostName>,
    },
    /// A Deployment has all replicas updated and available, watched through this host's API server.
    DeploymentAvailable {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A DNS server answers an `A` question for the name.
    Dns {
        /// The server's address.
        server: std::net::Ipv4Addr,
        /// The name, fully qualified.
        name: String,
    },
    /// The host's address answers on the port for every host listed (from this host).
    Reachable {
        /// The other hosts.
        addresses: Vec<HostAddress>,
        /// The port.
        port: u16,
    },
}

#[cfg(test)]
mod tests {
    use super::CertificateAuthority;

    #[test]
    fn an_authority_is_written_as_its_name_and_no_other_name_is_read() {
        for ca in CertificateAuthority::ALL {
            let text = serde_json::to_string(&ca).unwrap();
            assert_eq!(text, format!("\"{ca}\""));
            assert_eq!(serde_json::from_str::<CertificateAuthority>(&text).unwrap(), ca);
        }
        assert!(serde_json::from_str::<CertificateAuthority>("\"nobody\"").is_err());
    }
}
