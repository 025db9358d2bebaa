//! Clients that mean no good: slow, endless, malformed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::support::{EDIT, RestServer, rest};

type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A connection for bytes of any form.
fn connect(rest: &RestServer) -> TlsStream {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TcpStream::connect(rest.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(rest.tls_client()), name).unwrap(), stream)
}

/// Sends bytes and reads until the server closes the connection.
fn send_bytes(mut stream: TlsStream, bytes: &[u8]) -> String {
    // The server may refuse a request and close before it has read all of it.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // The server may close without a notice of TLS.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status codes of all answers in a text.
fn statuses(text: &str) -> Vec<&str> {
    text.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_ends_its_head_is_disconnected() {
    let rest = rest().await;
    let start = Instant::now();
    let answer = send_bytes(connect(rest), b"GET / HTTP/1.1\r\nhost: x\r\nx: ");
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    let start = Instant::now();
    let mut plain = TcpStream::connect(rest.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(start.elapsed() < Duration::from_secs(25), "a client without a handshake stays connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_and_bodies_are_refused() {
    let rest = rest().await;
    let token = rest.account("team-a", "flooder", EDIT).await;
    let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let answer = send_bytes(connect(rest), head.as_bytes());
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    // One byte too many: the server closes a connection whose body it has not read.
    let body = format!(r#"{{"x":"{}"}}"#, "y".repeat(3 * 1024 * 1024 - 7));
    for (path, field) in [
        ("/api/v2/namespaces/team-a/clusters", "detail"),
        ("/api/v1/region/default/cluster/large", "message"),
    ] {
        let (status, answer) = rest.send(Some(&token), "POST", path, &body).await;
        assert_eq!(status, 413, "{path}: {answer}");
        assert!(
            answer[field].as_str().is_some_and(|text| text.contains("longer than 3 MiB")),
            "{path}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_lengths_of_one_body_are_refused() {
    let rest = rest().await;
    let inner = "GET /api/v2/clusters HTTP/1.1\r\nhost: x\r\n\r\n";
    for headers in [
        format!("content-length: {}\r\ntransfer-encoding: chunked", inner.len() + 5),
        "content-length: 5\r\ncontent-length: 6".to_owned(),
        "transfer-encoding: chunked, identity".to_owned(),
        "content-length: +5".to_owned(),
    ] {
        let request = format!(
            "POST /api/v2/clusters HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n\r\n0\r\n\r\n{inner}"
        );
        let answer = send_bytes(connect(rest), request.as_bytes());
        let found = statuses(&answer);
        assert!(
            found.len() <= 1 && found.iter().all(|status| status.starts_with('4')),
            "{headers}: {answer}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_with_dots_reach_no_other_route() {
    let rest = rest().await;
    let token = rest.account("team-a", "walker", EDIT).await;
    for path in [
        "/api/v2/namespaces/team-a/clusters/..%2f..%2fteam-b",
        "/api/v2/namespaces/team-a/clusters/%2e%2e",
        "/api/v2/namespaces/team-a%2f..%2fteam-b/clusters",
        "/api/v2/namespaces/../clusters",
        "/api/v2//clusters",
        "/api/v1/region/..%2f/cluster/x",
    ] {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n"
        );
        let answer = send_bytes(connect(rest), request.as_bytes());
        assert!(["400", "404", "405"].contains(&statuses(&answer)[0]), "{path}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_is_given_up() {
    let rest = rest().await;
    let token = rest.account("team-a", "dripper", EDIT).await;
    let stream = connect(rest);
    stream.sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "POST /api/v2/namespaces/team-a/clusters HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: 1000000\r\n\r\n{{"
    );
    let start = Instant::now();
    let answer = send_bytes(stream, head.as_bytes());
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    assert_eq!(statuses(&answer), ["408"], "{answer}");
    assert!(answer.contains("application/problem+json") && answer.contains("within 30 s"), "{answer}");
}
