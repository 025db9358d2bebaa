//! The last applied spec, and the difference between it and the declared spec.

use std::collections::BTreeSet;

use kubeon_api::kubernetes_cluster::{DeclaredCluster, DeclaredNode, NodeList};
use kubeon_api::{HostAddress, KubernetesCluster, KubernetesClusterSpec, Version, labels};

/// The spec without key, password and the fields that only concern kubeon, so that it may be stored in an
/// annotation.
#[must_use]
pub fn without_secrets(spec: &KubernetesClusterSpec) -> KubernetesClusterSpec {
    let mut spec = spec.clone();
    spec.paused = false;
    spec.plan = false;
    spec.maintenance_windows = Vec::new();
    spec.repair = None;
    spec.deletion_policy = None;
    spec.snapshots = None;
    spec.job_placement = None;
    if let Some(auth) = &mut spec.cluster.auth_config {
        auth.password = None;
        auth.private_ssh_key = None;
    }
    spec
}

/// The last applied spec; `None` when no spec was applied yet.
pub(super) fn applied(object: &KubernetesCluster) -> Result<Option<KubernetesClusterSpec>, String> {
    let annotations = object.metadata.annotations.as_ref();
    let text =
        annotations.and_then(|all| all.get(labels::APPLIED_SPEC)).map(String::as_str).unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = serde_json::from_str(text);
    parsed.map(Some).map_err(|error| format!("annotation {} cannot be read: {error}", labels::APPLIED_SPEC))
}

/// Hosts of one list that differ.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ListDifference {
    /// New hosts.
    pub added: Vec<DeclaredNode>,
    /// Hosts that are no longer declared.
    pub removed: Vec<DeclaredNode>,
}

impl ListDifference {
    fn between(before: &NodeList, now: &NodeList) -> Self {
        let only_in = |list: &NodeList, other: &NodeList| {
            let others: BTreeSet<HostAddress> = other.iter().map(|node| node.ip).collect();
            list.iter().filter(|node| !others.contains(&node.ip)).cloned().collect()
        };
        Self { added: only_in(now, before), removed: only_in(before, now) }
    }

    /// Whether an operation that adds hosts (`up`), or one that removes them, changes these masters or hosts of etcd. They are
    /// added and removed at once: a new one may stand in for one that is lost.
    pub(super) fn changes_at_once(&self, up: bool) -> bool {
        !up || !self.added.is_empty()
    }

    /// All hosts that differ.
    pub(super) fn hosts(&self) -> impl Iterator<Item = HostAddress> {
        self.added.iter().chain(&self.removed).map(|node| node.ip)
    }
}

/// The difference between the declared and the applied cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Difference {
    /// Masters.
    pub masters: ListDifference,
    /// Workers.
    pub workers: ListDifference,
    /// Hosts that run etcd and nothing else.
    pub etcd: ListDifference,
    /// Whether the version differs.
    pub version: bool,
    /// Changed settings, and hosts with other labels or taints, for people.
    pub settings: Vec<String>,
    /// The names of changed fields that cannot be changed yet.
    pub refused: Vec<String>,
}

impl Difference {
    /// Whether nothing differs but the version.
    pub(super) fn is_version_alone(&self) -> bool {
        let others = Self { version: false, ..self.clone() };
        self.version && others == Self::default()
    }
}

/// [`DeclaredCluster::changes`] decides what counts as a change, because admission uses it as well.
pub(super) fn difference(
    applied: &DeclaredCluster,
    wanted: &DeclaredCluster,
    runs: Option<Version>,
) -> Difference {
    let changes = wanted.changes(applied, runs);
    let (had_etcd_hosts, has_etcd_hosts) = (applied.etcd_has_own_hosts(), wanted.etcd_has_own_hosts());
    let is_refused = |field: &&str| match *field {
        "masterList" | "kubeVersion" => false,
        "etcdList" if has_etcd_hosts => !had_etcd_hosts,
        "etcdList" => had_etcd_hosts || !wanted.etcd_is_on_masters(),
        _ => true,
    };
    let etcd = if had_etcd_hosts && has_etcd_hosts {
        ListDifference::between(&applied.etcd_list, &wanted.etcd_list)
    } else {
        ListDifference::default()
    };
    let fields =
        changes.fields.iter().copied().filter(is_refused).map(|field| format!("spec.cluster.{field}"));
    let names = changes.names.iter().map(|ip| format!("name of {ip}"));
    let labels = changes.labels.iter().map(|ip| format!("labels of {ip}"));
    let taints = changes.taints.iter().map(|ip| format!("taints of {ip}"));
    let settings = changes.settings.iter().map(|field| (*field).to_owned());
    let internal = changes.internal_addresses.iter().map(|ip| format!("internal address of {ip}"));
    Difference {
        masters: ListDifference::between(&applied.master_list, &wanted.master_list),
        workers: ListDifference::between(&applied.node_list, &wanted.node_list),
        etcd,
        version: changes.fields.contains(&"kubeVersion"),
        settings: settings.chain(labels).chain(taints).collect(),
        refused: fields.chain(names).chain(internal).collect(),
    }
}

/// The cluster that was applied, with the logins, the region and the timeout that are declared now. Names and the order of
/// masters stay those that were applied, because the engine finds its state by them.
pub(super) fn with_current_logins(applied: &DeclaredCluster, wanted: &DeclaredCluster) -> DeclaredCluster {
    let now = wanted.by_address();
    let with_logins = |list: &NodeList| {
        let node = |node: &DeclaredNode| match now.get(&node.ip) {
            Some(current) => DeclaredNode { port: current.port, user: current.user.clone(), ..node.clone() },
            None => node.clone(),
        };
        let nodes: Vec<DeclaredNode> = list.iter().map(node).collect();
        NodeList::try_from(nodes).unwrap_or_else(|_| list.clone())
    };
    DeclaredCluster {
        master_list: with_logins(&applied.master_list),
        node_list: with_logins(&applied.node_list),
        etcd_list: with_logins(&applied.etcd_list),
        auth_config: wanted.auth_config.clone(),
        region: wanted.region.clone(),
        timeout_mins: wanted.timeout_mins,
        ..applied.clone()
    }
}
