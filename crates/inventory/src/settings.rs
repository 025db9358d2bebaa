//! The settings of the whole cluster.

use std::fmt::Display;
use std::str::FromStr;

use kubeon_api::Endpoint;
use kubeon_api::kubernetes_cluster::{
    ApiServer, Cni, DeclaredCluster, DeclaredLoadBalancer, LoadBalancerMode, Network, ProxyMode,
};

use crate::mistake::InventoryMistake;
use crate::tree::{Value, YamlNode};
use crate::variables::{Assignment, Remarks, VariableKind, Variables, kind, meant};

/// A variable with few values, with the noun of the command line's flag.
struct Choice {
    variable: &'static str,
    noun: &'static str,
    /// Why a cluster cannot have the value, and what to use; `None` when it can.
    refuses: fn(&str) -> Option<String>,
}

const CHOICES: &[Choice] = &[
    Choice {
        variable: "kube_network_plugin",
        noun: "cni",
        refuses: |value| match value.parse::<Cni>() {
            Ok(cni) => cni.unsupported().map(str::to_owned),
            Err(_) => other_than(value, &["flannel"]),
        },
    },
    Choice {
        variable: "container_manager",
        noun: "cri",
        refuses: |value| other_than(value, &["containerd"]),
    },
    Choice {
        variable: "kube_proxy_mode",
        noun: "proxy mode",
        refuses: |value| match value.parse::<ProxyMode>() {
            Ok(mode) => mode.unsupported().map(str::to_owned),
            Err(_) => other_than(value, &["nftables", "iptables"]),
        },
    },
    Choice {
        variable: "kube_apiserver_port",
        noun: "port of the API server",
        refuses: |value| other_than(value, &["6443"]),
    },
    Choice { variable: "dns_mode", noun: "dns mode", refuses: |value| other_than(value, &["coredns"]) },
];

fn other_than(value: &str, supported: &[&str]) -> Option<String> {
    (!supported.contains(&value)).then(|| format!("no bundle carries it; use {}", supported.join(" or ")))
}

/// Fills in what is said about the whole cluster.
#[expect(clippy::needless_update, reason = "a setting may come without a variable")]
pub(crate) fn fill(
    cluster: &mut DeclaredCluster,
    variables: &Variables,
    found: &mut Vec<InventoryMistake>,
    remarks: &mut Remarks,
) {
    let mut read = Reader { variables, found };
    read.choices();
    cluster.kube_version = read.parsed("kube_version");
    cluster.pod_cidr = read.parsed("kube_pods_subnet");
    cluster.service_cidr = read.parsed("kube_service_addresses");
    let domain = read.parsed("dns_domain");
    let network = Network {
        cni: read.choice("kube_network_plugin"),
        proxy_mode: read.choice("kube_proxy_mode"),
        dns_domain: domain.or_else(|| read.parsed("cluster_name")),
        node_mask_size: read.number("kube_network_node_prefix", 16, 28).and_then(|n| u8::try_from(n).ok()),
        max_pods: read.number("kubelet_max_pods", 4, 65000),
        node_port_range: read.parsed("kube_apiserver_node_port_range"),
        ..Network::default()
    };
    let api_server = ApiServer {
        domain: read.parsed("apiserver_loadbalancer_domain_name"),
        cert_sans: read.list("supplementary_addresses_in_ssl_keys"),
        ..ApiServer::default()
    };
    cluster.network = (network != Network::default()).then_some(network);
    cluster.api_server = (api_server != ApiServer::default()).then_some(api_server);
    cluster.load_balancer = read.load_balancer();
    read.local_balancer(cluster.load_balancer.is_some(), remarks);
    read.rest(remarks);
}

/// Reads variables, and writes down what is wrong with them.
pub(crate) struct Reader<'a> {
    pub(crate) variables: &'a Variables,
    pub(crate) found: &'a mut Vec<InventoryMistake>,
}

impl Reader<'_> {
    pub(crate) fn refuse(&mut self, said: &Assignment, subject: String, reason: String) {
        self.found.push(InventoryMistake { file: said.file, line: said.line, subject, reason });
    }

    fn said(&self, name: &str) -> Option<Assignment> {
        self.variables.get(name).filter(|said| !matches!(said.tree.value, Value::Null)).cloned()
    }

    /// A scalar's text; `None` when it is empty, as in kubespray's own defaults.
    pub(crate) fn text(&mut self, name: &str) -> Option<(Assignment, String)> {
        let said = self.said(name)?;
        match said.tree.value.scalar() {
            Some(text) if text.is_empty() => None,
            Some(text) => {
                let text = self.plain(&said, name, text)?;
                Some((said, text))
            }
            None => {
                let reason = format!("holds {}; it should hold text", said.tree.value.name());
                self.refuse(&said, name.to_owned(), reason);
                None
            }
        }
    }

    /// Text without templates and vaults. The mistake never repeats the text: it may be a secret.
    fn plain(&mut self, said: &Assignment, name: &str, text: String) -> Option<String> {
        let reason = if text.contains("{{") || text.contains("{%") {
            "is a template, which only Ansible fills in: write the value, or run the playbook cluster.yml"
        } else if text.starts_with("$ANSIBLE_VAULT;") {
            "is encrypted with ansible-vault, which only Ansible opens: run the playbook cluster.yml"
        } else {
            return Some(text);
        };
        self.refuse(said, name.to_owned(), reason.to_owned());
        None
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(&mut self, name: &str) -> Option<T> {
        let (said, text) = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(&said, format!("{name}: {text}"), format!("is wrong: {error}"));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, name: &str, low: u32, high: u32) -> Option<u32> {
        let (said, text) = self.text(name)?;
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        if number.is_none() {
            let reason = format!("must be a whole number between {low} and {high}");
            self.refuse(&said, format!("{name}: {text}"), reason);
        }
        number
    }

    fn list(&mut self, name: &str) -> Vec<Endpoint> {
        let Some(said) = self.said(name) else { return Vec::new() };
        let items: Vec<YamlNode> = match &said.tree.value {
            Value::List(items) => items.clone(),
            Value::Text(text) if text.is_empty() => Vec::new(),
            _ => vec![said.tree.clone()],
        };
        let mut list = Vec::new();
        for item in items {
            let place = Assignment { line: item.line, ..said.clone() };
            let Some(text) = item.value.scalar() else {
                let reason = format!("holds {}; it should hold addresses and names", item.value.name());
                self.refuse(&place, name.to_owned(), reason);
                continue;
            };
            let Some(text) = self.plain(&place, name, text) else { continue };
            match text.parse() {
                Ok(value) => list.push(value),
                Err(error) => self.refuse(&place, format!("{name}: {text}"), format!("is wrong: {error}")),
            }
        }
        list
    }

    fn choices(&mut self) {
        for Choice { variable, noun, refuses } in CHOICES {
            let Some((said, text)) = self.text(variable) else { continue };
            if let Some(why) = refuses(&text) {
                let reason = format!("[check] Input {noun}[{text}] not support: {why}");
                self.refuse(&said, format!("{variable}: {text}"), reason);
            }
        }
    }

    /// The value of a variable that takes one word of a few; [`Self::choices`] refuses other words.
    fn choice<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.text(name)?.1.parse().ok()
    }

    /// `loadbalancer_apiserver: {address, port}`: one that exists.
    fn load_balancer(&mut self) -> Option<DeclaredLoadBalancer> {
        let name = "loadbalancer_apiserver";
        let said = self.said(name)?;
        let fields = match said.tree.fields() {
            Ok([]) => return None,
            Ok(fields) => fields,
            Err(kind) => {
                let reason = format!("holds {kind}; it should hold address and port");
                self.refuse(&said, name.to_owned(), reason);
                return None;
            }
        };
        let inner = fields.iter().map(|field| {
            let inner = Assignment { file: said.file, line: field.line, tree: field.tree.clone() };
            (format!("{name}.{}", field.name), inner)
        });
        let inner: Variables = inner.collect();
        let mut read = Reader { variables: &inner, found: self.found };
        let address = read.parsed::<Endpoint>("loadbalancer_apiserver.address");
        let port =
            read.number("loadbalancer_apiserver.port", 1, 65535).and_then(|port| u16::try_from(port).ok());
        if said.tree.get("address").is_none() {
            self.refuse(&said, name.to_owned(), "has no address; give that of the load balancer".to_owned());
        }
        Some(DeclaredLoadBalancer { mode: Some(LoadBalancerMode::External), address, port })
    }

    /// The load balancer that kubespray runs on every worker.
    fn local_balancer(&mut self, external: bool, remarks: &mut Remarks) {
        let off =
            self.said("loadbalancer_apiserver_localhost").is_some_and(|said| !said.tree.value.is_true());
        if off && !external {
            let meaning = "has no effect: where no loadbalancer_apiserver exists, every worker gets a haproxy of its own";
            remarks.note("loadbalancer_apiserver_localhost".to_owned(), meaning);
        }
        if let Some((_, text)) = self.text("loadbalancer_apiserver_type")
            && text != "haproxy"
        {
            let meaning = "has no effect: the local load balancer is haproxy";
            remarks.note("loadbalancer_apiserver_type".to_owned(), meaning);
        }
        if let Some((_, text)) = self.text("etcd_deployment_type")
            && text != "host"
        {
            remarks.note("etcd_deployment_type".to_owned(), "has no effect: etcd runs as a systemd service");
        }
    }

    /// Variables that are not read: refused, or reported in a remark.
    fn rest(&mut self, remarks: &mut Remarks) {
        for (name, said) in self.variables.clone() {
            match kind(&name) {
                VariableKind::Served => {}
                VariableKind::Part(part) if said.tree.value.is_true() => {
                    let reason = format!("[check] not support: no bundle carries {part}; leave it out");
                    self.refuse(&said, format!("{name}: true"), reason);
                }
                VariableKind::Part(_) => {}
                other => remark(&name, other, remarks),
            }
        }
    }
}

/// Remarks on a variable that has no effect.
pub(crate) fn remark(name: &str, kind: VariableKind, remarks: &mut Remarks) {
    match (kind, meant(name)) {
        (VariableKind::Served, _) => {}
        (_, Some(meant)) => remarks.note(name.to_owned(), &format!("is unknown; did you mean {meant}?")),
        (VariableKind::Idle(meaning), None) => remarks.note(name.to_owned(), meaning),
        (_, None) => remarks.note(name.to_owned(), "is unknown to kubeon and has no effect"),
    }
}
