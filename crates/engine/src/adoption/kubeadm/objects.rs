//! What the API server of a cluster of kubeadm tells about it.

use kubeon_api::{HostAddress, HostName};
use kubeon_plan::ClusterDeclaration;
use serde_json::Value;

use crate::adoption::checks::Reason;

/// Where kubeadm keeps the keys.
const PKI: &str = "/etc/kubernetes/pki";
/// Where it keeps the data of etcd.
const ETCD_DATA: &str = "/var/lib/etcd";
/// The label of masters.
const MASTER: &str = "node-role.kubernetes.io/control-plane";
/// The lines of the Corefile of kubeadm, without the DNS domain at the end of some.
const COREFILE: [&str; 19] = [
    ".:53 {",
    "errors",
    "health {",
    "lameduck 5s",
    "ready",
    "pods insecure",
    "fallthrough in-addr.arpa ip6.arpa",
    "ttl 30",
    "prometheus :9153",
    "forward . /etc/resolv.conf {",
    "max_concurrent 1000",
    "cache 30",
    "cache 30 {",
    "disable success",
    "disable denial",
    "loop",
    "reload",
    "loadbalance",
    "}",
];

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KubeadmNode {
    pub(super) name: HostName,
    /// Its address in the cluster's network.
    pub(super) address: HostAddress,
    pub(super) is_master: bool,
    is_ready: bool,
    kubelet: String,
    runtime: String,
}

/// The objects that describe the cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KubeadmObjects {
    pub(super) nodes: Vec<KubeadmNode>,
    /// The `ClusterConfiguration` of kubeadm.
    pub(super) configuration: Value,
    /// The mode of kube-proxy, which may be empty; `None` if kubeadm runs none.
    pub(super) proxy_mode: Option<String>,
    corefile: String,
    /// Whether kubeon changed the cluster before.
    is_of_kubeon: bool,
}

/// The command lines of kubectl after `kubectl`, whose outputs [`KubeadmObjects::parse`] reads.
pub(super) fn queries() -> [String; 3] {
    let system = "--namespace=kube-system --ignore-not-found -o=json";
    let declaration = ClusterDeclaration::OBJECT;
    [
        "get nodes -o=json".to_owned(),
        format!("get configmaps kubeadm-config kube-proxy coredns {declaration} {system}"),
        format!("get daemonsets kube-proxy {system}"),
    ]
}

impl KubeadmObjects {
    /// Reads the outputs of [`queries`], in their order.
    ///
    /// # Errors
    /// What is missing or damaged, in one sentence.
    pub(super) fn parse(outputs: &[String; 3]) -> Result<Self, String> {
        let [nodes, maps, proxies] = outputs;
        let (nodes, maps, proxies) = (json(nodes)?, json(maps)?, json(proxies)?);
        let map = |name: &str| items(&maps).into_iter().find(|map| map["metadata"]["name"] == name);
        let configuration =
            map("kubeadm-config").and_then(|map| map["data"]["ClusterConfiguration"].as_str());
        let configuration =
            configuration.ok_or("the cluster has no configuration of kubeadm: ConfigMap kubeadm-config")?;
        let proxy = map("kube-proxy").and_then(|map| map["data"]["config.conf"].as_str());
        let runs_proxy = proxies["metadata"]["name"] == "kube-proxy";
        let proxy_mode = match proxy.filter(|_| runs_proxy) {
            Some(text) => Some(yaml(text)?["mode"].as_str().unwrap_or_default().to_owned()),
            None => None,
        };
        let corefile = map("coredns").and_then(|map| map["data"]["Corefile"].as_str());
        Ok(Self {
            nodes: items(&nodes).into_iter().map(node).collect::<Result<_, _>>()?,
            configuration: yaml(configuration)?,
            proxy_mode,
            corefile: corefile.unwrap_or_default().to_owned(),
            is_of_kubeon: map(ClusterDeclaration::OBJECT).is_some(),
        })
    }

    /// Why the cluster cannot be adopted.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let mut add = |subject: &str, text: String| reasons.push((subject.to_owned(), text));
        if self.is_of_kubeon {
            let text =
                "holds a declaration of kubeon: another control machine adopted the cluster; name it there";
            add("kube-system", text.to_owned());
        }
        if !self.configuration["etcd"]["external"].is_null() {
            add(
                "etcd",
                "runs on hosts of its own: no kubelet runs there, so kubeon cannot run it as a pod"
                    .to_owned(),
            );
        }
        let wanted = [
            ("certificatesDir", self.configuration["certificatesDir"].as_str(), PKI),
            ("etcd.local.dataDir", self.configuration["etcd"]["local"]["dataDir"].as_str(), ETCD_DATA),
        ];
        for (field, found, wanted) in wanted {
            if let Some(found) = found.filter(|found| *found != wanted) {
                add(field, format!("is {found}; only {wanted} can be kept"));
            }
        }
        for line in self.foreign_dns_lines() {
            add("CoreDNS", format!("has a line in its Corefile that cannot be kept: {line}"));
        }
        let version = self.configuration["kubernetesVersion"].as_str().unwrap_or_default();
        for node in &self.nodes {
            let mut add = |text: String| add(node.name.as_str(), text);
            if !node.is_ready {
                add("its node is not Ready".to_owned());
            }
            if node.kubelet != version {
                add(format!(
                    "its kubelet is {}, the cluster is {version}: complete its upgrade first",
                    node.kubelet
                ));
            }
            if !node.runtime.starts_with("containerd://") {
                add(format!("runs {}; only containerd can be taken over", node.runtime));
            }
        }
        reasons
    }

    /// The lines of the Corefile that kubeadm does not write.
    fn foreign_dns_lines(&self) -> impl Iterator<Item = &str> {
        let domain = self.configuration["networking"]["dnsDomain"].as_str().unwrap_or("cluster.local");
        let zone = format!("kubernetes {domain} in-addr.arpa ip6.arpa {{");
        let lines = self.corefile.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.filter(move |line| {
            let line = line.trim_end_matches(domain).trim_end();
            line != zone && !COREFILE.contains(&line)
        })
    }
}

fn json(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(text).map_err(|error| format!("kubectl printed no JSON: {error}"))
}

/// The value of a document of YAML.
pub(super) fn yaml(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| format!("a configuration is no YAML: {error}"))
}

fn items(list: &Value) -> Vec<&Value> {
    list["items"].as_array().into_iter().flatten().collect()
}

fn node(object: &Value) -> Result<KubeadmNode, String> {
    let text = object["metadata"]["name"].as_str().unwrap_or_default();
    let name: HostName =
        text.parse().map_err(|_| format!("{text} is no name of a node that kubeon can use"))?;
    let status = &object["status"];
    let addresses = status["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
    let address: Option<HostAddress> = internal.find_map(|address| address["address"].as_str()?.parse().ok());
    let address = address.ok_or_else(|| format!("node {text} has no IPv4 address"))?;
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let info = |field: &str| status["nodeInfo"][field].as_str().unwrap_or_default().to_owned();
    Ok(KubeadmNode {
        name,
        address,
        is_master: object["metadata"]["labels"].get(MASTER).is_some(),
        is_ready: conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True"),
        kubelet: info("kubeletVersion"),
        runtime: info("containerRuntimeVersion"),
    })
}

#[cfg(test)]
#[path = "objects_tests.rs"]
pub(super) mod tests;
