//! Address, name, login and labels of each host.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_api::yaml::YamlValue;
use kubeon_api::{HostAddress, HostName, LabelKey, LabelValue, LoginName, Secret};

use crate::groups::{Groups, InventoryHost};
use crate::login::InventoryLogin;
use crate::mistake::{InventoryFile, InventoryMistake};
use crate::roles::InventoryRoles;
use crate::settings::{Reader, remark};
use crate::variables::{Assignment, Remarks, VariableKind, Variables, kind};

const USER: &[&str] = &["ansible_user", "ansible_ssh_user"];
const PORT: &[&str] = &["ansible_port", "ansible_ssh_port"];
const PASSWORD: &[&str] = &["ansible_password", "ansible_ssh_pass", "ansible_ssh_password"];
const SUDO: &[&str] = &["ansible_become_password", "ansible_become_pass"];
const KEY: &[&str] = &["ansible_ssh_private_key_file"];
/// The address to log in at, then the address in the cluster's network.
const LOGIN_ADDRESS: &[&str] = &["ansible_host", "ansible_ssh_host"];
const CLUSTER_ADDRESS: &[&str] = &["ip", "access_ip"];
/// Names of SSH connection plugins.
const SSH: &[&str] =
    &["ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh"];

/// Fills in the hosts of every role.
pub(crate) fn fill(
    cluster: &mut DeclaredCluster,
    logins: &mut BTreeMap<HostAddress, InventoryLogin>,
    groups: &Groups,
    roles: &InventoryRoles,
    extra: &Variables,
    found: &mut Vec<InventoryMistake>,
    remarks: &mut Remarks,
) {
    let mut nodes = BTreeMap::new();
    let mut owners = BTreeMap::<HostAddress, &str>::new();
    for host in &groups.hosts {
        let variables = groups.variables(host, extra);
        let mut read = HostReader { host, read: Reader { variables: &variables, found } };
        let Some((node, login)) = read.node() else { continue };
        if let Some(first) = owners.insert(node.ip, &host.name) {
            let reason = format!("has the address {} of host {first}; every host needs its own", node.ip);
            let subject = format!("host {}", host.name);
            found.push(InventoryMistake { file: InventoryFile::Hosts, line: host.line, subject, reason });
        }
        logins.insert(node.ip, login);
        nodes.insert(host.name.as_str(), node);
    }
    let list = |names: &[String]| {
        let nodes: Vec<DeclaredNode> =
            names.iter().filter_map(|name| nodes.get(name.as_str()).cloned()).collect();
        NodeList::try_from(nodes).unwrap_or_default()
    };
    (cluster.master_list, cluster.node_list) = (list(&roles.masters), list(&roles.workers));
    cluster.etcd_list = list(&roles.etcd);
    for name in groups.given().into_keys().filter(|name| !extra.contains_key(*name)) {
        if !matches!(kind(name), VariableKind::Part(_)) {
            remark(name, kind(name), remarks);
        }
    }
}

struct HostReader<'a> {
    host: &'a InventoryHost,
    read: Reader<'a>,
}

impl HostReader<'_> {
    fn node(&mut self) -> Option<(DeclaredNode, InventoryLogin)> {
        let name = self.name();
        let addresses = self.addresses(name.is_some());
        let (user, port) = (self.user(), self.port());
        let labels = self.labels();
        self.connection();
        let login = InventoryLogin {
            password: self.secret(PASSWORD),
            sudo_password: self.secret(SUDO),
            key_file: self.first(KEY).map(|(_, text)| text.into()),
        };
        let (ip, internal_address) = addresses?;
        Some((
            DeclaredNode { internal_address, name: name?, port, user, labels, ..DeclaredNode::at(ip) },
            login,
        ))
    }

    fn refuse(&mut self, reason: String) {
        let (line, subject) = (self.host.line, format!("host {}", self.host.name));
        self.read.found.push(InventoryMistake { file: InventoryFile::Hosts, line, subject, reason });
    }

    /// The value of the first spelling that is set.
    fn first(&mut self, names: &[&'static str]) -> Option<(Assignment, String)> {
        let name = names.iter().find(|name| self.read.variables.contains_key(**name))?;
        self.read.text(name)
    }

    /// The node name; `Some(None)` when the host's name is its address, `None` when the name is invalid.
    fn name(&mut self) -> Option<Option<HostName>> {
        let name = self.host.name.clone();
        if name.parse::<Ipv4Addr>().is_ok() {
            return Some(None);
        }
        match name.parse() {
            Ok(name) => Some(Some(name)),
            Err(error) => {
                self.refuse(format!("cannot be a node: {error}"));
                None
            }
        }
    }

    /// The address to log in at, and the address in the cluster's network if it is another one.
    fn addresses(&mut self, named: bool) -> Option<(HostAddress, Option<HostAddress>)> {
        let mistakes = self.read.found.len();
        let (login, cluster) = (self.address(LOGIN_ADDRESS), self.address(CLUSTER_ADDRESS));
        let ip = login.or_else(|| self.host.name.parse().ok()).or(cluster);
        if ip.is_none() && named && self.read.found.len() == mistakes {
            self.refuse("has no address; give it ansible_host: ADDRESS".to_owned());
        }
        Some((ip?, cluster.filter(|cluster| Some(*cluster) != ip)))
    }

    /// The address that the given variables agree on.
    fn address(&mut self, names: &[&'static str]) -> Option<HostAddress> {
        let mut given: Vec<(&str, HostAddress)> = Vec::new();
        for name in names {
            let Some((assignment, text)) = self.read.text(name) else { continue };
            match text.parse() {
                Ok(address) => given.push((name, address)),
                Err(error) => {
                    let subject = format!("host {}: {name}: {text}", self.host.name);
                    self.read.refuse(&assignment, subject, format!("is wrong: {error}"));
                }
            }
        }
        let (first, address) = *given.first()?;
        if let Some((other, value)) = given.iter().find(|(_, value)| *value != address) {
            self.refuse(format!("has {first} {address} and {other} {value}; give one of them"));
        }
        Some(address)
    }

    fn user(&mut self) -> Option<LoginName> {
        let (assignment, text) = self.first(USER)?;
        text.parse()
            .map_err(|error| {
                let subject = format!("host {}: ansible_user: {text}", self.host.name);
                self.read.refuse(&assignment, subject, format!("is wrong: {error}"));
            })
            .ok()
    }

    fn port(&mut self) -> Option<u16> {
        let (assignment, text) = self.first(PORT)?;
        let port = text.parse().ok().filter(|port| *port > 0);
        if port.is_none() {
            let subject = format!("host {}: ansible_port: {text}", self.host.name);
            self.read.refuse(&assignment, subject, "is not a port: 1 to 65535".to_owned());
        }
        port
    }

    /// Reads a secret. Mistakes never repeat it.
    fn secret(&mut self, names: &[&'static str]) -> Option<Secret> {
        let name = names.iter().find(|name| self.read.variables.contains_key(**name))?;
        let assignment = self.read.variables.get(*name)?.clone();
        if let YamlValue::Integer(_) | YamlValue::Fraction(_) | YamlValue::Bool(_) = assignment.tree.value {
            let subject = format!("host {}: {name}", self.host.name);
            self.read.refuse(&assignment, subject, "must be text; put it in quotes".to_owned());
            return None;
        }
        self.read.text(name).map(|(_, text)| Secret::new(text))
    }

    fn connection(&mut self) {
        let wrong = [
            (
                "ansible_connection",
                SSH,
                "kubeon logs in to every host over SSH, also to this one: leave it out",
            ),
            (
                "ansible_become_method",
                &["sudo", "ansible.builtin.sudo"],
                "kubeon becomes root with sudo: leave it out",
            ),
            ("ansible_become_user", &["root"], "kubeon works as root: leave it out"),
        ];
        for (name, known, way) in wrong {
            if let Some((assignment, text)) = self.read.text(name)
                && !known.contains(&text.as_str())
            {
                self.read.refuse(
                    &assignment,
                    format!("host {}: {name}: {text}", self.host.name),
                    way.to_owned(),
                );
            }
        }
    }

    fn labels(&mut self) -> BTreeMap<LabelKey, LabelValue> {
        let Some(assignment) = self.read.variables.get("node_labels").cloned() else {
            return BTreeMap::new();
        };
        let subject = format!("host {}: node_labels", self.host.name);
        let fields = match assignment.tree.fields() {
            Ok(fields) => fields,
            Err(kind) => {
                self.read.refuse(&assignment, subject, format!("holds {kind}; it should hold KEY: VALUE"));
                return BTreeMap::new();
            }
        };
        let mut labels = BTreeMap::new();
        for field in fields {
            let value = field.node.value.scalar().unwrap_or_default();
            match (field.name.parse(), value.parse()) {
                (Ok(key), Ok(value)) => {
                    labels.insert(key, value);
                }
                (Err(error), _) | (_, Err(error)) => {
                    let assignment = Assignment { line: field.place.line, ..assignment.clone() };
                    self.read.refuse(
                        &assignment,
                        format!("{subject}.{}", field.name),
                        format!("is wrong: {error}"),
                    );
                }
            }
        }
        labels
    }
}
