//! The settings of the whole cluster.

use std::fmt::Display;
use std::str::FromStr;

use kubeon_api::Endpoint;
use kubeon_api::kubernetes_cluster::{
    ApiServer, Cni, DeclaredCluster, DeclaredLoadBalancer, LoadBalancerMode, Network, ProxyMode,
};
use kubeon_api::yaml::{YamlNode, YamlValue};

use crate::mistake::InventoryMistake;
use crate::tree::is_true;
use crate::variables::{Assignment, Remarks, VariableKind, Variables, kind, suggestion};

/// A variable with few values, with the word that the command line uses for it.
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

/// Fills in the settings of the whole cluster.
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

/// Reads variables and records their mistakes.
pub(crate) struct Reader<'a> {
    pub(crate) variables: &'a Variables,
    pub(crate) found: &'a mut Vec<InventoryMistake>,
}

impl Reader<'_> {
    pub(crate) fn refuse(&mut self, assignment: &Assignment, subject: String, reason: String) {
        self.found.push(InventoryMistake { file: assignment.file, line: assignment.line, subject, reason });
    }

    fn assignment(&self, name: &str) -> Option<Assignment> {
        self.variables
            .get(name)
            .filter(|assignment| !matches!(assignment.tree.value, YamlValue::Null))
            .cloned()
    }

    /// The text of a scalar; `None` when it is empty, as in the defaults of kubespray.
    pub(crate) fn text(&mut self, name: &str) -> Option<(Assignment, String)> {
        let assignment = self.assignment(name)?;
        match assignment.tree.value.scalar() {
            Some(text) if text.is_empty() => None,
            Some(text) => {
                let text = self.plain(&assignment, name, text)?;
                Some((assignment, text))
            }
            None => {
                let reason = format!("holds {}; it should hold text", assignment.tree.value.kind_name());
                self.refuse(&assignment, name.to_owned(), reason);
                None
            }
        }
    }

    /// Text without templates and vaults. The mistake never repeats the text: it may be a secret.
    fn plain(&mut self, assignment: &Assignment, name: &str, text: String) -> Option<String> {
        let reason = if text.contains("{{") || text.contains("{%") {
            "is a template, which only Ansible fills in: write the value, or run the playbook cluster.yml"
        } else if text.starts_with("$ANSIBLE_VAULT;") {
            "is encrypted with ansible-vault, which only Ansible opens: run the playbook cluster.yml"
        } else {
            return Some(text);
        };
        self.refuse(assignment, name.to_owned(), reason.to_owned());
        None
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(&mut self, name: &str) -> Option<T> {
        let (assignment, text) = self.text(name)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(&assignment, format!("{name}: {text}"), format!("is wrong: {error}"));
                None
            }
        }
    }

    pub(crate) fn number(&mut self, name: &str, low: u32, high: u32) -> Option<u32> {
        let (assignment, text) = self.text(name)?;
        let number = text.parse().ok().filter(|number| (low..=high).contains(number));
        if number.is_none() {
            let reason = format!("must be a whole number between {low} and {high}");
            self.refuse(&assignment, format!("{name}: {text}"), reason);
        }
        number
    }

    fn list(&mut self, name: &str) -> Vec<Endpoint> {
        let Some(assignment) = self.assignment(name) else { return Vec::new() };
        let items: Vec<YamlNode> = match &assignment.tree.value {
            YamlValue::List(items) => items.clone(),
            YamlValue::Text(text) if text.is_empty() => Vec::new(),
            _ => vec![assignment.tree.clone()],
        };
        let mut list = Vec::new();
        for item in items {
            let place = Assignment { line: item.place.line, ..assignment.clone() };
            let Some(text) = item.value.scalar() else {
                let reason = format!("holds {}; it should hold addresses and names", item.value.kind_name());
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
            let Some((assignment, text)) = self.text(variable) else { continue };
            if let Some(why) = refuses(&text) {
                let reason = format!("[check] Input {noun}[{text}] not support: {why}");
                self.refuse(&assignment, format!("{variable}: {text}"), reason);
            }
        }
    }

    /// The value of a variable in [`CHOICES`]; [`Self::choices`] refuses other values.
    fn choice<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.text(name)?.1.parse().ok()
    }

    /// `loadbalancer_apiserver: {address, port}`: an existing load balancer.
    fn load_balancer(&mut self) -> Option<DeclaredLoadBalancer> {
        let name = "loadbalancer_apiserver";
        let assignment = self.assignment(name)?;
        let fields = match assignment.tree.fields() {
            Ok([]) => return None,
            Ok(fields) => fields,
            Err(kind) => {
                let reason = format!("holds {kind}; it should hold address and port");
                self.refuse(&assignment, name.to_owned(), reason);
                return None;
            }
        };
        let inner = fields.iter().map(|field| {
            let inner =
                Assignment { file: assignment.file, line: field.place.line, tree: field.node.clone() };
            (format!("{name}.{}", field.name), inner)
        });
        let inner: Variables = inner.collect();
        let mut read = Reader { variables: &inner, found: self.found };
        let address = read.parsed::<Endpoint>("loadbalancer_apiserver.address");
        let port =
            read.number("loadbalancer_apiserver.port", 1, 65535).and_then(|port| u16::try_from(port).ok());
        if assignment.tree.get("address").is_none() {
            self.refuse(
                &assignment,
                name.to_owned(),
                "has no address; set loadbalancer_apiserver.address".to_owned(),
            );
        }
        Some(DeclaredLoadBalancer { mode: Some(LoadBalancerMode::External), address, port })
    }

    /// The load balancer that kubespray runs on every worker.
    fn local_balancer(&mut self, external: bool, remarks: &mut Remarks) {
        let off = self
            .assignment("loadbalancer_apiserver_localhost")
            .is_some_and(|assignment| !is_true(&assignment.tree.value));
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
        for (name, assignment) in self.variables.clone() {
            match kind(&name) {
                VariableKind::Served => {}
                VariableKind::Part(part) if is_true(&assignment.tree.value) => {
                    let reason = format!("[check] not support: no bundle carries {part}; leave it out");
                    self.refuse(&assignment, format!("{name}: true"), reason);
                }
                VariableKind::Part(_) => {}
                other => remark(&name, other, remarks),
            }
        }
    }
}

/// Remarks on a variable that has no effect.
pub(crate) fn remark(name: &str, kind: VariableKind, remarks: &mut Remarks) {
    match (kind, suggestion(name)) {
        (VariableKind::Served, _) => {}
        (_, Some(suggestion)) => {
            remarks.note(name.to_owned(), &format!("is unknown; did you mean {suggestion}?"))
        }
        (VariableKind::Idle(meaning), None) => remarks.note(name.to_owned(), meaning),
        (_, None) => remarks.note(name.to_owned(), "is unknown to kubeon and has no effect"),
    }
}
