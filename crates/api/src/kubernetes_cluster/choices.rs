//! Values of fields that accept one of a few words.

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
        /// haproxy on every worker, with the live masters as backends.
        Haproxy = "haproxy",
        /// An existing load balancer, which kubeon does not change.
        External = "external",
        /// A Service whose endpoints are the live masters.
        Updater = "updater",
    }

    /// Which SSH host keys are accepted.
    HostKeyMode {
        /// Only keys that are known: those of the Secret and of the ConfigMap with the pinned keys.
        Pinned = "pinned",
        /// A host without a known key is accepted and its key is pinned, unless it gets a password.
        FirstContact = "firstContact",
    }

    /// The network plugin.
    Cni {
        /// flannel.
        Flannel = "flannel",
        /// Calico.
        Calico = "calico",
        /// Cilium.
        Cilium = "cilium",
        /// No plugin: the owner of the cluster installs one.
        None = "none",
    }

    /// How Services are implemented.
    ProxyMode {
        /// nftables; iptables, with a note, on a host whose kernel does not support nftables.
        Nftables = "nftables",
        /// iptables.
        Iptables = "iptables",
        /// IPVS.
        Ipvs = "ipvs",
        /// No kube-proxy: the network plugin of the owner implements Services.
        Bpf = "bpf",
    }

    /// What kubeon does with the firewalls of hosts.
    FirewallMode {
        /// A check refuses hosts whose firewall stops the packets of the cluster.
        Check = "check",
        /// kubeon opens firewalld, ufw or the rules of nft for the other hosts and the pods.
        Manage = "manage",
        /// Firewalls are not looked at.
        Ignore = "ignore",
    }

    /// When a cluster is repaired.
    RepairPolicy {
        /// When the annotation with the word `repairing` asks for it.
        OnRequest = "OnRequest",
        /// Also when its API server does not answer, or nodes or members of etcd are down, for five minutes; at most once in an
        /// hour.
        Automatic = "Automatic",
    }

    /// What happens to the hosts when the object is deleted.
    DeletionPolicy {
        /// kubeon removes the cluster from the hosts.
        Delete = "Delete",
        /// The hosts stay as they are.
        Retain = "Retain",
    }
}
