//! The ConfigMaps and Secrets that objects refer to by name.

use serde_json::Value;

use super::kind::MetaKind;
use super::object::{has_ended, name, namespace, text, title_of};

/// A ConfigMap or Secret. The order groups them by kind and namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DataReference {
    pub kind: MetaKind,
    pub namespace: String,
    pub name: String,
}

impl DataReference {
    pub(crate) fn title(&self) -> String {
        title_of(self.kind.name(), &self.namespace, &self.name)
    }
}

/// What an object refers to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectReferences {
    /// What it needs.
    pub needed: Vec<DataReference>,
    /// What it has if it got that far.
    pub possible: Vec<DataReference>,
}

/// The references of an object. An operation that ended needs nothing any more.
pub(super) fn references(object: &Value) -> ObjectReferences {
    match MetaKind::of(object) {
        Some(MetaKind::Cluster) => ObjectReferences { needed: of_cluster(object), possible: Vec::new() },
        Some(MetaKind::Operation) if !has_ended(object) => {
            ObjectReferences { needed: of_operation(object), possible: Vec::new() }
        }
        Some(MetaKind::KubernetesCluster) => of_kubernetes_cluster(object),
        _ => ObjectReferences::default(),
    }
}

fn reference(kind: MetaKind, value: &Value) -> Option<DataReference> {
    let (namespace, name) = (text(value, "/namespace"), text(value, "/name"));
    (!namespace.is_empty() && !name.is_empty()).then(|| DataReference {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn of_cluster(object: &Value) -> Vec<DataReference> {
    let spec = &object["spec"];
    let maps = ["hostsConfRef", "varsConfRef", "preCheckRef"].map(|field| (MetaKind::ConfigMap, field));
    let secrets = ["kubeConfRef", "sshAuthRef"].map(|field| (MetaKind::Secret, field));
    maps.into_iter().chain(secrets).filter_map(|(kind, field)| reference(kind, &spec[field])).collect()
}

fn of_operation(object: &Value) -> Vec<DataReference> {
    let spec = &object["spec"];
    let fields = ["hostsConfRef", "varsConfRef", "entrypointSHRef", "actionSourceRef"];
    let mut all: Vec<_> =
        fields.iter().filter_map(|field| reference(MetaKind::ConfigMap, &spec[*field])).collect();
    let hooks = ["preHook", "postHook"].map(|field| spec[field].as_array());
    let hooks = hooks.into_iter().flatten().flatten();
    all.extend(hooks.filter_map(|hook| reference(MetaKind::ConfigMap, &hook["actionSourceRef"])));
    all.extend(reference(MetaKind::Secret, &spec["sshAuthRef"]));
    all
}

/// The operator and the runner compute the names of what a cluster has in the same way.
fn of_kubernetes_cluster(object: &Value) -> ObjectReferences {
    let (own, cluster) = (namespace(object), name(object));
    let at = |kind, namespace: &str, name: &str| DataReference {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let login = &object["spec"]["cluster"]["authConfig"]["credentialsRef"];
    let login_namespace = Some(text(login, "/namespace")).filter(|given| !given.is_empty()).unwrap_or(own);
    let store = &object["spec"]["snapshots"]["credentialsRef"];
    let needed = [(login_namespace, text(login, "/name")), (own, text(store, "/name"))];
    let needed = needed.into_iter().filter(|(_, name)| !name.is_empty());
    let secrets = ["state", "kubeconfig", "observer"].map(|suffix| (MetaKind::Secret, suffix));
    let possible = secrets.into_iter().chain([(MetaKind::ConfigMap, "known-hosts")]);
    ObjectReferences {
        needed: needed.map(|(namespace, name)| at(MetaKind::Secret, namespace, name)).collect(),
        possible: possible
            .map(|(kind, suffix)| at(kind, own, &format!("{own}-{cluster}-{suffix}")))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn titles(all: &[DataReference]) -> Vec<String> {
        all.iter().map(DataReference::title).collect()
    }

    #[test]
    fn an_open_operation_needs_its_inputs_and_an_ended_one_nothing() {
        let at = |name: &str| json!({"namespace": "n", "name": name});
        let mut operation = json!({"kind": "ClusterOperation", "metadata": {"name": "o"}, "spec": {
            "hostsConfRef": at("hosts"), "sshAuthRef": at("key"), "varsConfRef": {"namespace": "", "name": ""},
            "postHook": [{"actionSourceRef": at("script")}, {}]}});
        let needed = titles(&references(&operation).needed);
        assert_eq!(needed, ["ConfigMap n/hosts", "ConfigMap n/script", "Secret n/key"]);
        operation["status"] = json!({"status": "Failed"});
        assert_eq!(references(&operation), ObjectReferences::default());
    }

    #[test]
    fn a_cluster_has_its_login_its_store_and_what_the_runner_wrote() {
        let object = json!({"kind": "KubernetesCluster", "metadata": {"name": "shop", "namespace": "a"}, "spec": {
            "cluster": {"authConfig": {"credentialsRef": {"name": "login"}}},
            "snapshots": {"credentialsRef": {"name": "store"}}}});
        let found = references(&object);
        assert_eq!(titles(&found.needed), ["Secret a/login", "Secret a/store"]);
        let possible = [
            "Secret a/a-shop-state",
            "Secret a/a-shop-kubeconfig",
            "Secret a/a-shop-observer",
            "ConfigMap a/a-shop-known-hosts",
        ];
        assert_eq!(titles(&found.possible), possible);
        let other = json!({"kind": "KubernetesCluster", "metadata": {"name": "shop", "namespace": "a"}, "spec": {
            "cluster": {"authConfig": {"credentialsRef": {"name": "login", "namespace": "keys"}}}}});
        assert_eq!(titles(&references(&other).needed), ["Secret keys/login"]);
    }

    #[test]
    fn a_cluster_of_playbooks_needs_inventory_variables_and_key() {
        let at = |name: &str| json!({"namespace": "n", "name": name});
        let object = json!({"kind": "Cluster", "metadata": {"name": "c"},
            "spec": {"hostsConfRef": at("hosts"), "varsConfRef": at("vars"), "sshAuthRef": at("key")}});
        assert_eq!(
            titles(&references(&object).needed),
            ["ConfigMap n/hosts", "ConfigMap n/vars", "Secret n/key"]
        );
    }
}
