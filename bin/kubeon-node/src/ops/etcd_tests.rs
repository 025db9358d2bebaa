use serde_json::{Value, json};

use super::*;
use crate::paths;
use crate::testing::Bench;
use crate::testing_api::{Reply, Requests, serve};

/// A bench whose etcd is scripted: `answer` gets the path and the number of the request.
fn bench(answer: impl Fn(&str, usize) -> Value + Send + Sync + 'static) -> (Bench, Requests) {
    let mut bench = Bench::new();
    let requests = serve(&mut bench, move |_, path, number| {
        let answer = answer(path, number);
        let status = if answer.get("code").is_some() { 400 } else { 200 };
        Reply::Json(status, answer.to_string())
    });
    for (from, to) in [
        (paths::API_CA, paths::ETCD_CA),
        (paths::ADMIN_CERTIFICATE, paths::ETCD_CERTIFICATE),
        (paths::ADMIN_KEY, paths::ETCD_KEY),
    ] {
        bench.write(to, &bench.read(from));
    }
    bench.host.etcd = bench.host.api.clone();
    (bench, requests)
}

/// Members h1, h2, … at 10.0.0.1, 10.0.0.2, …; `url` is where clients reach them.
fn members(url: &str, count: usize) -> Value {
    let member = |number: usize| {
        json!({"ID": number.to_string(), "name": format!("h{number}"), "clientURLs": [url],
               "peerURLs": [format!("https://10.0.0.{number}:2380")]})
    };
    json!({"members": (1..=count).map(member).collect::<Vec<_>>()})
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn paths_of(requests: &Requests) -> Vec<String> {
    requests.lock().iter().map(|(_, path, _)| path.clone()).collect()
}

#[test]
fn a_joining_member_starts_with_the_list_of_etcd() {
    let name: HostName = "h2".parse().unwrap();
    let own = NewMember { name: &name, address: address(2), members: &[], file: "/etc/members" };
    let list = [
        json!({"ID": "1", "name": "h1", "peerURLs": ["https://10.0.0.1:2380"]}),
        json!({"ID": "2", "peerURLs": ["https://10.0.0.2:2380"], "isLearner": true}),
        json!({"ID": "7", "peerURLs": ["https://10.0.0.3:2380"]}),
    ];
    let list: Vec<ListedMember> = serde_json::from_value(json!(list)).unwrap();
    let text = initial_members(&own, &list);
    let expected = "ETCD_INITIAL_CLUSTER=h1=https://10.0.0.1:2380,h2=https://10.0.0.2:2380,\
                    member-7=https://10.0.0.3:2380\nETCD_INITIAL_CLUSTER_STATE=existing\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn a_member_is_removed_when_the_others_have_a_quorum() {
    let name: HostName = "h3".parse().unwrap();
    let (bench, requests) = bench(|path, number| match (path, number) {
        ("/v3/cluster/member/list", 0..4) => members("https://127.0.0.1:1", 3),
        _ => json!({"members": []}),
    });
    // No member that stays serves.
    let mut job = bench.job();
    job.deadline = std::time::Instant::now() + std::time::Duration::from_millis(250);
    let failure = remove(&job, &name, address(3)).unwrap_err();
    let expected =
        "h3 stays a member of etcd: etcd refuses: 0 of the 2 members that stay serve: that is no quorum";
    assert_eq!(failure.cause, expected);
    assert!(paths_of(&requests).iter().all(|path| path == "/v3/cluster/member/list"));
}

#[test]
fn a_removal_that_etcd_refuses_for_a_moment_is_repeated() {
    let name: HostName = "h3".parse().unwrap();
    let url = std::sync::Arc::new(parking_lot::Mutex::new(String::new()));
    let known = std::sync::Arc::clone(&url);
    let refused = std::sync::atomic::AtomicBool::new(false);
    let (bench, requests) = bench(move |path, _| match path {
        "/v3/cluster/member/list" => members(&known.lock(), 3),
        "/v3/cluster/member/remove" if !refused.swap(true, std::sync::atomic::Ordering::SeqCst) => {
            json!({"code": 14, "message": "etcdserver: unhealthy cluster"})
        }
        _ => json!({"health": "true"}),
    });
    *url.lock() = bench.host.etcd.clone();
    assert!(remove(&bench.job(), &name, address(3)).unwrap().changed);
    let removals: Vec<String> = requests
        .lock()
        .iter()
        .filter(|(_, path, _)| path.ends_with("/remove"))
        .map(|(_, _, body)| body.clone())
        .collect();
    assert_eq!(removals, [r#"{"ID":"3"}"#, r#"{"ID":"3"}"#]);
}

#[test]
fn a_member_that_is_gone_is_not_removed_again() {
    let name: HostName = "h4".parse().unwrap();
    let (bench, requests) = bench(|_, _| members("https://127.0.0.1:1", 3));
    assert!(!remove(&bench.job(), &name, address(4)).unwrap().changed);
    assert_eq!(paths_of(&requests), ["/v3/cluster/member/list"]);
}

#[test]
fn others_are_asked_first_about_the_member_of_this_host() {
    let (bench, _) = bench(|_, _| {
        let mut list = members("https://127.0.0.1:1", 3);
        list["header"] = json!({"member_id": "1"});
        list["members"][1]["clientURLs"] = json!(["https://127.0.0.1:2"]);
        list
    });
    let own = Etcd::at(&bench.host.root, vec![bench.host.etcd.clone()]).unwrap();
    let endpoints = |name: &str| endpoints_about(&name.parse().unwrap(), &own, "local");
    assert_eq!(endpoints("h1"), ["https://127.0.0.1:2", "https://127.0.0.1:1", "local"]);
    assert_eq!(endpoints("h2"), ["local", "https://127.0.0.1:2", "https://127.0.0.1:1"]);
    let silent = Etcd::at(&bench.host.root, vec!["https://127.0.0.1:1".to_owned()]).unwrap();
    assert_eq!(endpoints_about(&"h1".parse().unwrap(), &silent, "local"), ["local"]);
}
