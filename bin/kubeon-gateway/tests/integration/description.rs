//! The committed description of the API.

use std::path::Path;

/// `UPDATE_GOLDEN=1` writes the file.
#[test]
fn the_committed_description_is_the_served_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let served = kubeon_gateway::openapi().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == served,
        "docs/reference/openapi.json is not current: run this test with UPDATE_GOLDEN=1"
    );
    assert!(served.contains(r#""openapi": "3.1.0""#));
    let served: serde_json::Value = serde_json::from_str(&served).unwrap();
    let methods =
        served["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let ids: Vec<&str> = methods.map(|method| method["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), ids.len(), "{ids:?}");
}
