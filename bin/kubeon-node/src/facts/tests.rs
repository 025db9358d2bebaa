use super::*;
use crate::job::Effect;
use crate::journal::Entry;
use crate::ops::files;
use crate::paths;
use crate::testing::Bench;
use crate::testing_api;
use kubeon_wire::{Content, File};

#[test]
fn a_bare_host_has_no_facts() {
    let bench = Bench::new();
    let host = Arc::new(Host::new(bench.host.root.clone()));
    assert_eq!(collect(&host).unwrap(), Facts::default());
    assert_eq!(std::fs::read_dir(bench.folder()).unwrap().count(), 0, "a look changes nothing");
}

#[test]
fn tells_what_stands_and_what_drifted() {
    let bench = Bench::new();
    let root = &bench.host.root;
    let remember = |id: &str, path: &str| {
        let file = File { path: path.into(), mode: 0o644, content: Content::Text("a".into()) };
        let Effect { marks, .. } = files::run(&bench.job(), &[file]).unwrap();
        journal::remember(root, &Entry { id: id.into(), digest: "d1".into(), marks }).unwrap();
    };
    remember("h1/a", "/etc/a");
    remember("h1/b", "/etc/b");
    bench.write("/etc/b", "changed");
    bench.write(&format!("{}/h1__c.json", paths::JOURNAL), "{");
    let facts = collect(&Arc::new(Host::new(root.clone()))).unwrap();
    let told: Vec<_> = facts.journal.iter().map(|entry| (entry.id.as_str(), &entry.standing)).collect();
    assert_eq!(told[0], ("h1/a", &Standing::Stands));
    assert_eq!(told[1], ("h1/b", &Standing::Drifted("/etc/b was changed".into())));
    assert_eq!(told[2].0, "h1/c");
    assert_ne!(told[2].1, &Standing::Stands);
}

#[test]
fn finds_certificates_in_subfolders() {
    let bench = Bench::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["x".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    let certificate = params.self_signed(&key).unwrap();
    bench.write("/etc/kubernetes/pki/etcd/server.crt", &certificate.pem());
    bench.write("/etc/kubernetes/pki/broken.crt", "no certificate");
    bench.write("/etc/kubernetes/pki/etcd/server.key", &key.serialize_pem());
    let facts = collect(&Arc::new(Host::new(bench.host.root.clone()))).unwrap();
    assert_eq!(facts.certificates.len(), 1);
    let found = &facts.certificates[0];
    assert_eq!(found.path, "/etc/kubernetes/pki/etcd/server.crt");
    assert_eq!((found.not_before, found.not_after), (1_767_225_600, 1_798_761_600));
}

#[test]
fn an_api_server_that_hangs_does_not_hold_the_facts_up() {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, |_, _, _| testing_api::Reply::Hang(Vec::new()));
    let marks = vec![journal::Mark::Object { path: "/api/v1/namespaces/x".into() }];
    journal::remember(&bench.host.root, &Entry { id: "h1/x".into(), digest: "d".into(), marks }).unwrap();
    let mut host = Host::new(bench.host.root.clone());
    host.api.clone_from(&bench.host.api);
    let start = Instant::now();
    let facts = collect(&Arc::new(host)).unwrap();
    assert_eq!(facts.journal[0].standing, Standing::Stands, "what cannot be told stands");
    assert!(!facts.cluster.unwrap_or_default().api_ready);
    assert!(start.elapsed() < Duration::from_millis(3300), "{:?}", start.elapsed());
}

#[test]
fn tells_what_the_api_server_says() {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, |_, path, _| {
        let node = serde_json::json!({"metadata": {"name": "h1"}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}});
        testing_api::Reply::Json(
            200,
            match path {
                "/version" => r#"{"gitVersion": "v1.36.3"}"#.to_owned(),
                "/api/v1/nodes" => serde_json::json!({"items": [node]}).to_string(),
                _ => "ok".to_owned(),
            },
        )
    });
    let mut host = Host::new(bench.host.root.clone());
    host.api.clone_from(&bench.host.api);
    let cluster = collect(&Arc::new(host)).unwrap().cluster.unwrap();
    assert!(cluster.api_ready && cluster.nodes["h1"].ready);
    assert_eq!(cluster.version, "v1.36.3".parse().ok());
}
