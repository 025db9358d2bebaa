//! The unit that opens the firewall of a host again after its owner loaded the rules.

/// The service that adds the recorded rules.
pub const SERVICE: &str = "kubeon-firewall.service";

/// `kubeon-firewall.service`. It runs at boot and whenever `nftables.service` is started again or loads its rules again.
#[must_use]
pub fn service() -> String {
    "# Written by kubeon. Changes are replaced.\n[Unit]\nDescription=Open the firewall for the cluster\n\
     After=local-fs.target nftables.service\nPartOf=nftables.service\nReloadPropagatedFrom=nftables.service\n\
     Before=kubelet.service etcd.service kube-apiserver.service\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
     ExecStart=/var/lib/kubeon/node/current firewall\nExecReload=/var/lib/kubeon/node/current firewall\n\
     TimeoutStartSec=60\n\n[Install]\nWantedBy=multi-user.target\n"
        .to_owned()
}
