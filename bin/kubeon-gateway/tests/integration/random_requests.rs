//! Requests of any form, on every route.

#![allow(clippy::print_stdout, reason = "prints how many requests were sent")]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::support::{EDIT, RestServer, rest};

/// How many requests every method of every route gets.
const REQUESTS: usize = 30;
const METHODS: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "X"];
/// A stream has no end, so its beginning must be enough.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// A word of a path, a query or a body: one that means something, or anything.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "team-a",
        "team-b",
        "shop",
        "default",
        "clusters",
        "operations",
        "namespaces",
        "region",
        "cluster",
        "create",
        "callback",
        "scaleup",
        "logs",
        "hosts",
        "watch",
        "..",
        "%2e%2e",
        "%00",
        "%ff",
        "",
    ];
    prop_oneof![
        8 => select(known.to_vec()).prop_map(str::to_owned),
        1 => "[a-zA-Z0-9._~!$&'()*+,;=:@%-]{0,40}",
        1 => Just("a".repeat(300)),
    ]
}

/// Every path of the description, and one of any other form.
fn routes() -> Vec<String> {
    let description: serde_json::Value = serde_json::from_str(&kubeon_gateway::openapi().unwrap()).unwrap();
    let paths = description["paths"].as_object().unwrap();
    paths.keys().cloned().chain(["/{any}/{any}/{any}".to_owned()]).collect()
}

/// A path of this route, with a query. Half of the paths have none, and most are of the namespace in which the caller has rights:
/// others are refused before the server looks at the rest.
fn path(route: &str) -> impl Strategy<Value = String> + use<> {
    let queries = select(
        &[
            "limit",
            "continue",
            "namespace",
            "cluster",
            "phase",
            "region",
            "status",
            "host",
            "result",
            "follow",
            "tail",
            "since",
            "labelSelector",
            "x",
        ][..],
    );
    let query = prop_oneof![Just(Vec::new()), proptest::collection::vec((queries, word()), 1..4)];
    let namespace = prop_oneof![3 => Just("team-a".to_owned()), 1 => word()];
    let parts: Vec<String> = route.split('/').map(str::to_owned).collect();
    (namespace, proptest::collection::vec(word(), 3), query).prop_map(move |(namespace, words, query)| {
        let mut words = words.into_iter();
        let parts = parts.iter().map(|part| match part.as_str() {
            "{namespace}" => namespace.clone(),
            other if other.starts_with('{') => words.next().unwrap_or_default(),
            other => other.to_owned(),
        });
        let path = parts.collect::<Vec<_>>().join("/");
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    })
}

/// JSON of any form, with fields that the routes know.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        word().prop_map(|word| format!("{word:?}")),
        Just(r#""10.0.0.1""#.to_owned()),
    ];
    let keys = [
        "apiVersion",
        "kind",
        "metadata",
        "name",
        "namespace",
        "spec",
        "cluster",
        "masterList",
        "nodeList",
        "kubeVersion",
        "authConfig",
        "success",
        "message",
        "x",
    ];
    let json = leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((select(keys.to_vec()), inner), 0..6).prop_map(|fields| {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key:?}:{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    prop_oneof![
        6 => json.prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => Just(Vec::new()),
    ]
}

/// What the headers say about the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Login {
    Valid,
    Absent,
    /// A token that nobody has, another scheme, or two tokens.
    Invalid(&'static str),
}

/// The bytes of a request.
#[derive(Debug, Clone)]
struct RandomRequest {
    login: Login,
    /// Whether its head and the length of its body are those of the protocol.
    well_formed: bool,
    bytes: Vec<u8>,
}

/// A request to this route. Some have a token, a wrong length or bytes that are no text.
fn request(token: &str, method: &'static str, route: &str) -> impl Strategy<Value = RandomRequest> + use<> {
    let bearer = format!("authorization: Bearer {token}\r\n");
    let logins = prop_oneof![
        12 => Just(Login::Valid),
        2 => Just(Login::Absent),
        1 => select(&[
            "authorization: Bearer x\r\n", "authorization: Bearer a.b.c\r\n", "authorization: Basic YTpi\r\n",
            "authorization: Bearer\r\n", "authorization: Bearer x\r\nauthorization: Bearer y\r\n",
        ][..]).prop_map(Login::Invalid),
    ];
    let kinds = select(
        &["application/json", "application/merge-patch+json", "application/yaml", "text/plain", "\u{0}"][..],
    );
    let accepts = select(&["*/*", "text/event-stream", "application/json, text/event-stream;q=0.1"][..]);
    let header = prop_oneof![
        18 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 1..60),
    ];
    let lengths = prop_oneof![16 => Just(0_i64), 1 => -5_i64..5];
    (path(route), kinds, accepts, body(), header, lengths, logins).prop_map(
        move |(path, kind, accept, body, header, wrong, login)| {
            let length = i64::try_from(body.len()).unwrap_or_default() + wrong;
            let credentials = match login {
                Login::Valid => bearer.as_str(),
                Login::Absent => "",
                Login::Invalid(header) => header,
            };
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept: {accept}\r\n{credentials}\
                 content-type: {kind}\r\ncontent-length: {length}\r\n"
            );
            let well_formed = header.is_empty() && wrong == 0 && !kind.contains('\0');
            let end: &[u8] = if header.is_empty() { b"\r\n" } else { b"\r\n\r\n" };
            RandomRequest { login, well_formed, bytes: [head.as_bytes(), &header, end, &body].concat() }
        },
    )
}

fn answer(rest: &RestServer, tls: &Arc<rustls::ClientConfig>, bytes: &[u8]) -> Vec<u8> {
    let socket = TcpStream::connect(rest.address).expect("the server is gone");
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(tls), name).unwrap(), socket);
    // The server may refuse a request and close before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The status of an answer; `None` when the server closed the connection or the answer has not begun in time.
fn status_of(request: &RandomRequest, answer: &[u8]) -> Option<u16> {
    if answer.is_empty() {
        return None;
    }
    let status =
        answer.strip_prefix(b"HTTP/1.1 ").and_then(|rest| str::from_utf8(rest.get(..3)?).ok()?.parse().ok());
    Some(status.unwrap_or_else(|| panic!("{}", shown(request, answer))))
}

fn shown(request: &RandomRequest, answer: &[u8]) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&request.bytes), String::from_utf8_lossy(answer))
}

/// A caller without valid credentials learns nothing: the answer is 401. The method, the path and the body of a callback are read
/// before its token is reviewed; a head that is none of the protocol is refused before its credentials are read.
fn is_refused(request: &RandomRequest, route: &str, status: u16) -> bool {
    let before_review = route.ends_with("/callback") && matches!(status, 400 | 405);
    status == 401 || before_review || (!request.well_formed && (400..500).contains(&status))
}

/// Every answer of every method of every route is one of the protocol, none is a failure of the server, and no caller without
/// credentials reads anything. The test prints its seed; `KUBEON_SOAK_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "sends requests for minutes: ./test long"]
async fn soak_random_requests_get_an_answer() {
    let rest = rest().await;
    let token = rest.account("team-a", "random", EDIT).await;
    let seed: u64 = match std::env::var("KUBEON_SOAK_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs(),
    };
    println!("  KUBEON_SOAK_SEED={seed}");
    let mut runner = TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..Config::default() });
    let tls = Arc::new(rest.tls_client());
    let (mut sent, mut unknown) = (0_u64, 0_u64);
    // The answers to callers that the server knows, by status.
    let mut known: BTreeMap<u16, u64> = BTreeMap::new();
    for (route, method) in routes().iter().flat_map(|route| METHODS.map(|method| (route, method))) {
        let requests = request(&token, method, route);
        for _ in 0..REQUESTS {
            let request = requests.new_tree(&mut runner).unwrap().current();
            let answer = answer(rest, &tls, &request.bytes);
            sent += 1;
            let Some(status) = status_of(&request, &answer) else { continue };
            assert!(status < 500 || status == 501, "{}", shown(&request, &answer));
            if request.login != Login::Valid {
                assert!(is_refused(&request, route, status), "{}", shown(&request, &answer));
                unknown += 1;
            } else {
                *known.entry(status).or_default() += 1;
            }
        }
    }
    println!("{sent} requests; answers to unknown callers: {unknown}, to known ones by status: {known:?}");
    let accepted: u64 = known.range(200..300).map(|(_, count)| count).sum();
    let answered = unknown + known.values().sum::<u64>();
    assert!(accepted > 0 && unknown > 0 && answered > accepted + unknown, "{sent} {unknown} {known:?}");
    assert!(answered * 10 > sent * 7, "too many requests have no answer: {answered} of {sent}");
}
