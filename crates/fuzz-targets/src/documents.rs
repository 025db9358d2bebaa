//! Files that people write, and files from elsewhere.

use std::io::Write as _;

use kubeon_api::read_yaml;
use kubeon_bundle::BundleManifest;
use kubeon_engine::approved_plan::ApprovedPlan;
use kubeon_engine::kubeconfig::Kubeconfig;
use kubeon_link_host::{HostKeyPolicy, HostKeys};
use kubeon_plan::Plan;

/// What separates the files of an input with several.
const SEPARATOR: &str = "\n%%\n";

/// What is accepted is written as JSON that is accepted as the same object, and its settings can be completed or are refused.
pub(crate) fn declared_cluster(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(object) = read_yaml(text) else { return };
    let json = serde_json::to_string(&object).unwrap();
    let again = read_yaml(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(again.spec, object.spec, "{json}");
    if let Ok(settings) = object.spec.cluster.settings() {
        drop(settings.unsupported());
    }
    drop(object.spec.cluster.hosts());
}

/// An inventory that is accepted has only hosts with credentials of their own or shared ones.
pub(crate) fn inventory(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (hosts, variables) = text.split_once(SEPARATOR).unwrap_or((text, ""));
    drop(kubeon_inventory::outline(hosts, variables));
    let name = "demo".parse().unwrap();
    let Ok(read) = kubeon_inventory::read(&name, hosts, variables) else { return };
    drop(read.cluster.spec.cluster.settings());
}

/// A kubeconfig that is accepted is written in a form that is accepted.
pub(crate) fn kubeconfig(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(mut config) = Kubeconfig::parse(text) else { return };
    config.set_server("demo", "https://10.0.0.1:6443");
    config.choose("demo");
    drop((config.current().map(str::to_owned), config.authority("demo"), config.client("demo")));
    let text = config.text().unwrap();
    assert!(Kubeconfig::parse(&text).is_ok(), "{text}");
}

/// A file of known hosts is accepted or refused with its line.
pub(crate) fn known_hosts(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    if let Ok(keys) = HostKeys::new(HostKeyPolicy::AcceptNew).with_pinned(file.path()) {
        drop(keys.pinned_text());
    }
    drop(HostKeys::new(HostKeyPolicy::Pinned).with_known_hosts(file.path()));
}

/// A plan that is accepted is written in a form that is accepted as the same, and is compared with itself.
pub(crate) fn approved_plan(bytes: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(bytes) else { return };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{text}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&zstd::encode_all(text.as_bytes(), 1).unwrap()).unwrap();
    let approved = ApprovedPlan::read(file.path()).unwrap();
    drop(approved.check(&plan));
}

/// A manifest that is accepted is written in a form that is accepted as the same.
pub(crate) fn bundle_manifest(bytes: &[u8]) {
    let Ok(manifest) = serde_json::from_slice::<BundleManifest>(bytes) else { return };
    let text = serde_json::to_string(&manifest).unwrap();
    let again: BundleManifest = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), text);
}
