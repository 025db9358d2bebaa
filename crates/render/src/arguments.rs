//! The arguments of the programs of the control plane: the same for a service of systemd and for a static pod.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::extra_arguments::SHUTDOWN_DELAY;
use crate::paths::{AUDIT_LOG, ETCD_DATA, SIGNING_CERTIFICATE, etc, pki};
use crate::tls::{CIPHER_SUITES, MIN_VERSION};

/// The settings of an etcd member.
#[derive(Debug, Clone)]
pub struct EtcdMember<'a> {
    /// The member's name: the name of its host.
    pub name: &'a str,
    /// Its address.
    pub address: Ipv4Addr,
}

/// The arguments of a member.
pub(crate) fn etcd(member: &EtcdMember<'_>) -> Vec<String> {
    let address = member.address;
    vec![
        format!("--name={}", member.name),
        format!("--data-dir={ETCD_DATA}"),
        format!("--listen-client-urls=https://127.0.0.1:2379,https://{address}:2379"),
        format!("--advertise-client-urls=https://{address}:2379"),
        format!("--listen-peer-urls=https://{address}:2380"),
        format!("--initial-advertise-peer-urls=https://{address}:2380"),
        "--client-cert-auth".into(),
        format!("--trusted-ca-file={}", pki("etcd/ca.crt")),
        format!("--cert-file={}", pki("etcd/server.crt")),
        format!("--key-file={}", pki("etcd/server.key")),
        "--peer-client-cert-auth".into(),
        format!("--peer-trusted-ca-file={}", pki("etcd/ca.crt")),
        format!("--peer-cert-file={}", pki("etcd/peer.crt")),
        format!("--peer-key-file={}", pki("etcd/peer.key")),
        "--listen-metrics-urls=http://127.0.0.1:2381".into(),
        "--tls-min-version=TLS1.2".into(),
        "--feature-gates=InitialCorruptCheck=true".into(),
        "--watch-progress-notify-interval=5s".into(),
    ]
}

/// The settings of an API server.
#[derive(Debug, Clone)]
pub struct ApiServerUnit<'a> {
    /// The address that it advertises.
    pub address: Ipv4Addr,
    /// The addresses of the members of etcd that it uses.
    pub etcd: &'a [Ipv4Addr],
    /// Service network in CIDR notation.
    pub service_cidr: &'a str,
    /// First and last node port.
    pub node_ports: (u16, u16),
    /// DNS domain of the cluster.
    pub dns_domain: &'a str,
    /// Feature gates, or empty.
    pub feature_gates: &'a str,
}

/// The arguments of an API server. `extra` are those that a declaration adds, which are not among them.
pub(crate) fn api_server(api: &ApiServerUnit<'_>, extra: &BTreeMap<String, String>) -> Vec<String> {
    let etcd: Vec<String> = api.etcd.iter().map(|member| format!("https://{member}:2379")).collect();
    let mut arguments = vec![
        format!("--advertise-address={}", api.address),
        "--secure-port=6443".into(),
        format!("--etcd-servers={}", etcd.join(",")),
        format!("--etcd-cafile={}", pki("etcd/ca.crt")),
        format!("--etcd-certfile={}", pki("apiserver-etcd-client.crt")),
        format!("--etcd-keyfile={}", pki("apiserver-etcd-client.key")),
        format!("--encryption-provider-config={}", etc("encryption.yaml")),
        "--encryption-provider-config-automatic-reload=true".into(),
        format!("--service-cluster-ip-range={}", api.service_cidr),
        format!("--service-node-port-range={}-{}", api.node_ports.0, api.node_ports.1),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs".into(),
        format!("--admission-control-config-file={}", etc("admission.yaml")),
        format!("--audit-policy-file={}", etc("audit-policy.yaml")),
        format!("--audit-log-path={AUDIT_LOG}"),
        // At most 100 MB before a rotation, ten rotated files, each for at most 30 days.
        "--audit-log-maxsize=100".into(),
        "--audit-log-maxbackup=10".into(),
        "--audit-log-maxage=30".into(),
        "--audit-log-compress=true".into(),
        "--allow-privileged=true".into(),
        format!("--authentication-config={}", etc("authentication.yaml")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--tls-min-version={MIN_VERSION}"),
        format!("--tls-cipher-suites={}", CIPHER_SUITES.join(",")),
        format!("--kubelet-certificate-authority={}", pki("kubelet-serving-ca.crt")),
        format!("--kubelet-client-certificate={}", pki("apiserver-kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
        "--kubelet-preferred-address-types=InternalIP,Hostname".into(),
        format!("--service-account-issuer=https://kubernetes.default.svc.{}", api.dns_domain),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
        // Without it, open watches delay the shutdown by a minute, during which the server accepts no requests.
        "--shutdown-watch-termination-grace-period=10s".into(),
        "--profiling=false".into(),
    ];
    if !extra.contains_key(SHUTDOWN_DELAY) {
        // The haproxy of the workers needs it to notice the end and to choose another API server for new connections.
        arguments.push(format!("--{SHUTDOWN_DELAY}=2s"));
    }
    with_gates(arguments, api.feature_gates)
}

/// The settings of a controller manager.
#[derive(Debug, Clone)]
pub struct ControllerManager<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// Pod network in CIDR notation.
    pub pod_cidr: &'a str,
    /// Service network in CIDR notation.
    pub service_cidr: &'a str,
    /// Prefix length of a node's share of the pod network.
    pub node_mask_size: u8,
    /// Feature gates, or empty.
    pub feature_gates: &'a str,
}

/// The arguments of a controller manager.
pub(crate) fn controller_manager(manager: &ControllerManager<'_>) -> Vec<String> {
    let arguments = vec![
        "--bind-address=127.0.0.1".into(),
        format!("--cluster-name={}", manager.cluster),
        format!("--kubeconfig={}", etc("controller-manager.conf")),
        format!("--authentication-kubeconfig={}", etc("controller-manager.conf")),
        format!("--authorization-kubeconfig={}", etc("controller-manager.conf")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        format!("--tls-cert-file={}", pki("controller-manager-serving.crt")),
        format!("--tls-private-key-file={}", pki("controller-manager-serving.key")),
        format!("--tls-min-version={MIN_VERSION}"),
        format!("--cluster-signing-cert-file={SIGNING_CERTIFICATE}"),
        format!("--cluster-signing-key-file={}", pki("ca.key")),
        "--cluster-signing-duration=8760h".into(),
        format!("--root-ca-file={}", pki("ca.crt")),
        format!("--service-account-private-key-file={}", pki("sa.key")),
        "--use-service-account-credentials=true".into(),
        // Every controller first creates its service account; the default of 20 requests per second delays a new cluster.
        "--kube-api-qps=100".into(),
        "--kube-api-burst=200".into(),
        "--allocate-node-cidrs=true".into(),
        format!("--cluster-cidr={}", manager.pod_cidr),
        format!("--service-cluster-ip-range={}", manager.service_cidr),
        format!("--node-cidr-mask-size={}", manager.node_mask_size),
        "--leader-elect=true".into(),
        "--profiling=false".into(),
    ];
    with_gates(arguments, manager.feature_gates)
}

/// The arguments of a scheduler.
pub(crate) fn scheduler(feature_gates: &str) -> Vec<String> {
    let arguments = vec![
        "--bind-address=127.0.0.1".into(),
        format!("--kubeconfig={}", etc("scheduler.conf")),
        format!("--authentication-kubeconfig={}", etc("scheduler.conf")),
        format!("--authorization-kubeconfig={}", etc("scheduler.conf")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        format!("--tls-cert-file={}", pki("scheduler-serving.crt")),
        format!("--tls-private-key-file={}", pki("scheduler-serving.key")),
        format!("--tls-min-version={MIN_VERSION}"),
        "--leader-elect=true".into(),
        "--profiling=false".into(),
    ];
    with_gates(arguments, feature_gates)
}

fn with_gates(mut arguments: Vec<String>, feature_gates: &str) -> Vec<String> {
    if !feature_gates.is_empty() {
        arguments.push(format!("--feature-gates={feature_gates}"));
    }
    arguments
}
