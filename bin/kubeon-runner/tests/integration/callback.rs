//! The callback, sent to a real HTTPS server.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::support::{Done, Place, Running, TIMEOUT};
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

const TOKEN: &str = "one-time-token-of-this-operation";

/// A self-signed certificate for `localhost`.
struct Identity {
    pem: String,
    config: Arc<ServerConfig>,
}

impl Identity {
    fn new() -> Self {
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let chain: Vec<CertificateDer<'static>> = vec![certified.cert.der().clone()];
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
        Self { pem: certified.cert.pem(), config: Arc::new(config) }
    }
}

#[derive(Debug)]
struct Request {
    line: String,
    authorization: String,
    body: Value,
}

/// Answers each request with the next status, then with the last one; sends the requests to the test.
fn listen(listener: TcpListener, identity: &Identity, answers: &'static [u16]) -> Receiver<Request> {
    let (sender, requests) = channel();
    let config = identity.config.clone();
    std::thread::spawn(move || {
        let mut answers = answers.iter().copied();
        let mut status = answers.next().unwrap();
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that does not trust the certificate sends no request.
            let Some(request) = answer(stream, &config, status) else { continue };
            status = answers.next().unwrap_or(status);
            if sender.send(request).is_err() {
                return;
            }
        }
    });
    requests
}

fn answer(stream: TcpStream, config: &Arc<ServerConfig>, status: u16) -> Option<Request> {
    let tls = ServerConnection::new(config.clone()).unwrap();
    let mut stream = BufReader::new(StreamOwned::new(tls, stream));
    let (mut line, mut authorization, mut length) = (String::new(), String::new(), 0);
    stream.read_line(&mut line).ok()?;
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => value.clone_into(&mut authorization),
            "content-length" => length = value.parse().unwrap(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let stream = stream.get_mut();
    write!(stream, "HTTP/1.1 {status} Word\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    Some(Request {
        line: line.trim().to_owned(),
        authorization,
        body: serde_json::from_slice(&body).unwrap(),
    })
}

struct Setup {
    place: Place,
    identity: Identity,
    listener: TcpListener,
}

impl Setup {
    fn new() -> Self {
        let setup = Self {
            place: Place::new(),
            identity: Identity::new(),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        setup.place.write("token", &format!("{TOKEN}\n"));
        setup.place.write("ca.pem", &setup.identity.pem);
        setup
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Running {
        self.place.program("script", &format!("#!/bin/bash\n{script}\n"));
        let port = self.listener.local_addr().unwrap().port();
        let url = format!("https://localhost:{port}/");
        let mut command = self.place.command(arguments);
        command.args(["--callback-url", &url, "--callback-token-file", "token", "--callback-ca", "ca.pem"]);
        command.env("OPERATION", "creating").env("CLUSTER_NAME", "demo").env("CLUSTER_NAMESPACE", "team");
        command.env("MASTER_HOSTS", "10.0.0.1,10.0.0.3").env("NODE_HOSTS", "10.0.0.2");
        Running::start(&mut command)
    }

    fn listen(&self, answers: &'static [u16]) -> Receiver<Request> {
        listen(self.listener.try_clone().unwrap(), &self.identity, answers)
    }
}

fn assert_token_not_written(done: &Done) {
    assert!(!format!("{done:?}").contains(TOKEN), "{done:?}");
}

#[test]
fn success_is_sent_with_route_token_and_payload() {
    let setup = Setup::new();
    let requests = setup.listen(&[200]);
    let done = setup.run("cat token; exit 0", &["--region", "north/1"]).end();
    assert_eq!(done.code, Some(0), "{done:?}");
    let request = requests.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(request.line, "POST /api/v1/region/north%2F1/cluster/demo/create/callback HTTP/1.1");
    assert_eq!(request.authorization, format!("Bearer {TOKEN}"));
    let expected = json!({
        "name": "demo", "namespace": "team", "region": "north/1", "success": true, "message": "success",
        "masterList": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.3"}], "nodeList": [{"ip": "10.0.0.2"}], "etcdList": [],
        "kubeconfig": "",
    });
    assert_eq!(request.body, expected);
    assert!(done.contains("the callback was delivered"));
    assert_token_not_written(&done);
}

#[test]
fn failure_is_sent_and_keeps_its_exit_code() {
    let setup = Setup::new();
    let requests = setup.listen(&[500, 503, 429, 200]);
    let done = setup.run("exit 4", &[]).end();
    assert_eq!(done.code, Some(4));
    let requests: Vec<Request> = (0..4).map(|_| requests.recv_timeout(TIMEOUT).unwrap()).collect();
    assert!(requests.iter().all(|request| request.body["success"] == false));
    assert!(requests[3].body["message"].as_str().unwrap().contains("exit code 4"), "{requests:?}");
    assert!(done.contains("status 500") && done.contains("the callback was delivered"), "{done:?}");
}

/// The work, or an outage of the server, may outlast the lifetime of a token.
#[test]
fn the_token_is_read_before_every_attempt() {
    let setup = Setup::new();
    let requests = setup.listen(&[503, 200]);
    let running = setup.run("echo ready; until [ -e go ]; do sleep 0.05; done", &[]);
    running.line();
    setup.place.write("token", "renewed during the work\n");
    setup.place.write("go", "");
    assert_eq!(requests.recv_timeout(TIMEOUT).unwrap().authorization, "Bearer renewed during the work");
    setup.place.write("token", "renewed once more\n");
    assert_eq!(requests.recv_timeout(TIMEOUT).unwrap().authorization, "Bearer renewed once more");
    assert_eq!(running.end().code, Some(0));
}

/// Contract B, case 41: the server is unavailable when the work ends.
#[test]
fn a_server_that_returns_gets_the_callback() {
    let setup = Setup::new();
    let address = setup.listener.local_addr().unwrap();
    let Setup { place, identity, listener } = setup;
    let setup = Setup { place, identity, listener: listener.try_clone().unwrap() };
    let running = setup.run("exit 1", &[]);
    drop((listener, setup.listener));
    running.wait_for_log("the callback failed and will be retried");
    let listener = TcpListener::bind(address).unwrap();
    let requests = listen(listener, &setup.identity, &[200]);
    assert_eq!(requests.recv_timeout(TIMEOUT).unwrap().body["success"], false);
    assert_eq!(running.end().code, Some(1));
}

/// Contract B, case 39: the callback of a stopped run.
#[test]
fn sigterm_is_sent_as_terminated() {
    let setup = Setup::new();
    let requests = setup.listen(&[200]);
    let running = setup.run("echo ready; sleep 1000", &[]);
    running.line();
    running.signal(Signal::TERM);
    assert_eq!(running.end().code, Some(143));
    let body = requests.recv_timeout(TIMEOUT).unwrap().body;
    assert_eq!((&body["success"], &body["message"]), (&json!(false), &json!("terminated")));
}

#[test]
fn an_untrusted_server_never_gets_the_token() {
    let setup = Setup::new();
    let requests = setup.listen(&[200]);
    setup.place.write("ca.pem", &Identity::new().pem);
    let done = setup.run("exit 0", &[]).end();
    assert_eq!(done.code, Some(0));
    assert!(done.contains("the server's certificate is not trusted"), "{done:?}");
    assert!(requests.try_recv().is_err());
    assert_token_not_written(&done);
}

#[test]
fn a_refusal_is_final_and_retries_end_at_the_timeout() {
    let setup = Setup::new();
    let requests = setup.listen(&[409, 200]);
    let done = setup.run("exit 0", &[]).end();
    assert!(done.contains("refused with status 409"), "{done:?}");
    requests.recv_timeout(TIMEOUT).unwrap();
    assert!(requests.try_recv().is_err());
    let setup = Setup::new();
    let _requests = setup.listen(&[500]);
    let done = setup.run("exit 0", &["--callback-patience", "1.2"]).end();
    assert_eq!(done.code, Some(0));
    assert!(done.contains("no success in time; last attempt: status 500"), "{done:?}");
}

#[test]
fn a_token_never_goes_over_plain_http() {
    let setup = Setup::new();
    setup.place.program("script", "#!/bin/bash\n");
    let arguments = ["--callback-url", "http://localhost:1", "--callback-token-file", "token"];
    let mut command = setup.place.command(&arguments);
    command.env("OPERATION", "creating").env("CLUSTER_NAME", "demo");
    assert!(Running::start(&mut command).end().contains("must begin with https://"));
}
