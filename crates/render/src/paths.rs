//! Where things lie on a host. The layout under `/etc/kubernetes` is kubeadm's, so that habits and tools
//! that know it keep working.

/// Everything of kubeon's own.
pub const HOME: &str = "/var/lib/kubeon";
/// Unpacked parts, one folder per digest.
pub const PARTS: &str = "/var/lib/kubeon/parts";
/// Links that choose the version in use, one per part.
pub const CURRENT: &str = "/var/lib/kubeon/current";
/// Programs of the bundle for hosts that lack them.
pub const TOOLS: &str = "/var/lib/kubeon/tools";
/// Where services look for the host's programs; what it lacks they find last.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/kubeon/tools";
/// Keys and certificates.
pub const PKI: &str = "/etc/kubernetes/pki";
/// Configuration and kubeconfigs.
pub const ETC: &str = "/etc/kubernetes";
/// The certificate with which a kubelet asks for its own.
pub const KUBELET_BOOTSTRAP: &str = "/var/lib/kubelet/bootstrap/client.crt";
/// etcd's data.
pub const ETCD_DATA: &str = "/var/lib/etcd";
/// containerd's socket.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The link that chooses the version of a part.
#[must_use]
pub fn current(part: &str) -> String {
    format!("{CURRENT}/{part}")
}

/// A program of a part, through the link that chooses its version.
#[must_use]
pub fn program(part: &str, name: &str) -> String {
    format!("{CURRENT}/{part}/bin/{name}")
}

/// A file of the public key infrastructure.
#[must_use]
pub fn pki(name: &str) -> String {
    format!("{PKI}/{name}")
}

/// A file of the configuration folder.
#[must_use]
pub fn etc(name: &str) -> String {
    format!("{ETC}/{name}")
}
