//! Limits of each caller, and clients that never read. Each test has a gateway with limits of its own.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::logs::operation;
use crate::measure::memory;
use crate::support::{EDIT, EndedWithTest, RestServer, eventually, rest};

/// Clients that never read.
const SILENT: usize = 200;
/// How long the gateway waits for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(45);
/// The most MiB of the gateway with these clients: half of what its container has.
const MOST_MEMORY: f64 = 256.0;

/// A gateway with these flags.
async fn gateway(rest: &RestServer, flags: &[String]) -> (EndedWithTest, RestServer) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kubeon-gateway"));
    program.args(flags);
    let (process, address) = rest.start_process(program).await;
    (EndedWithTest(process), rest.at(address))
}

/// Asks for a stream of events and reads the status of the answer, but nothing more. Little fits into the buffer of the client.
/// A busy gateway may end a connection whose handshake takes too long: an error.
async fn open(rest: &RestServer, token: &str, path: &str) -> io::Result<(TlsStream<TcpStream>, u16)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let tcp = socket.connect(rest.address).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(rest.tls_client())).connect(name, tcp).await?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer {token}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await?;
    let begin = String::from_utf8_lossy(&begin).into_owned();
    let status = begin.strip_prefix("HTTP/1.1 ").and_then(|status| status.parse().ok());
    Ok((stream, status.unwrap_or_else(|| panic!("{begin}"))))
}

/// As [`open`], again until it is accepted: the gateway needs a moment to see the end of other connections.
async fn accepted(rest: &RestServer, token: &str, path: &str) -> TlsStream<TcpStream> {
    for _ in 0..200 {
        match open(rest, token, path).await {
            Ok((stream, 200)) => return stream,
            other => drop(other),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} is not accepted");
}

/// Opens streams until so many more are accepted, at most 50 at once, and does not read them. Returns the most MiB that the
/// gateway had meanwhile.
async fn open_more(
    (process, rest): &(EndedWithTest, RestServer),
    token: &str,
    path: &str,
    more: usize,
    silent: &mut Vec<TlsStream<TcpStream>>,
) -> f64 {
    let (start, wanted, mut most) = (Instant::now(), silent.len() + more, 0.0);
    while silent.len() < wanted {
        assert!(start.elapsed() < 3 * WRITE_TIMEOUT, "after {} streams none is accepted", silent.len());
        let at_once = (wanted - silent.len()).min(50);
        for answer in join_all((0..at_once).map(|_| open(rest, token, path))).await {
            // A busy gateway refuses some for another reason than their number.
            if let Ok((stream, 200)) = answer {
                silent.push(stream);
            }
        }
        most = f64::max(most, memory(&process.0));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_take_little_memory_and_are_disconnected() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-silent", "log-silent").await;
    kubelet.write_without_end(format!("{}\n", "z".repeat(1000)).repeat(100));
    let flags = [
        format!("--logs={SILENT}"),
        format!("--logs-per-user={SILENT}"),
        format!("--connections-per-user={}", 2 * SILENT),
        format!("--write-timeout={}", WRITE_TIMEOUT.as_secs()),
    ];
    let gateway = gateway(rest, &flags).await;
    eventually(&gateway.1, &token, "/api/v2/operations/logged-silent", |answer| answer.0 == 200).await;
    let path = format!("{path}?follow=true");
    let mut silent = Vec::new();
    let filled = open_more(&gateway, &token, &path, SILENT, &mut silent).await;
    // Others are served.
    let neighbour = rest.account("team-b", "log-neighbour", EDIT).await;
    let list = "/api/v2/namespaces/team-b/clusters";
    eventually(&gateway.1, &neighbour, list, |answer| answer.0 == 200).await;
    // One more is accepted only when one of the first has been disconnected.
    let most = f64::max(filled, open_more(&gateway, &token, &path, 1, &mut silent).await);
    assert!(most <= MOST_MEMORY, "{most} MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_has_a_number_of_connections_and_logs() {
    let rest = rest().await;
    let (kubelet, token, path) = operation(rest, "logged-limited", "log-limited").await;
    kubelet.write("begun");
    let flags = [
        "--connections-per-user=3",
        "--logs-per-user=1",
        "--caller-namespace=group:system:serviceaccounts:team-a=team-a",
    ];
    let (_process, limited) = gateway(rest, &flags.map(str::to_owned)).await;
    eventually(&limited, &token, "/api/v2/operations/logged-limited", |answer| answer.0 == 200).await;

    let log = accepted(&limited, &token, &format!("{path}?follow=true")).await;
    let is_refused = |answer: &(u16, Value), field: &str| {
        answer.0 == 429
            && answer.1[field].as_str().is_some_and(|text| text.contains("raises --logs-per-user"))
    };
    let refused = eventually(&limited, &token, &path, |answer| is_refused(answer, "detail")).await;
    assert_eq!((&refused["status"], &refused["title"]), (&json!(429), &json!("Too Many Requests")));
    rest.cluster_in("team-a", "log-limited", "Creating").await;
    rest.set_status("team-a", "log-limited", json!({"jobName": "logged-limited"})).await;
    let first = "/api/v1/region/default/cluster/log-limited/logs";
    let refused = eventually(&limited, &token, first, |answer| is_refused(answer, "message")).await;
    assert_eq!(refused["code"], "Too Many Requests");
    drop(log);
    let log = eventually(&limited, &token, first, |answer| answer.0 == 200).await;
    assert_eq!(log["message"], "begun\n");

    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(accepted(&limited, &token, "/api/v2/watch/clusters?namespace=team-a").await);
    }
    // Another account of the same namespace.
    let colleague = rest.account("team-a", "log-colleague", EDIT).await;
    let path = "/api/v2/namespaces/team-a/clusters";
    let refused = limited.send(Some(&colleague), "GET", path, "").await;
    let detail = refused.1["detail"].as_str().unwrap_or_default();
    let words = "the service accounts of namespace team-a have 3 connections open";
    assert!(refused.0 == 429 && detail.starts_with(words), "{refused:?}");
    let neighbour = rest.account("team-b", "limited-neighbour", EDIT).await;
    let served = limited.send(Some(&neighbour), "GET", "/api/v2/namespaces/team-b/clusters", "").await;
    assert_eq!(served.0, 200, "{served:?}");
    drop(streams.pop());
    eventually(&limited, &colleague, path, |answer| answer.0 == 200).await;
}
