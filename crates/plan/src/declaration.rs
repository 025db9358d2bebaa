//! The declaration of a cluster in an object of the cluster itself, from which a lost state is rebuilt.

use std::collections::HashMap;

use kubeon_api::{HostAddress, HostName, KeyNumber, Version};
use kubeon_render::manifests;
use kubeon_wire::ApiObject;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::PlanContext;
use crate::input::{DesiredCluster, HostSpec};

/// The largest declaration in bytes. An object of the API server holds 1 MiB.
const MAX_BYTES: usize = 1_000_000;
/// The entry of an object whose declaration is too large.
const OMITTED: &str = "omitted";

/// The declaration of a cluster. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeclaration {
    /// The identity of the cluster.
    pub uid: String,
    /// The keys that sign.
    pub keys: KeyNumber,
    /// The keys that are trusted beside them, while keys are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub also_trusted: Option<KeyNumber>,
    /// The version that the control plane tries, while an upgrade does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Version>,
    /// The version of the nodes' programs, if it is older than that of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_at: Option<Version>,
    /// What is requested, with the names of all nodes.
    pub cluster: DesiredCluster,
}

/// Why a declaration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// The object holds none.
    #[error("the object holds no declaration")]
    Missing,
    /// The declaration was too large for an object.
    #[error("the declaration is too large for an object")]
    TooLarge,
    /// It is not a declaration.
    #[error("the declaration is damaged: {0}")]
    Damaged(String),
    /// A newer program wrote it.
    #[error("the declaration has {0}, which this kubeon does not know; use the newer kubeon that wrote it")]
    UnknownField(String),
}

impl ClusterDeclaration {
    /// The name of the ConfigMap in the namespace `kube-system`.
    pub const OBJECT: &'static str = "kubeon-cluster";
    /// The entry of the ConfigMap.
    pub const KEY: &'static str = "cluster.json";

    /// Reads the declaration in the ConfigMap.
    ///
    /// # Errors
    /// When there is none, it is damaged, or it has a field that this program would lose.
    pub fn of_object(object: &Value) -> Result<Self, DeclarationError> {
        let data = &object["data"];
        match data[Self::KEY].as_str() {
            Some(text) => Self::parse(text),
            None if data[OMITTED].is_string() => Err(DeclarationError::TooLarge),
            None => Err(DeclarationError::Missing),
        }
    }

    fn parse(text: &str) -> Result<Self, DeclarationError> {
        let damaged = |error: serde_json::Error| DeclarationError::Damaged(error.to_string());
        let written: Value = serde_json::from_str(text).map_err(damaged)?;
        let declaration: Self = serde_json::from_value(written.clone()).map_err(damaged)?;
        let read = serde_json::to_value(&declaration).map_err(damaged)?;
        match first_lost(&written, &read, "") {
            Some(path) => Err(DeclarationError::UnknownField(path.trim_start_matches('.').to_owned())),
            None => Ok(declaration),
        }
    }
}

/// The path of the first value in `written` that `read` does not have.
fn first_lost(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match read.get(name) {
                Some(read) => first_lost(value, read, &path),
                None => Some(path),
            }
        }),
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            let mut pairs = written.iter().zip(read).enumerate();
            pairs.find_map(|(at, (written, read))| first_lost(written, read, &format!("{path}[{at}]")))
        }
        _ => (written != read).then(|| path.to_owned()),
    }
}

/// The object that holds the declaration. It never holds an old one: a declaration that is too large is left out.
pub(crate) fn object(context: &PlanContext<'_>) -> ApiObject {
    // Serializing plain data into memory cannot fail.
    let text = serde_json::to_string(&of_context(context)).ok();
    let (key, text) = match text.filter(|text| text.len() <= MAX_BYTES) {
        Some(text) => (ClusterDeclaration::KEY, text),
        None => (OMITTED, format!("the declaration has more than {MAX_BYTES} bytes")),
    };
    manifests::system_config_map(ClusterDeclaration::OBJECT, key, &text)
}

/// The declaration with the names that the nodes have: the state stores them after the first plan, and the object must be the same
/// before and after.
fn of_context(context: &PlanContext<'_>) -> ClusterDeclaration {
    let spec = context.spec();
    let observed = context.all_hosts().map(|host| (host.address(), &host.name));
    let unreachable = context.unreachable.iter().map(|host| (host.address, &host.name));
    let names: HashMap<HostAddress, &HostName> = observed.chain(unreachable).collect();
    let named = |host: &HostSpec| {
        let name = host.name.as_ref().or_else(|| names.get(&host.address).copied());
        HostSpec { name: name.cloned(), ..host.clone() }
    };
    ClusterDeclaration {
        uid: context.intent.uid.clone(),
        keys: context.keys().signing(),
        also_trusted: context.keys().also_trusted(),
        trial: context.intent.trial,
        nodes_at: context.intent.nodes_at,
        cluster: DesiredCluster {
            name: spec.name.clone(),
            version: spec.version,
            masters: spec.masters.iter().map(named).collect(),
            workers: spec.workers.iter().map(named).collect(),
            etcd_hosts: spec.etcd_hosts.iter().map(named).collect(),
            settings: spec.settings.clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::input::{Intent, Observation, Snapshot};
    use crate::sim;
    use crate::{plan, validate};

    fn declaration() -> ClusterDeclaration {
        let cluster = sim::cluster(&["10.0.0.1"], &["10.0.0.2"]);
        let uid = "uid-1".to_owned();
        let (also_trusted, trial, nodes_at) = (None, None, None);
        ClusterDeclaration { uid, keys: KeyNumber::FIRST, also_trusted, trial, nodes_at, cluster }
    }

    fn parse(value: &Value) -> Result<ClusterDeclaration, DeclarationError> {
        ClusterDeclaration::of_object(&json!({ "data": { "cluster.json": value.to_string() } }))
    }

    #[test]
    fn a_declaration_is_read_back() {
        let written = serde_json::to_value(declaration()).unwrap();
        assert_eq!(parse(&written), Ok(declaration()));
    }

    #[test]
    fn a_field_of_a_newer_program_is_never_lost() {
        for (pointer, path) in
            [("", "later"), ("/cluster", "cluster.later"), ("/cluster/workers/0", "cluster.workers[0].later")]
        {
            let mut written = serde_json::to_value(declaration()).unwrap();
            written.pointer_mut(pointer).unwrap()["later"] = json!(true);
            assert_eq!(parse(&written), Err(DeclarationError::UnknownField(path.to_owned())));
        }
    }

    #[test]
    fn a_damaged_or_missing_declaration_is_named() {
        assert!(matches!(parse(&json!({ "uid": 3 })), Err(DeclarationError::Damaged(_))));
        let of = |object| ClusterDeclaration::of_object(&object).unwrap_err();
        assert_eq!(of(json!({ "data": { "omitted": "large" } })), DeclarationError::TooLarge);
        for object in [json!(null), json!({}), json!({ "data": { "away": "{}" } })] {
            assert_eq!(of(object), DeclarationError::Missing);
        }
    }

    fn bare_hosts() -> Snapshot {
        let hosts = ["10.0.0.1", "10.0.0.2"].into_iter().zip(["h1", "h2"]);
        let facts = hosts.map(|(at, name)| (at.parse().unwrap(), Observation::Fresh(sim::bare(name))));
        Snapshot { taken_at: 1_800_000_000, hosts: facts.collect() }
    }

    fn intent(cluster: DesiredCluster) -> Intent {
        let version = cluster.version;
        let (spec, _) = validate(cluster, &[version]).unwrap();
        Intent::new(spec, "uid-1", 0, sim::artifacts(&version.to_string()))
    }

    /// The declaration that a plan stores in the cluster.
    fn stored(intent: &Intent, snapshot: &Snapshot) -> Option<ClusterDeclaration> {
        let made = plan(intent, snapshot).unwrap();
        let step = made.steps.into_iter().find(|step| step.id.to_string() == "control/declaration")?;
        let kubeon_wire::Op::Objects { objects } = step.op else { panic!("{:?}", step.op) };
        Some(ClusterDeclaration::of_object(&objects[0].body).unwrap())
    }

    #[test]
    fn the_names_of_nodes_are_in_the_first_declaration() {
        let (first, mut snapshot) = (intent(declaration().cluster), bare_hosts());
        let stored_first = stored(&first, &snapshot).unwrap();
        let names: Vec<_> =
            stored_first.cluster.hosts().map(|host| host.name.clone().unwrap().to_string()).collect();
        assert_eq!(names, ["h1", "h2"]);
        sim::run_to_completion(&first, &mut snapshot, 2);
        let named = intent(stored_first.cluster);
        assert_eq!(stored(&named, &snapshot), None, "the state stores the same names");
    }

    #[test]
    fn a_version_that_is_tried_is_declared() {
        let (first, mut snapshot) = (intent(declaration().cluster), bare_hosts());
        sim::run_to_completion(&first, &mut snapshot, 2);
        let trial = Version { minor: first.spec.version.minor + 1, ..first.spec.version };
        let tries = Intent { trial: Some(trial), ..intent(declaration().cluster) };
        assert_eq!(stored(&tries, &snapshot).unwrap().trial, Some(trial));
    }

    #[test]
    fn an_older_version_of_the_nodes_is_declared() {
        let (first, mut snapshot) = (intent(declaration().cluster), bare_hosts());
        sim::run_to_completion(&first, &mut snapshot, 2);
        let older = Version { minor: first.spec.version.minor - 1, ..first.spec.version };
        let behind = Intent { nodes_at: Some(older), ..intent(declaration().cluster) };
        assert_eq!(stored(&behind, &snapshot).unwrap().nodes_at, Some(older));
    }

    #[test]
    fn another_label_changes_the_object_and_restarts_nothing() {
        let (first, mut snapshot) = (intent(declaration().cluster), bare_hosts());
        sim::run_to_completion(&first, &mut snapshot, 2);
        let mut cluster = declaration().cluster;
        cluster.workers[0].labels = BTreeMap::from([("disk".to_owned(), "fast".to_owned())]);
        let made = plan(&intent(cluster), &snapshot).unwrap();
        let ids: Vec<String> = made.steps.iter().map(|step| step.id.to_string()).collect();
        assert_eq!(ids, ["control/declaration", "join/labels-h2"]);
        assert_eq!(made.rolling, []);
    }
}
