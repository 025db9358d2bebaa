//! The units that renew the certificates of a host.

/// The service that renews due certificates once.
pub const SERVICE: &str = "kubeon-renew.service";
/// The timer of [`SERVICE`].
pub const TIMER: &str = "kubeon-renew.timer";

/// The programs that read certificates when they start.
const BEFORE: &str = "etcd.service kube-apiserver.service kube-controller-manager.service kube-scheduler.service kubelet.service";

/// `kubeon-renew.service`. At boot it runs before the programs that read certificates, so that a host that was off
/// past the end of a certificate starts with a new one.
#[must_use]
pub fn service() -> String {
    format!(
        "# Written by kubeon. Changes are replaced.\n[Unit]\nDescription=Renew due certificates of this host\n\
         After=local-fs.target\nBefore={BEFORE}\n\n[Service]\nType=oneshot\n\
         ExecStart=/var/lib/kubeon/node/current renew\nTimeoutStartSec=60\nNoNewPrivileges=yes\n\
         LogLevelMax=notice\n\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// `kubeon-renew.timer`: every ten minutes, at a random time, so that hosts do not work at the same time.
#[must_use]
pub fn timer() -> String {
    "# Written by kubeon. Changes are replaced.\n[Unit]\nDescription=Renew due certificates of this host\n\n[Timer]\n\
     OnBootSec=2min\nOnUnitInactiveSec=10min\nRandomizedDelaySec=2min\n\n[Install]\nWantedBy=timers.target\n"
        .to_owned()
}
