//! Fields of a declaration that take one word of a few.

use crate::words::words;

words! {
    /// The distribution.
    ClusterType {
        /// Kubernetes itself.
        Kubernetes = "kubernetes",
        /// k3s.
        K3s = "k3s",
        /// KubeEdge.
        Kubeedge = "kubeedge",
        /// Kubernetes in containers, for tests.
        Kind = "kind",
    }

    /// How the control plane runs.
    DeployMode {
        /// As systemd services.
        Binary = "binary",
        /// As kubeadm static pods.
        Container = "container",
    }

    /// How workers reach the masters.
    LoadBalancerMode {
        /// haproxy on every worker, its backends the live masters.
        Haproxy = "haproxy",
        /// A load balancer that exists and that kubeon does not change.
        External = "external",
        /// A Service whose endpoints are the live masters.
        Updater = "updater",
    }

    /// The network plugin.
    Cni {
        /// flannel.
        Flannel = "flannel",
        /// Calico.
        Calico = "calico",
        /// Cilium.
        Cilium = "cilium",
        /// None: the cluster's owner installs one.
        None = "none",
    }

    /// How kube-proxy implements Services.
    ProxyMode {
        /// nftables; iptables, with a note, where a host's kernel has none.
        Nftables = "nftables",
        /// iptables.
        Iptables = "iptables",
        /// IPVS.
        Ipvs = "ipvs",
    }

    /// What becomes of the hosts when the object is deleted.
    DeletionPolicy {
        /// The cluster is taken down and its traces are removed from the hosts.
        Delete = "Delete",
        /// The hosts stay as they are.
        Retain = "Retain",
    }
}
