//! The groups of an inventory, their hosts, and the variables that a host ends up with.

use std::collections::{BTreeMap, BTreeSet};

use kubeon_api::yaml::{YamlField, YamlNode, YamlValue};

use crate::mistake::{InventoryFile, InventoryMistake};
use crate::tree;
use crate::variables::{Assignment, Variables};

/// The deepest nesting of groups. Ansible has no limit.
const MAX_DEPTH: usize = 16;

/// An inventory.
#[derive(Default)]
pub(crate) struct Groups {
    /// Hosts in the order in which they are first named.
    pub(crate) hosts: Vec<InventoryHost>,
    /// Groups by name, `all` included.
    pub(crate) groups: BTreeMap<String, Group>,
    /// The position of a host in the list.
    index: BTreeMap<String, usize>,
    /// The groups of each host, shallow groups first.
    memberships: Vec<Vec<String>>,
}

/// A host as the inventory names it.
pub(crate) struct InventoryHost {
    pub(crate) name: String,
    pub(crate) line: u64,
    own: Variables,
}

/// A group.
#[derive(Default)]
pub(crate) struct Group {
    pub(crate) line: u64,
    depth: usize,
    hosts: Vec<String>,
    children: BTreeSet<String>,
    variables: Variables,
}

impl Group {
    /// The group's own value of a variable.
    pub(crate) fn own_variable(&self, name: &str) -> Option<Assignment> {
        self.variables.get(name).cloned()
    }
}

/// How ranges of hosts, such as `h[1:9]`, are treated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRanges {
    /// They are mistakes.
    Refuse,
    /// They are skipped: Ansible expands them.
    Skip,
}

/// Reads `hosts.yml`; `None` when it contains no groups.
pub(crate) fn read(text: &str, ranges: HostRanges, found: &mut Vec<InventoryMistake>) -> Option<Groups> {
    let tree = tree::read(text, InventoryFile::Hosts, found)?;
    let mut reader = Reader { groups: Groups::default(), ranges, found };
    match tree.fields() {
        Ok([]) => reader.report(tree.place.line, "", "is empty; it should hold groups of hosts"),
        Ok(fields) if fields.iter().any(|field| field.name == "plugin") => {
            reader.report(
                tree.place.line,
                "plugin",
                "configures an inventory plugin; give the list of hosts itself",
            );
        }
        Ok(fields) => {
            for field in fields {
                let depth = usize::from(field.name != "all");
                reader.group(field, depth);
            }
            let mut groups = reader.groups;
            groups.memberships = groups.memberships();
            return Some(groups);
        }
        Err(kind) => {
            reader.report(tree.place.line, "", &format!("holds {kind}; it should hold groups of hosts"));
        }
    }
    None
}

struct Reader<'a> {
    groups: Groups,
    ranges: HostRanges,
    found: &'a mut Vec<InventoryMistake>,
}

impl Reader<'_> {
    fn report(&mut self, line: u64, subject: &str, reason: &str) {
        let (subject, reason) = (subject.to_owned(), reason.to_owned());
        self.found.push(InventoryMistake { file: InventoryFile::Hosts, line, subject, reason });
    }

    fn group(&mut self, field: &YamlField, depth: usize) {
        let (name, line) = (&field.name, field.place.line);
        if depth > MAX_DEPTH {
            return self.report(line, &format!("group {name}"), "is nested too deeply");
        }
        let group = self.groups.groups.entry(name.clone()).or_default();
        group.depth = group.depth.max(depth);
        if group.line == 0 {
            group.line = line;
        }
        let fields = match field.node.fields() {
            Ok(fields) => fields,
            Err(kind) => {
                let reason = format!("holds {kind}; it should hold hosts, children or vars");
                return self.report(line, &format!("group {name}"), &reason);
            }
        };
        for part in fields {
            match part.name.as_str() {
                "hosts" => self.hosts(name, &part.node),
                "children" => self.children(name, &part.node, depth),
                "vars" => self.variables(name, &part.node),
                other => {
                    let reason = format!(
                        "is not a field of a group; known here: hosts, children, vars (of group {name})"
                    );
                    self.report(part.place.line, other, &reason);
                }
            }
        }
    }

    fn hosts(&mut self, group: &str, tree: &YamlNode) {
        let single = match &tree.value {
            YamlValue::Text(name) => {
                let name = name.clone();
                vec![YamlField {
                    name,
                    place: tree.place,
                    node: YamlNode { place: tree.place, value: YamlValue::Null },
                }]
            }
            _ => Vec::new(),
        };
        let fields = match tree.fields() {
            Ok(fields) => fields,
            Err(_) if !single.is_empty() => &single,
            Err(kind) => {
                let reason = format!("holds {kind}; hosts are a mapping of names");
                return self.report(tree.place.line, &format!("hosts of group {group}"), &reason);
            }
        };
        for field in fields {
            self.host(group, field);
        }
    }

    fn host(&mut self, group: &str, field: &YamlField) {
        if field.name.contains('[') {
            if self.ranges == HostRanges::Skip {
                return;
            }
            let reason =
                "is a range; name the hosts one by one, or let Ansible read it: playbook cluster.yml";
            return self.report(field.place.line, &format!("host {}", field.name), reason);
        }
        let variables = match field.node.fields() {
            Ok(fields) => assignments(fields),
            Err(kind) => {
                let reason = format!("holds {kind}; it should hold variables");
                return self.report(field.place.line, &format!("host {}", field.name), &reason);
            }
        };
        if let Some(group) = self.groups.groups.get_mut(group) {
            group.hosts.push(field.name.clone());
        }
        let at = self.groups.index.get(&field.name).copied();
        match at.and_then(|at| self.groups.hosts.get_mut(at)) {
            Some(host) => host.own.extend(variables),
            None => {
                self.groups.index.insert(field.name.clone(), self.groups.hosts.len());
                let host = InventoryHost { name: field.name.clone(), line: field.place.line, own: variables };
                self.groups.hosts.push(host);
            }
        }
    }

    fn children(&mut self, group: &str, tree: &YamlNode, depth: usize) {
        match tree.fields() {
            Ok(fields) => {
                for field in fields {
                    if let Some(parent) = self.groups.groups.get_mut(group) {
                        parent.children.insert(field.name.clone());
                    }
                    self.group(field, depth + 1);
                }
            }
            Err(kind) => {
                let reason = format!("holds {kind}; children are a mapping of groups");
                self.report(tree.place.line, &format!("children of group {group}"), &reason);
            }
        }
    }

    fn variables(&mut self, group: &str, tree: &YamlNode) {
        match tree.fields() {
            Ok(fields) => {
                if let Some(group) = self.groups.groups.get_mut(group) {
                    group.variables.extend(assignments(fields));
                }
            }
            Err(kind) => {
                let reason = format!("holds {kind}; vars are a mapping");
                self.report(tree.place.line, &format!("vars of group {group}"), &reason);
            }
        }
    }
}

fn assignments(fields: &[YamlField]) -> Variables {
    let entry = |field: &YamlField| {
        (
            field.name.clone(),
            Assignment { file: InventoryFile::Hosts, line: field.place.line, tree: field.node.clone() },
        )
    };
    fields.iter().map(entry).collect()
}

impl Groups {
    /// The hosts of a group and of its children, each once, in order.
    pub(crate) fn members<'a>(&'a self, group: &'a str) -> Vec<&'a str> {
        let mut walk = Walk::default();
        self.collect(group, &mut walk);
        walk.members
    }

    fn collect<'a>(&'a self, name: &'a str, walk: &mut Walk<'a>) {
        let Some(group) = self.groups.get(name) else { return };
        if !walk.groups.insert(name) {
            return;
        }
        for host in &group.hosts {
            if walk.hosts.insert(host) {
                walk.members.push(host);
            }
        }
        for child in &group.children {
            self.collect(child, walk);
        }
    }

    fn memberships(&self) -> Vec<Vec<String>> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|(name, group)| (group.depth, *name));
        let mut memberships = vec![Vec::new(); self.hosts.len()];
        for (name, _) in groups {
            let at: Vec<usize> = match name.as_str() {
                "all" => (0..self.hosts.len()).collect(),
                name => {
                    self.members(name).into_iter().filter_map(|host| self.index.get(host).copied()).collect()
                }
            };
            for at in at {
                memberships[at].push(name.clone());
            }
        }
        memberships
    }

    /// The variables of a host: those of its groups, shallow groups first, then its own, then `group_vars.yml`.
    pub(crate) fn variables(&self, host: &InventoryHost, extra: &Variables) -> Variables {
        let mut variables = self.of_groups(&host.name);
        variables.extend(host.own.clone());
        variables.extend(extra.clone());
        variables
    }

    /// The variables of the cluster: those of the groups of its first master, then `group_vars.yml`.
    pub(crate) fn shared(&self, masters: &[String], extra: &Variables) -> Variables {
        let mut variables = masters.first().map(|first| self.of_groups(first)).unwrap_or_default();
        variables.extend(extra.clone());
        variables
    }

    fn of_groups(&self, host: &str) -> Variables {
        let groups = self.index.get(host).and_then(|at| self.memberships.get(*at)).into_iter().flatten();
        groups.filter_map(|name| self.groups.get(name)).flat_map(|group| group.variables.clone()).collect()
    }

    /// The names of the variables that hosts and groups set, with the first line of each.
    pub(crate) fn given(&self) -> BTreeMap<&str, u64> {
        let of_groups = self.groups.values().flat_map(|group| &group.variables);
        let all = of_groups.chain(self.hosts.iter().flat_map(|host| &host.own));
        let mut given = BTreeMap::new();
        for (name, assignment) in all {
            let line = given.entry(name.as_str()).or_insert(assignment.line);
            *line = assignment.line.min(*line);
        }
        given
    }
}

/// The visited groups and hosts while the members of a group are collected.
#[derive(Default)]
struct Walk<'a> {
    groups: BTreeSet<&'a str>,
    hosts: BTreeSet<&'a str>,
    members: Vec<&'a str>,
}
