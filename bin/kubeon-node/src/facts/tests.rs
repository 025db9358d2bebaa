use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::job::StepEffect;
use crate::journal::Entry;
use crate::ops::files;
use crate::paths;
use crate::systemd::{NotStarted, Services, UnitState};
use crate::testing::Bench;
use crate::testing_api::{self, Reply};
use kubeon_wire::{ClusterFacts, Content, EtcdFact, File, KubeletFacts};

#[test]
fn a_bare_host_has_no_facts() {
    let bench = Bench::new();
    let host = Arc::new(HostSystem::new(bench.host.root.clone()));
    assert_eq!(collect(&host).unwrap(), Facts::default());
    assert_eq!(std::fs::read_dir(bench.folder()).unwrap().count(), 0, "collecting the facts changes nothing");
}

#[test]
fn reports_results_that_are_up_to_date_and_that_drifted() {
    let bench = Bench::new();
    let root = &bench.host.root;
    let remember = |id: &str, path: &str| {
        let file = File { path: path.into(), mode: 0o644, content: Content::Text("a".into()) };
        let StepEffect { marks, .. } = files::run(&bench.job(), &[file]).unwrap();
        journal::remember(root, &Entry { id: id.into(), digest: "d1".into(), marks }).unwrap();
    };
    remember("h1/a", "/etc/a");
    remember("h1/b", "/etc/b");
    bench.write("/etc/b", "changed");
    bench.write(&format!("{}/h1__c.json", paths::JOURNAL), "{");
    let facts = collect(&Arc::new(HostSystem::new(root.clone()))).unwrap();
    let states: Vec<_> = facts.journal.iter().map(|entry| (entry.id.as_str(), &entry.state)).collect();
    assert_eq!(states[0], ("h1/a", &ResultState::UpToDate));
    assert_eq!(states[1], ("h1/b", &ResultState::Drifted("/etc/b was changed".into())));
    assert_eq!(states[2].0, "h1/c");
    assert_ne!(states[2].1, &ResultState::UpToDate);
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
    let facts = collect(&Arc::new(HostSystem::new(bench.host.root.clone()))).unwrap();
    assert_eq!(facts.certificates.len(), 1);
    let found = &facts.certificates[0];
    assert_eq!(found.path, "/etc/kubernetes/pki/etcd/server.crt");
    assert_eq!((found.not_before, found.not_after), (1_767_225_600, 1_798_761_600));
    assert_eq!(facts.kubelet, KubeletFacts::default());
    bench.write("/var/lib/kubelet/bootstrap/client.crt", &certificate.pem());
    // The kubelet keeps its key in the same file; the order may differ.
    let own = format!("{}{}", key.serialize_pem(), certificate.pem());
    bench.write("/var/lib/kubelet/pki/kubelet-client-current.pem", &own);
    let facts = collect(&Arc::new(HostSystem::new(bench.host.root.clone()))).unwrap();
    assert_eq!(facts.certificates.len(), 1, "certificates of the kubelet are reported separately");
    let dates =
        |fact: Option<kubeon_wire::CertificateFact>| fact.map(|fact| (fact.not_before, fact.not_after));
    assert_eq!(dates(facts.kubelet.bootstrap), Some((1_767_225_600, 1_798_761_600)));
    assert_eq!(dates(facts.kubelet.own), Some((1_767_225_600, 1_798_761_600)));
}

#[test]
fn an_api_server_that_hangs_does_not_delay_the_facts() {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, |_, _, _| testing_api::Reply::Hang(Vec::new()));
    let marks = vec![journal::Mark::Object { path: "/api/v1/namespaces/x".into() }];
    journal::remember(&bench.host.root, &Entry { id: "h1/x".into(), digest: "d".into(), marks }).unwrap();
    let mut host = HostSystem::new(bench.host.root.clone());
    host.api.clone_from(&bench.host.api);
    let start = Instant::now();
    let facts = collect(&Arc::new(host)).unwrap();
    assert_eq!(facts.journal[0].state, ResultState::UpToDate, "assumed up to date");
    let cluster = facts.cluster.unwrap();
    assert!(!cluster.api_ready && cluster.api_unknown, "a server that does not answer may be ready");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn reports_the_status_of_the_api_server() {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, |_, path, _| {
        let node = serde_json::json!({"metadata": {"name": "h1"}, "status": {
            "conditions": [{"type": "Ready", "status": "True"}]}});
        testing_api::Reply::Json(
            200,
            match path {
                "/version" => r#"{"gitVersion": "v1.36.3"}"#.to_owned(),
                "/api/v1/nodes?limit=1000" => serde_json::json!({"items": [node]}).to_string(),
                _ => "ok".to_owned(),
            },
        )
    });
    let mut host = HostSystem::new(bench.host.root.clone());
    host.api.clone_from(&bench.host.api);
    let cluster = collect(&Arc::new(host)).unwrap().cluster.unwrap();
    assert!(cluster.api_ready && cluster.nodes.unwrap()["h1"].ready);
    assert_eq!(cluster.version, "v1.36.3".parse().ok());
}

/// The facts of a cluster whose API server gives these answers.
fn cluster_facts(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> (ClusterFacts, Duration) {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, move |_, path, _| answer(path));
    let mut host = HostSystem::new(bench.host.root.clone());
    host.api.clone_from(&bench.host.api);
    let start = Instant::now();
    (collect(&Arc::new(host)).unwrap().cluster.unwrap(), start.elapsed())
}

fn list(names: &[&str], next: &str) -> Reply {
    let items: Vec<_> = names.iter().map(|name| serde_json::json!({"metadata": {"name": name}})).collect();
    Reply::Json(200, serde_json::json!({"metadata": {"continue": next}, "items": items}).to_string())
}

#[test]
fn unreported_nodes_are_unknown_and_not_an_empty_list() {
    let (cluster, _) = cluster_facts(|path| match path {
        "/api/v1/nodes?limit=1000" => Reply::Json(504, "{}".to_owned()),
        _ => Reply::Json(200, "ok".to_owned()),
    });
    assert!(cluster.api_ready);
    assert_eq!(cluster.nodes, None);
    let (none, _) =
        cluster_facts(
            |path| if path.contains("nodes") { list(&[], "") } else { Reply::Json(200, "ok".to_owned()) },
        );
    assert_eq!(none.nodes, Some(BTreeMap::new()), "an empty list is reported");
}

#[test]
fn waits_longer_for_an_api_server_that_lists_many_nodes_page_by_page() {
    let (cluster, took) = cluster_facts(|path| match path {
        "/api/v1/nodes?limit=1000" => {
            thread::sleep(Duration::from_millis(1500));
            list(&["h1"], "b_-9")
        }
        "/api/v1/nodes?limit=1000&continue=b_-9" => list(&["h2"], ""),
        _ => Reply::Json(200, "ok".to_owned()),
    });
    assert_eq!(cluster.nodes.unwrap().into_keys().collect::<Vec<_>>(), ["h1", "h2"]);
    assert!(took >= Duration::from_millis(1500) && took < cluster::BOUND, "{took:?}");
    let (cut, _) = cluster_facts(|path| match path {
        "/api/v1/nodes?limit=1000" => list(&["h1"], "next"),
        "/api/v1/nodes?limit=1000&continue=next" => Reply::Json(410, "{}".to_owned()),
        _ => Reply::Json(200, "ok".to_owned()),
    });
    assert_eq!(cut.nodes, None, "an incomplete list is not reported");
}

/// The facts of a member that lists itself and gives these answers to health checks.
fn member(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> EtcdFact {
    let mut bench = Bench::new();
    let own = Arc::new(Mutex::new(String::new()));
    let url = Arc::clone(&own);
    testing_api::serve(&mut bench, move |_, path, _| match path {
        "/v3/cluster/member/list" => {
            let url = url.lock().clone();
            let members = serde_json::json!([{"name": "h1", "clientURLs": [url]}]);
            Reply::Json(200, serde_json::json!({"members": members}).to_string())
        }
        other => answer(other),
    });
    own.lock().clone_from(&bench.host.api);
    ask_etcd(&bench, &bench.host.api)
}

fn ask_etcd(bench: &Bench, at: &str) -> EtcdFact {
    for (from, to) in [
        (paths::API_CA, paths::ETCD_CA),
        (paths::ADMIN_CERTIFICATE, paths::ETCD_CERTIFICATE),
        (paths::ADMIN_KEY, paths::ETCD_KEY),
    ] {
        bench.write(to, &bench.read(from));
    }
    let mut host = HostSystem::new(bench.host.root.clone());
    // No API server: this test reads only etcd.
    host.api = "https://127.0.0.1:1".to_owned();
    at.clone_into(&mut host.etcd);
    collect(&Arc::new(host)).unwrap().cluster.unwrap().etcd
}

#[test]
fn a_member_without_an_answer_in_time_is_unknown_and_not_unhealthy() {
    let members = |healthy| EtcdFact::Members([("h1".to_owned(), healthy)].into());
    assert_eq!(member(|_| Reply::Json(200, "{}".to_owned())), members(Some(true)));
    assert_eq!(member(|_| Reply::Json(503, "RAFT NO LEADER".to_owned())), members(Some(false)));
    assert_eq!(member(|_| Reply::Hang(Vec::new())), members(None));
}

#[test]
fn a_member_is_asked_again_while_a_leader_is_elected() {
    let asked = AtomicU32::new(0);
    let elected = member(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Json(503, "RANGE ERROR:etcdserver: leader changed".to_owned()),
        1 => Reply::Json(503, "RAFT NO LEADER".to_owned()),
        _ => Reply::Json(200, "{}".to_owned()),
    });
    assert_eq!(elected, EtcdFact::Members([("h1".to_owned(), Some(true))].into()));
}

#[test]
fn an_etcd_that_hangs_is_unknown_and_a_missing_etcd_is_down() {
    let mut bench = Bench::new();
    testing_api::serve(&mut bench, |_, _, _| Reply::Hang(Vec::new()));
    assert_eq!(ask_etcd(&bench, &bench.host.api), EtcdFact::Unknown);
    assert_eq!(ask_etcd(&bench, "https://127.0.0.1:1"), EtcdFact::Down);
    // A certificate of another authority: the server does not belong to this cluster.
    let mut other = Bench::new();
    testing_api::serve(&mut other, |_, _, _| Reply::Json(200, "{}".to_owned()));
    assert_eq!(ask_etcd(&bench, &other.host.api), EtcdFact::Down);
}

/// A service manager that never answers.
struct Hangs;

impl Services for Hangs {
    fn states(&self, _: &[String]) -> Result<BTreeMap<String, UnitState>, StepFailure> {
        thread::sleep(Duration::from_secs(20));
        Ok(BTreeMap::new())
    }

    fn reload(&self) -> Result<(), StepFailure> {
        Ok(())
    }

    fn restart(&self, _: &str, _: Instant) -> Result<(), NotStarted> {
        Ok(())
    }

    fn reload_unit(&self, _: &str, _: Instant) -> Result<(), StepFailure> {
        Ok(())
    }

    fn stop(&self, _: &[String], _: Instant) -> Result<(), StepFailure> {
        Ok(())
    }

    fn log(&self, _: &str) -> Vec<String> {
        Vec::new()
    }
}

#[test]
fn a_check_that_hangs_is_reported_and_plans_no_step() {
    let bench = Bench::new();
    let root = &bench.host.root;
    let mark = journal::Mark::Unit { name: "x.service".into(), sha256: String::new(), watches: Vec::new() };
    journal::remember(root, &Entry { id: "h1/x".into(), digest: "d".into(), marks: vec![mark] }).unwrap();
    let host = Arc::new(HostSystem::with_services(root.clone(), Box::new(Hangs)));
    let facts = collect_within(&host, Duration::from_millis(300)).unwrap();
    assert_eq!(facts.journal[0].state, ResultState::UpToDate);
    assert!(facts.unchecked[0].contains("could not check its 1 steps"), "{:?}", facts.unchecked);
}

#[test]
fn objects_without_an_answer_are_reported_as_unchecked() {
    let bench = Bench::new();
    let marks = vec![journal::Mark::Object { path: "/api/v1/namespaces/x".into() }];
    journal::remember(&bench.host.root, &Entry { id: "h1/x".into(), digest: "d".into(), marks }).unwrap();
    let facts = collect(&Arc::new(HostSystem::new(bench.host.root.clone()))).unwrap();
    assert_eq!(facts.journal[0].state, ResultState::UpToDate);
    assert_eq!(facts.unchecked.len(), 1, "{:?}", facts.unchecked);
    assert!(
        facts.unchecked[0].starts_with("the API server did not return all objects"),
        "{:?}",
        facts.unchecked
    );
}
