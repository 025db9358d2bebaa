//! What systemd denies to programs. systemd 247 (Debian 11) knows every setting.
//!
//! System calls are denied by name. A list of allowed calls would deny calls that the systemd of an old host does not know.

/// For programs that only read their files, write one folder of their own and use the network: the control plane and
/// haproxy. The unit names that folder with `StateDirectory` or `LogsDirectory`.
pub(crate) const CONFINED: &[&str] = &[
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "LockPersonality=yes",
    "MemoryDenyWriteExecute=yes",
    "PrivateDevices=yes",
    "PrivateTmp=yes",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHome=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "ProtectSystem=strict",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    DENIED_CALLS,
    "UMask=0077",
];

/// For kube-proxy and flannel, which change links, routes, packet filter rules and kernel parameters of the host.
pub(crate) const AGENT: &[&str] = &[
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "ProtectHome=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
];

const DENIED_CALLS: &str =
    "SystemCallFilter=~@clock @cpu-emulation @debug @module @mount @obsolete @raw-io @reboot @swap";
