//! The settings of a cluster as a document that people read and change.

use kubeon_api::kubernetes_cluster::{ClusterSettings, DeclaredCluster, fixed_because};
use kubeon_api::{ReadError, read_yaml};
use kubeon_plan::{DesiredCluster, Refusal};
use kubeon_store::Status;
use serde_json::{Map, Value, json};

use crate::engine::StoredCluster;
use crate::error::EngineError;
use crate::remedy::EngineRemedy;

/// The field of kernel parameters: what follows it in a path is the name of one, dots included.
const KERNEL_PARAMETERS: &str = "kernelParameters";
/// Fields of a declaration that are no settings.
const NO_SETTINGS: [(&str, &str); 7] = [
    ("kubeVersion", "kubeon upgrade changes it"),
    ("masterList", "kubeon addon, delon and replace change it"),
    ("nodeList", "kubeon addon and delon change it"),
    ("etcdList", "kubeon addon, delon and replace change it"),
    ("authConfig", "login flags change it"),
    ("region", "it is no setting of the cluster"),
    ("timeout_mins", "it is no setting of the cluster"),
];

/// The settings, with every default written out, as in `spec.cluster` of a `KubernetesCluster`.
///
/// # Errors
/// Never for settings of this program.
pub fn document(settings: &ClusterSettings) -> Result<Map<String, Value>, EngineError> {
    let declared = serde_json::to_value(DeclaredCluster::from(settings))
        .map_err(|error| EngineError::failed(format!("cannot write the settings: {error}")))?;
    Ok(if let Value::Object(all) = declared { all } else { Map::new() })
}

/// The value of a field such as `network.maxPods`; `None` when it has its default or does not exist.
#[must_use]
pub fn field<'d>(document: &'d Map<String, Value>, path: &str) -> Option<&'d Value> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let value = document.get(first)?;
    match rest {
        None => Some(value),
        Some(name) if first == KERNEL_PARAMETERS => value.get(name),
        Some(rest) => field(value.as_object()?, rest),
    }
}

/// Sets a field: `network.maxPods=200`. A value in brackets is JSON, and certificate names are separated by commas. Without a
/// value, the field gets its default.
///
/// # Errors
/// Refuses a text without `=`, and a field below another value.
pub fn set(document: &mut Map<String, Value>, assignment: &str) -> Result<(), EngineError> {
    let Some((path, text)) = assignment.split_once('=') else {
        let reason = "is not FIELD=VALUE, such as network.maxPods=200";
        return Err(EngineError::refused(format!("{assignment:?} {reason}")));
    };
    let value = (!text.is_empty()).then(|| value(path, text));
    insert(document, path, value).ok_or_else(|| EngineError::refused(format!("{path} is no field")))
}

fn insert(document: &mut Map<String, Value>, path: &str, value: Option<Value>) -> Option<()> {
    if let Some((first, rest)) = path.split_once('.') {
        let inner = document.entry(first).or_insert_with(|| json!({})).as_object_mut()?;
        if first == KERNEL_PARAMETERS {
            put(inner, rest, value);
            return Some(());
        }
        return insert(inner, rest, value);
    }
    put(document, path, value);
    Some(())
}

fn put(document: &mut Map<String, Value>, field: &str, value: Option<Value>) {
    match value {
        Some(value) => document.insert(field.to_owned(), value),
        None => document.remove(field),
    };
}

fn value(path: &str, text: &str) -> Value {
    // An argument of a program and a kernel parameter are texts, whatever they look like.
    if ["extraArgs.", "kernelParameters."].iter().any(|texts| path.starts_with(texts)) {
        return text.into();
    }
    if path == "apiServer.certSANs" && !text.starts_with('[') {
        return text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    }
    let plain = |value: &Value| !value.is_string();
    serde_json::from_str(text).ok().filter(plain).unwrap_or_else(|| text.into())
}

/// The cluster with the settings of a document.
///
/// # Errors
/// Refuses unknown fields and invalid values, settings that cannot change, and a cluster with a change that is not complete.
pub fn changed(state: &StoredCluster, document: Map<String, Value>) -> Result<DesiredCluster, EngineError> {
    if !matches!(state.status, Status::Running) {
        let error = EngineError::refused(format!("a change of {} is not complete", state.name));
        return Err(error.remedy(EngineRemedy::CompleteChange(state.name.clone())));
    }
    let settings = read(state, document)?;
    let refusals: Vec<Refusal> = settings
        .differences(&state.spec.settings)
        .into_iter()
        .filter_map(|field| Some((field, fixed_because(field)?)))
        .map(|(field, why)| Refusal::setting(field, format!("cannot change: {why}")))
        .collect();
    if refusals.is_empty() {
        return Ok(DesiredCluster { settings, ..state.spec.clone() });
    }
    Err(EngineError::refusals(state.name.as_str(), refusals, &[]))
}

fn read(state: &StoredCluster, mut document: Map<String, Value>) -> Result<ClusterSettings, EngineError> {
    let refuse = |refusals| Err(EngineError::refusals(state.name.as_str(), refusals, &[]));
    let others: Vec<Refusal> = NO_SETTINGS
        .iter()
        .filter(|(field, _)| document.contains_key(*field))
        .map(|(field, why)| Refusal::setting(*field, format!("is no setting: {why}")))
        .collect();
    if !others.is_empty() {
        return refuse(others);
    }
    // The reader of declarations needs a master.
    document.insert("masterList".to_owned(), json!([{ "ip": "192.0.2.1" }]));
    let text = json!({
        "apiVersion": "ecs.yun.com/v1", "kind": "KubernetesCluster", "metadata": {"name": state.name},
        "spec": {"cluster": document},
    });
    match read_yaml(&text.to_string()) {
        Ok(cluster) => {
            let settings = cluster.spec.cluster.settings();
            settings.map_err(|error| EngineError::refused(error.to_string()))
        }
        Err(ReadError::Mistakes(mistakes)) => refuse(
            mistakes
                .into_iter()
                .map(|mistake| {
                    let field = mistake.field.trim_start_matches("spec.cluster.").to_owned();
                    Refusal::setting(field, mistake.reason)
                })
                .collect(),
        ),
        Err(error) => Err(EngineError::refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use kubeon_plan::sim::cluster;

    use super::*;

    fn state() -> StoredCluster {
        let spec = cluster(&["10.0.0.1"], &["10.0.0.2"]);
        let mut state = StoredCluster::new(spec.name.clone(), spec);
        state.status = Status::Running;
        state
    }

    fn set_all(assignments: &[&str]) -> Result<ClusterSettings, Vec<String>> {
        let state = state();
        let mut all = document(&state.spec.settings).unwrap();
        assignments.iter().for_each(|assignment| set(&mut all, assignment).unwrap());
        changed(&state, all).map(|spec| spec.settings).map_err(|error| {
            let refusals = error.refused.map(|refused| refused.others).unwrap_or_default();
            refusals.iter().map(|refusal| format!("{} {}", refusal.value, refusal.reason)).collect()
        })
    }

    #[test]
    fn fields_are_set_and_get_their_defaults() {
        let settings = set_all(&[
            "network.maxPods=200",
            "apiServer.certSANs=a.example.com, 10.0.0.9",
            "extraArgs.kubelet.v=4",
            "featureGates=A=true,B=false",
            "kernelParameters.vm.max_map_count=262144",
            "network.mtu=1400",
        ])
        .unwrap();
        assert_eq!((settings.max_pods, settings.cert_sans.len()), (200, 2));
        assert_eq!(settings.extra_args.kubelet["v"], "4");
        assert_eq!(settings.feature_gates, "A=true,B=false");
        assert_eq!(
            (settings.kernel_parameters["vm.max_map_count"].as_str(), settings.mtu),
            ("262144", Some(1400))
        );
        let all = document(&settings).unwrap();
        assert_eq!(field(&all, "kernelParameters.vm.max_map_count"), Some(&json!("262144")));
        assert_eq!(field(&all, "featureGates"), Some(&json!("A=true,B=false")));
        assert_eq!(field(&all, "network.maxPods"), Some(&json!(200)));
        assert_eq!(field(&all, "extraArgs.kubelet"), Some(&json!({"v": "4"})));
        assert_eq!(field(&all, "network.maxPods.x"), None);
        let mut back = all;
        set(&mut back, "network.maxPods=").unwrap();
        assert_eq!(field(&back, "network.maxPods"), None);
        set(&mut back, "kernelParameters.vm.max_map_count=").unwrap();
        assert_eq!(field(&back, "kernelParameters"), Some(&json!({})));
    }

    #[test]
    fn what_cannot_change_is_refused_with_its_reason() {
        let refusals = set_all(&["podCIDR=10.128.0.0/12", "network.dnsDomain=a.local"]).unwrap_err().concat();
        assert!(refusals.contains("every pod has an address of it"), "{refusals}");
        assert!(refusals.contains("every pod has it in its configuration"), "{refusals}");
        let refusals = set_all(&["network.maxPod=200"]).unwrap_err().concat();
        assert!(refusals.contains("network.maxPod"), "{refusals}");
        let refusals = set_all(&["featureGates=A=yes"]).unwrap_err().concat();
        assert!(refusals.contains("is not feature gates such as"), "{refusals}");
        let refusals = set_all(&["masterList=[]"]).unwrap_err().concat();
        assert!(refusals.contains("is no setting: kubeon addon"), "{refusals}");
        assert!(set(&mut Map::new(), "network.maxPods").is_err());
        let mut open = state();
        open.status = Status::Upgrading;
        let all = document(&open.spec.settings).unwrap();
        assert!(changed(&open, all).is_err());
    }
}
