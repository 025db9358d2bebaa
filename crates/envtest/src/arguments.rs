//! The programs' command lines.

use std::path::Path;

/// Ports on loopback that were free when they were chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoopbackPorts {
    pub(crate) etcd: u16,
    pub(crate) peer: u16,
    pub(crate) api: u16,
}

/// Arguments of etcd: one member, plain HTTP, reachable only from this machine.
pub(crate) fn etcd(ports: LoopbackPorts, folder: &Path, fsync: bool) -> Vec<String> {
    let (client, peer) =
        (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.peer));
    let mut arguments = vec![
        "--name=envtest".into(),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=envtest={peer}"),
        "--log-level=warn".into(),
        "--quota-backend-bytes=4294967296".into(),
    ];
    if !fsync {
        arguments.push("--unsafe-no-fsync".into());
    }
    arguments
}

/// Arguments of kube-apiserver: its defaults, except for the options that a single process on loopback needs.
pub(crate) fn api_server(ports: LoopbackPorts, folder: &Path, more: &[String]) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        // The endpoint of a Service must not be on loopback; this one is not used.
        "--endpoint-reconciler-type=none".into(),
        format!("--secure-port={}", ports.api),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--authorization-mode=RBAC".into(),
        "--allow-privileged=true".into(),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--profiling=false".into(),
    ];
    arguments.extend_from_slice(more);
    arguments
}

/// Arguments of kube-controller-manager with the named controllers and without a serving port.
pub(crate) fn controller_manager(folder: &Path, controllers: &[String]) -> Vec<String> {
    let file = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", file("kubeconfig")),
        format!("--controllers={}", controllers.join(",")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--service-account-private-key-file={}", file("sa.key")),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
        "--kube-api-qps=200".into(),
        "--kube-api-burst=400".into(),
        "--profiling=false".into(),
    ]
}
