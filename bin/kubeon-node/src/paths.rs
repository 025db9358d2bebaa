//! The fixed paths and URLs on a host.

/// The folder of kubeon's own state.
pub const STATE: &str = "/var/lib/kubeon";
/// Locked with `flock` by the program that may change the host.
pub const LOCK: &str = "/var/lib/kubeon/lock";
/// The claim of the cluster that the host belongs to.
pub const CLAIM: &str = "/var/lib/kubeon/claim.json";
/// One file for every completed step.
pub const JOURNAL: &str = "/var/lib/kubeon/journal";
/// One file for every systemd unit that kubeon wrote, with the digest of the content with which it was last
/// started.
pub const UNITS: &str = "/var/lib/kubeon/units";
/// The texts of the units that are static pods, and the manifests that were made of them.
pub const POD_UNITS: &str = "/var/lib/kubeon/pods";
/// One folder for every unpacked part, named by digest.
pub const PARTS: &str = "/var/lib/kubeon/parts";
/// Values of the host from before kubeon changed them.
pub const ORIGINAL: &str = "/var/lib/kubeon/original.json";
/// The rules that kubeon added to the firewall of the host.
pub const FIREWALL: &str = "/var/lib/kubeon/firewall.json";
/// Exists as soon as kubeon may have written files outside [`STATE`] that a reset must remove.
pub const TOUCHED: &str = "/var/lib/kubeon/touched";

/// The folder for kubeon's systemd units.
pub const UNIT_FILES: &str = "/etc/systemd/system";
/// The hosts file.
pub const HOSTS: &str = "/etc/hosts";
/// Modules to load at boot.
pub const MODULES_LOAD: &str = "/etc/modules-load.d/kubeon.conf";
/// Kernel parameters to set at boot; the name sorts after the distribution's own files.
pub const SYSCTL: &str = "/etc/sysctl.d/99-kubeon.conf";
/// The table of file systems and swap.
pub const FSTAB: &str = "/etc/fstab";
/// A copy of [`FSTAB`] from before kubeon turned swap off.
pub const FSTAB_BACKUP: &str = "/etc/fstab.kubeon-backup";

/// The host's own API server.
pub const API: &str = "https://127.0.0.1:6443";
/// The cluster's certificates.
pub const PKI: &str = "/etc/kubernetes/pki";
/// The certificate with which the kubelet requests its own certificate.
pub const KUBELET_BOOTSTRAP: &str = "/var/lib/kubelet/bootstrap/client.crt";
/// The kubelet's own certificate and key.
pub const KUBELET_OWN: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// The kubeconfig that the kubelet writes when it gets its certificate.
pub const KUBELET_KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// The volumes of the pods on this host.
pub const PODS: &str = "/var/lib/kubelet/pods";
/// The authority of the API server.
pub const API_CA: &str = "/etc/kubernetes/pki/ca.crt";
/// The certificates of the authorities, and their keys, which only masters have.
pub const AUTHORITIES: [(&str, &str); 4] = [
    (API_CA, "/etc/kubernetes/pki/ca.key"),
    (ETCD_CA, "/etc/kubernetes/pki/etcd/ca.key"),
    ("/etc/kubernetes/pki/front-proxy-ca.crt", "/etc/kubernetes/pki/front-proxy-ca.key"),
    ("/etc/kubernetes/pki/kubelet-serving-ca.crt", "/etc/kubernetes/pki/kubelet-serving-ca.key"),
];
/// kubeon's own client certificate on a master.
pub const ADMIN_CERTIFICATE: &str = "/etc/kubernetes/pki/admin.crt";
/// The key of [`ADMIN_CERTIFICATE`].
pub const ADMIN_KEY: &str = "/etc/kubernetes/pki/admin.key";

/// The client certificate on a master with which the endpoints of the Service of the API servers are written.
pub const API_UPDATER_CERTIFICATE: &str = "/etc/kubernetes/pki/apiserver-updater.crt";
/// The key of [`API_UPDATER_CERTIFICATE`].
pub const API_UPDATER_KEY: &str = "/etc/kubernetes/pki/apiserver-updater.key";

/// The host's own etcd member.
pub const ETCD: &str = "https://127.0.0.1:2379";
/// The data of the host's own etcd member.
pub const ETCD_DATA: &str = "/var/lib/etcd";
/// The authority of etcd.
pub const ETCD_CA: &str = "/etc/kubernetes/pki/etcd/ca.crt";
/// The client certificate for health checks of etcd.
pub const ETCD_CERTIFICATE: &str = "/etc/kubernetes/pki/etcd/healthcheck-client.crt";
/// The key of [`ETCD_CERTIFICATE`].
pub const ETCD_KEY: &str = "/etc/kubernetes/pki/etcd/healthcheck-client.key";
/// The client certificate with which the API server uses etcd.
pub const API_ETCD_CERTIFICATE: &str = "/etc/kubernetes/pki/apiserver-etcd-client.crt";
/// The key of [`API_ETCD_CERTIFICATE`].
pub const API_ETCD_KEY: &str = "/etc/kubernetes/pki/apiserver-etcd-client.key";

/// containerd's client. The program of this name in `/usr/local/bin` may be the owner's.
pub const CTR: &str = "/var/lib/kubeon/current/containerd/bin/ctr";
/// The socket of containerd.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
