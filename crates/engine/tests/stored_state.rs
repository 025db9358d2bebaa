//! State files of older versions can be read and keep their meaning.

#![allow(clippy::unwrap_used, reason = "a failure fails the test")]

use std::path::{Path, PathBuf};

use kubeon_api::kubernetes_cluster::{
    ApiServer, Certificates, DeclaredCluster, DeclaredLoadBalancer, LoadBalancerMode, Network, ProxyMode,
};
use kubeon_api::{ClusterName, HostName, Version};
use kubeon_engine::cluster_request::{HostRequest, RequestParts, from_parts};
use kubeon_engine::engine::{StoredCluster, set_spec};
use kubeon_engine::login_request::LoginRequest;
use kubeon_plan::DesiredCluster;
use kubeon_store::Store;
use serde_json::Value;

const VERSION: &str = "v1.36.3";

fn name() -> ClusterName {
    "demo".parse().unwrap()
}

fn fixture(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file)
}

fn host(address: &str, name: Option<&str>, labels: &[(&str, &str)]) -> HostRequest {
    HostRequest {
        address: address.parse().unwrap(),
        internal_address: None,
        name: name.map(|name| name.parse::<HostName>().unwrap()),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: std::collections::BTreeSet::new(),
        login: LoginRequest::default(),
    }
}

/// The specification for these settings.
fn requested(declared: DeclaredCluster, feature_gates: &str) -> DesiredCluster {
    let parts = RequestParts {
        declared,
        feature_gates: feature_gates.to_owned(),
        masters: vec![host("172.30.0.11", Some("m1"), &[])],
        workers: vec![
            host("172.30.0.12", None, &[("disk", "ssd"), ("example.com/rack", "")]),
            host("172.30.0.13", Some("w2"), &[]),
        ],
        ..RequestParts::default()
    };
    let supported: Version = VERSION.parse().unwrap();
    (*from_parts("demo", VERSION, parts, &[supported]).unwrap().spec).clone()
}

/// A specification with the default settings of the older version: it had another range of node ports.
fn default_spec() -> DesiredCluster {
    let network = Network { node_port_range: Some("10000-30000".parse().unwrap()), ..Network::default() };
    requested(DeclaredCluster { network: Some(network), ..DeclaredCluster::default() }, "")
}

/// A specification with a non-default value for every setting that an older version can write.
fn custom_spec() -> DesiredCluster {
    let declared = DeclaredCluster {
        pod_cidr: Some("10.100.0.0/16".parse().unwrap()),
        service_cidr: Some("10.200.0.0/16".parse().unwrap()),
        api_server: Some(ApiServer {
            domain: Some("api.shop.test".parse().unwrap()),
            cert_sans: vec!["shop.example.com".parse().unwrap(), "203.0.113.9".parse().unwrap()],
            ..ApiServer::default()
        }),
        load_balancer: Some(DeclaredLoadBalancer {
            mode: Some(LoadBalancerMode::External),
            address: Some("172.30.9.9".parse().unwrap()),
            port: Some(7443),
        }),
        network: Some(Network {
            proxy_mode: Some(ProxyMode::Iptables),
            dns_domain: Some("shop.internal".parse().unwrap()),
            node_mask_size: Some(25),
            max_pods: Some(77),
            node_port_range: Some("31000-31999".parse().unwrap()),
            ..Network::default()
        }),
        certificates: Some(Certificates { ca_years: Some(10) }),
        ..DeclaredCluster::default()
    };
    requested(declared, "InPlacePodVerticalScaling=true,AllAlpha=false")
}

/// A store with this state file of an older version.
fn store_with(file: &str) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().to_owned());
    std::fs::copy(fixture(file), store.state_path(&name())).unwrap();
    (folder, store)
}

#[test]
fn the_state_of_an_older_version_keeps_its_meaning() {
    for (file, spec) in [("state-v1-plain.json", default_spec()), ("state-v1-otherwise.json", custom_spec())]
    {
        let (_folder, store) = store_with(file);
        let state: StoredCluster = store.load(&name()).unwrap();
        assert_eq!(state.spec, spec, "{file}: the same request is no change");
        let mut saved = state.clone();
        set_spec(&mut saved, spec);
        assert_eq!(saved, state, "{file}: the derived addresses are the same");
        assert_eq!((state.generation, state.leaving.len(), state.logins.len()), (7, 1, 4), "{file}");
    }
}

/// After a downgrade the older version can read the file: it reads the fields that it knows.
#[test]
fn saving_a_state_again_keeps_the_form_of_every_field() {
    for file in ["state-v1-plain.json", "state-v1-otherwise.json"] {
        let (_folder, store) = store_with(file);
        let mut state: StoredCluster = store.load(&name()).unwrap();
        let lock = store.lock(&name(), "kubeon create").unwrap();
        store.save(&lock, &mut state).unwrap();
        let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
        let (old, new) = (read(&fixture(file)), read(&store.state_path(&name())));
        for (field, value) in old.as_object().unwrap().iter().filter(|(field, _)| *field != "updatedAt") {
            let fields = value.as_object().filter(|_| field == "spec");
            match fields {
                Some(fields) => {
                    fields.iter().for_each(|(name, value)| assert_eq!(new[field][name], *value, "{name}"))
                }
                None => assert_eq!(new[field], *value, "{file}: {field}"),
            }
        }
    }
}
