use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::ops::service::{self, Service};
use crate::testing::Bench;
use crate::testing_api::{Reply, Requests, serve};

const SERVICE: &str = UNITS[0];
const API_SERVER: &str = API_SERVERS[0];

const UNIT: &str = "[Service]\nType=notify\nExecStart=/x\n";
const SOON: RestartLimits =
    RestartLimits { election: Duration::from_millis(600), unchanged: Duration::from_millis(900) };

/// The host h1, on which a member runs. `members` gets the URL of the fake and returns what the member lists, or the text of its
/// refusal; `serves` gets a name and the number of the request.
fn bench(
    members: impl Fn(&str) -> Value + Send + Sync + 'static,
    serves: impl Fn(&str, usize) -> bool + Send + Sync + 'static,
) -> (Bench, Requests) {
    let mut bench = Bench::new();
    let url = Arc::new(Mutex::new(String::new()));
    let known = Arc::clone(&url);
    let requests = serve(&mut bench, move |_, path, number| {
        let Some(name) = path.strip_suffix("/health?serializable=false") else {
            let members = members(&known.lock());
            if members.is_string() {
                return Reply::Json(503, json!({"code": 14, "message": members}).to_string());
            }
            let list = json!({"header": {"member_id": "1"}, "members": members});
            return Reply::Json(200, list.to_string());
        };
        let name = if name.is_empty() { "h1" } else { name.trim_start_matches('/') };
        Reply::Json(if serves(name, number) { 200 } else { 503 }, "{}".to_owned())
    });
    for (from, to) in [
        (paths::API_CA, paths::ETCD_CA),
        (paths::ADMIN_CERTIFICATE, paths::ETCD_CERTIFICATE),
        (paths::ADMIN_KEY, paths::ETCD_KEY),
    ] {
        bench.write(to, &bench.read(from));
    }
    bench.host.etcd = bench.host.api.clone();
    url.lock().clone_from(&bench.host.etcd);
    bench.services.running.lock().extend([SERVICE.to_owned(), API_SERVER.to_owned()]);
    (bench, requests)
}

/// Members h1, h2, … with a vote. The URL of each ends with its name.
fn voters(count: usize) -> impl Fn(&str) -> Value {
    move |url: &str| {
        let member = |number: usize| {
            json!({"ID": number.to_string(), "name": format!("h{number}"),
                   "clientURLs": [format!("{url}/h{number}")]})
        };
        (1..=count).map(member).collect()
    }
}

/// The members that were asked whether they serve.
fn asked(requests: &Requests) -> Vec<String> {
    let health = |path: &String| path.strip_suffix("/health?serializable=false").map(str::to_owned);
    let mut asked: Vec<String> = requests.lock().iter().filter_map(|(_, path, _)| health(path)).collect();
    asked.sort_unstable();
    asked
}

#[test]
fn a_member_restarts_while_the_others_are_a_quorum() {
    let (bench, requests) = bench(voters(3), |_, _| true);
    let service = Service { name: SERVICE, unit: UNIT, watches: &[], ready: &[] };
    assert!(service::run(&bench.job(), &service).unwrap().changed);
    assert_eq!(bench.calls(), ["restart etcd.service"]);
    assert_eq!(asked(&requests), ["", "/h2", "/h3"]);
    // Five members spare one more.
    let (five, _) = self::bench(voters(5), |name, _| name != "h4");
    wait(&five.job(), &SOON).unwrap();
}

#[test]
fn a_member_without_which_no_quorum_is_left_does_not_restart() {
    let (bench, _) = bench(voters(3), |name, _| name != "h2");
    let failure = wait(&bench.job(), &SOON).unwrap_err();
    assert_eq!(failure.category, Category::Timeout);
    let expected = "etcd member h1 is not restarted: without it 1 of 3 members would serve, that is no quorum; \
                    h2 does not serve";
    assert_eq!(failure.cause, expected);
    let (four, _) = self::bench(voters(4), |name, _| !["h2", "h3"].contains(&name));
    let failure = wait(&four.job(), &SOON).unwrap_err();
    assert!(failure.cause.ends_with("that is no quorum; h2 and h3 do not serve"), "{failure}");
}

#[test]
fn an_api_server_that_ended_for_the_restart_starts_again() {
    let (bench, _) = bench(voters(3), |name, _| name != "h2");
    bench.services.running.lock().remove(API_SERVER);
    let service = Service { name: SERVICE, unit: UNIT, watches: &[], ready: &[] };
    let mut job = bench.job();
    job.deadline = Instant::now() + Duration::from_millis(100);
    assert_eq!(service::run(&job, &service).unwrap_err().category, Category::Timeout);
    assert_eq!(bench.calls(), ["restart kube-apiserver.service"]);
}

#[test]
fn members_that_start_are_waited_for() {
    let (bench, requests) = bench(voters(3), |name, number| name != "h2" || number > 8);
    wait(&bench.job(), &LIMITS).unwrap();
    assert!(asked(&requests).iter().filter(|name| *name == "/h2").count() > 1);
}

#[test]
fn a_member_without_a_leader_restarts_when_an_election_must_have_ended() {
    let (bench, requests) = bench(voters(3), |_, _| false);
    wait(&bench.job(), &SOON).unwrap();
    assert!(asked(&requests).iter().all(String::is_empty), "the others are not asked");
    assert!(asked(&requests).len() > 1, "it is asked again");
    assert!(bench.output().contains("etcd member h1 does not serve"), "{}", bench.output());
    // A leader that was elected meanwhile is found.
    let (elected, requests) = self::bench(voters(3), |_, number| number > 2);
    wait(&elected.job(), &LIMITS).unwrap();
    assert!(asked(&requests).contains(&"/h3".to_owned()));
}

#[test]
fn one_of_two_members_and_a_member_without_a_vote_restart_at_any_time() {
    let (two, requests) = bench(voters(2), |_, _| false);
    wait(&two.job(), &SOON).unwrap();
    assert_eq!(asked(&requests), Vec::<String>::new());
    // It lists no members: this is the answer of etcd 3.6.
    let (learner, requests) =
        self::bench(|_| json!("etcdserver: rpc not supported for learner"), |_, _| false);
    wait(&learner.job(), &SOON).unwrap();
    assert_eq!(asked(&requests), Vec::<String>::new());
}

#[test]
fn a_member_without_a_vote_is_no_part_of_the_quorum() {
    let with_learner = |url: &str| {
        let mut members = voters(4)(url);
        members[3]["isLearner"] = json!(true);
        members
    };
    let (bench, requests) = bench(with_learner, |name, _| name != "h4");
    wait(&bench.job(), &SOON).unwrap();
    assert_eq!(asked(&requests), ["", "/h2", "/h3"]);
}

#[test]
fn a_member_that_does_not_run_starts_without_a_question() {
    let (bench, requests) = bench(voters(3), |_, _| false);
    bench.services.running.lock().remove(SERVICE);
    wait_until_harmless(&bench.job()).unwrap();
    assert!(requests.lock().is_empty());
}

#[test]
fn a_list_that_is_not_understood_is_no_permission() {
    let (bench, _) = bench(|_| json!("none"), |_, _| true);
    let failure = wait(&bench.job(), &SOON).unwrap_err();
    assert!(failure.cause.contains("does not list the members"), "{failure}");
}
