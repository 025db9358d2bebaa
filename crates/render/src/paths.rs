//! Paths on a host. The layout under `/etc/kubernetes` is that of kubeadm, so that existing tools work with it.

/// The folder of kubeon's own files.
pub const HOME: &str = "/var/lib/kubeon";
/// Unpacked parts, one folder per digest.
pub const PARTS: &str = "/var/lib/kubeon/parts";
/// Links to the versions in use, one for each part.
pub const CURRENT: &str = "/var/lib/kubeon/current";
/// Programs from the bundle for hosts that do not have them.
pub const TOOLS: &str = "/var/lib/kubeon/tools";
/// The script that runs haproxy.
pub const HAPROXY_COMMAND: &str = "/var/lib/kubeon/tools/haproxy";
/// `PATH` of services: the folders of the host first, then [`TOOLS`].
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/var/lib/kubeon/tools";
/// Keys and certificates.
pub const PKI: &str = "/etc/kubernetes/pki";
/// Configuration and kubeconfigs.
pub const ETC: &str = "/etc/kubernetes";
/// The certificate with which a kubelet requests its own certificate.
pub const KUBELET_BOOTSTRAP: &str = "/var/lib/kubelet/bootstrap/client.crt";
/// The kubelet's own certificate and key, which it renews by itself.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// The certificate of the authority with which the controller manager signs.
pub const SIGNING_CERTIFICATE: &str = "/etc/kubernetes/pki/ca-signing.pem";
/// The data of etcd.
pub const ETCD_DATA: &str = "/var/lib/etcd";
/// The audit log of the API server. Rotated files are beside it.
pub const AUDIT_LOG: &str = "/var/log/kubernetes/audit.log";
/// The initial members of etcd, which a member reads at its first start.
pub const ETCD_MEMBERSHIP: &str = "/etc/kubernetes/etcd-membership.env";
/// The image of the haproxy that is a static pod, which its manifest names when it is made.
pub const HAPROXY_IMAGE: &str = "/etc/kubernetes/haproxy.env";
/// The socket of containerd.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// The link to the version of a part that is in use.
#[must_use]
pub fn current(part: &str) -> String {
    format!("{CURRENT}/{part}")
}

/// The path of a program of a part, through the link [`current`].
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
