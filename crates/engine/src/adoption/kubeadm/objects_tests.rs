//! Objects as kubeadm v1.36 leaves them.

use serde_json::json;

use super::*;

const CONFIGURATION: &str = "\
apiServer: {}
apiVersion: kubeadm.k8s.io/v1beta4
caCertificateValidityPeriod: 87600h0m0s
certificateValidityPeriod: 8760h0m0s
certificatesDir: /etc/kubernetes/pki
clusterName: kubernetes
controlPlaneEndpoint: 10.0.0.1:6443
controllerManager: {}
dns: {}
encryptionAlgorithm: RSA-2048
etcd:
  local:
    dataDir: /var/lib/etcd
imageRepository: registry.k8s.io
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking:
  dnsDomain: cluster.local
  podSubnet: 10.96.0.0/12
  serviceSubnet: 10.64.0.0/12
proxy: {}
scheduler: {}
";

const COREFILE_OF_KUBEADM: &str = "\
.:53 {
    errors
    health {
       lameduck 5s
    }
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       fallthrough in-addr.arpa ip6.arpa
       ttl 30
    }
    prometheus :9153
    forward . /etc/resolv.conf {
       max_concurrent 1000
    }
    cache 30 {
       disable success cluster.local
       disable denial cluster.local
    }
    loop
    reload
    loadbalance
}
";

const PROXY: &str = "\
apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
clientConnection:
  acceptContentTypes: \"\"
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
clusterCIDR: 10.96.0.0/12
kind: KubeProxyConfiguration
mode: nftables
";

fn node_object(name: &str, address: &str, is_master: bool) -> Value {
    let mut labels = json!({ "kubernetes.io/hostname": name });
    if is_master {
        labels[MASTER] = json!("");
    }
    json!({
        "metadata": { "name": name, "labels": labels },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }],
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": { "kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.2.0" },
        },
    })
}

fn map(name: &str, key: &str, text: &str) -> Value {
    json!({ "metadata": { "name": name }, "data": { key: text } })
}

/// What kubectl prints for a cluster of a master and a worker, after a change of the objects.
fn printed(change: impl FnOnce(&mut [Value; 3])) -> [String; 3] {
    let nodes = [node_object("h1", "10.0.0.1", true), node_object("h2", "10.0.0.2", false)];
    let maps = [
        map("coredns", "Corefile", COREFILE_OF_KUBEADM),
        map("kube-proxy", "config.conf", PROXY),
        map("kubeadm-config", "ClusterConfiguration", CONFIGURATION),
    ];
    let proxies = json!({ "kind": "DaemonSet", "metadata": { "name": "kube-proxy" } });
    let mut objects = [json!({ "items": nodes }), json!({ "items": maps }), proxies];
    change(&mut objects);
    objects.map(|object| object.to_string())
}

/// The objects of the cluster, with another configuration of kubeadm.
pub(crate) fn configured(change: impl FnOnce(&mut Value)) -> KubeadmObjects {
    let mut objects = KubeadmObjects::parse(&printed(|_| ())).unwrap();
    change(&mut objects.configuration);
    objects
}

/// The nodes of the cluster: a master and a worker.
pub(crate) fn nodes() -> Vec<KubeadmNode> {
    configured(|_| ()).nodes
}

fn reasons(change: impl FnOnce(&mut [Value; 3])) -> Vec<String> {
    let objects = KubeadmObjects::parse(&printed(change)).unwrap();
    objects.reasons().into_iter().map(|(subject, text)| format!("{subject} {text}")).collect()
}

#[test]
fn a_cluster_of_kubeadm_is_read() {
    let objects = configured(|_| ());
    assert_eq!(objects.reasons(), []);
    assert_eq!(objects.proxy_mode.as_deref(), Some("nftables"));
    let found: Vec<_> = objects.nodes.iter().map(|node| (node.name.as_str(), node.is_master)).collect();
    assert_eq!(found, [("h1", true), ("h2", false)]);
    assert_eq!(objects.nodes[1].address.to_string(), "10.0.0.2");
    let older = CONFIGURATION.replace("v1beta4", "v1beta3");
    let older =
        printed(|objects| objects[1]["items"][2] = map("kubeadm-config", "ClusterConfiguration", &older));
    assert_eq!(KubeadmObjects::parse(&older).unwrap().reasons(), []);
}

#[test]
fn what_cannot_be_kept_is_named() {
    type Change = fn(&mut [Value; 3]);
    let cases: [(Change, &str); 6] = [
        (|all| all[0]["items"][1]["status"]["conditions"] = json!([]), "h2 its node is not Ready"),
        (
            |all| all[0]["items"][1]["status"]["nodeInfo"]["kubeletVersion"] = json!("v1.35.4"),
            "h2 its kubelet is v1.35.4, the cluster is v1.36.3",
        ),
        (
            |all| {
                all[0]["items"][0]["status"]["nodeInfo"]["containerRuntimeVersion"] = json!("cri-o://1.36.0")
            },
            "h1 runs cri-o://1.36.0; only containerd",
        ),
        (
            |all| {
                let text = CONFIGURATION
                    .replace("  local:\n    dataDir: /var/lib/etcd", "  external: {endpoints: [a]}");
                all[1]["items"][2] = map("kubeadm-config", "ClusterConfiguration", &text);
            },
            "etcd runs on hosts of its own",
        ),
        (
            |all| {
                let text = COREFILE_OF_KUBEADM.replace("    loop", "    hosts { 10.0.0.9 db }\n    loop");
                all[1]["items"][0] = map("coredns", "Corefile", &text);
            },
            "CoreDNS has a line in its Corefile that cannot be kept: hosts { 10.0.0.9 db }",
        ),
        (
            |all| all[1]["items"][0] = map(ClusterDeclaration::OBJECT, "cluster.json", "{}"),
            "kube-system holds a declaration of kubeon: another control machine",
        ),
    ];
    for (change, words) in cases {
        let found = reasons(change);
        assert!(found.len() == 1 && found[0].starts_with(words), "{words}: {found:?}");
    }
}

#[test]
fn other_folders_of_kubeadm_are_refused() {
    let objects = configured(|configuration| {
        configuration["certificatesDir"] = json!("/opt/pki");
        configuration["etcd"]["local"]["dataDir"] = json!("/data/etcd");
    });
    let subjects: Vec<String> = objects.reasons().into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(subjects, ["certificatesDir", "etcd.local.dataDir"]);
}

#[test]
fn a_cluster_without_objects_of_kubeadm_is_refused() {
    let parsed = |change: fn(&mut [Value; 3])| KubeadmObjects::parse(&printed(change));
    let error = parsed(|all| all[1] = json!({ "items": [] })).unwrap_err();
    assert!(error.contains("ConfigMap kubeadm-config"), "{error}");
    assert_eq!(parsed(|all| all[2] = Value::Null).unwrap().proxy_mode, None);
    let empty = ["{\"items\": []}".to_owned(), String::new(), String::new()];
    assert!(KubeadmObjects::parse(&empty).unwrap_err().contains("kubeadm-config"));
    assert!(KubeadmObjects::parse(&["x".to_owned(), String::new(), String::new()]).is_err());
}
