//! Requests of any form, on every route.

#![allow(clippy::print_stdout, reason = "prints how many requests were sent")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::support::{EDIT, RestServer, rest};

const SECONDS: u64 = 120;
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

fn path() -> impl Strategy<Value = String> {
    let routes = [
        "/api/v1/region/{}/cluster/{}",
        "/api/v1/region/{}/cluster/{}/create/callback",
        "/api/v1/region/{}/cluster/{}/logs",
        "/api/v1/region/{}/cluster/{}/scaleup",
        "/api/v2/clusters",
        "/api/v2/namespaces/{}/clusters",
        "/api/v2/namespaces/{}/clusters/{}",
        "/api/v2/namespaces/{}/clusters/{}/hosts",
        "/api/v2/namespaces/{}/clusters/{}/retry",
        "/api/v2/operations",
        "/api/v2/operations/{}/approve",
        "/api/v2/operations/{}/cancel",
        "/api/v2/operations/{}/logs",
        "/api/v2/operations/{}/steps",
        "/api/v2/watch/clusters",
        "/{}/{}/{}",
    ];
    let queries = select(
        &["limit", "continue", "namespace", "phase", "follow", "tail", "since", "labelSelector", "x"][..],
    );
    let query = proptest::collection::vec((queries, word()), 0..4);
    (select(routes.to_vec()), word(), word(), word(), query).prop_map(|(route, a, b, c, query)| {
        let path = [a, b, c].iter().fold(route.to_owned(), |path, word| path.replacen("{}", word, 1));
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

/// The bytes of a request. Some have a token, a wrong length or bytes that are no text.
fn request(token: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let login = format!("authorization: Bearer {token}\r\n");
    let methods = select(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "X"][..]);
    let kinds = select(
        &["application/json", "application/merge-patch+json", "application/yaml", "text/plain", "\u{0}"][..],
    );
    let header = prop_oneof![
        6 => Just(Vec::new()),
        1 => proptest::collection::vec(any::<u8>(), 0..60),
    ];
    let lengths = prop_oneof![8 => Just(0_i64), 1 => -5_i64..5];
    (methods, path(), kinds, body(), header, lengths, proptest::bool::weighted(0.9)).prop_map(
        move |(method, path, kind, body, header, wrong, logged_in)| {
            let length = i64::try_from(body.len()).unwrap_or_default() + wrong;
            let login = if logged_in { login.as_str() } else { "" };
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{login}content-type: {kind}\r\n\
                 content-length: {length}\r\n"
            );
            [head.as_bytes(), &header, b"\r\n", &body].concat()
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

/// Every answer is one of the protocol, and none is a failure of the server.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "sends requests for minutes: ./test long"]
async fn soak_random_requests_get_an_answer() {
    let rest = rest().await;
    let token = rest.account("team-a", "random", EDIT).await;
    let (requests, tls) = (request(&token), Arc::new(rest.tls_client()));
    let mut runner = TestRunner::default();
    let (until, mut sent, mut accepted) = (Instant::now() + Duration::from_secs(SECONDS), 0_u64, 0_u64);
    while Instant::now() < until {
        let bytes = requests.new_tree(&mut runner).unwrap().current();
        let answer = answer(rest, &tls, &bytes);
        let status = answer.get(9..12).map(String::from_utf8_lossy).unwrap_or_default();
        let shown = || format!("{}\n{}", String::from_utf8_lossy(&bytes), String::from_utf8_lossy(&answer));
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "), "{}", shown());
        assert!(!status.starts_with('5') || status == "501", "{}", shown());
        (sent, accepted) = (sent + 1, accepted + u64::from(status.starts_with('2')));
    }
    println!("{sent} requests, {accepted} of them accepted");
    assert!(accepted > 0 && sent > accepted, "{sent} {accepted}");
}
