//! For tests: an API server with scripted answers and real certificates for server and client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::paths;
use crate::testing::Bench;

/// The answer to a request.
pub(crate) enum Reply {
    /// A status and a body.
    Json(u16, String),
    /// Lines, then the end of the answer.
    Lines(Vec<String>),
    /// Lines, then no data for a minute.
    Hang(Vec<String>),
}

/// The received requests: method, path with query, body.
pub(crate) type Requests = Arc<Mutex<Vec<(String, String, String)>>>;

/// Serves the bench's API until the test ends. `answer` receives the method, the path and the number of the
/// request.
pub(crate) fn serve(
    bench: &mut Bench,
    answer: impl Fn(&str, &str, usize) -> Reply + Send + Sync + 'static,
) -> Requests {
    let ca = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_certificate = params.self_signed(&ca).unwrap();
    let issuer = rcgen::Issuer::new(params, ca);
    let leaf = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        // The client can also be the kubelet of a host.
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:h1");
        (params.signed_by(&key, &issuer).unwrap(), key)
    };
    let (server, admin) = (leaf(), leaf());
    bench.write(paths::API_CA, &ca_certificate.pem());
    bench.write(paths::ADMIN_CERTIFICATE, &admin.0.pem());
    bench.write(paths::ADMIN_KEY, &admin.1.serialize_pem());

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca_certificate.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let chain = vec![CertificateDer::from(server.0.der().to_vec())];
    let key = PrivateKeyDer::try_from(server.1.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(chain, key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    bench.host.api = format!("https://{}", listener.local_addr().unwrap());
    let requests = Requests::default();
    let (config, record, answer) = (Arc::new(config), Arc::clone(&requests), Arc::new(answer));
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let stream = StreamOwned::new(connection, socket);
            let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
            // A client that disconnects ends only its own connection.
            std::thread::spawn(move || serve_connection(stream, &record, &*answer).is_ok());
        }
    });
    requests
}

fn serve_connection<S: Read + Write>(
    stream: S,
    requests: &Requests,
    answer: &dyn Fn(&str, &str, usize) -> Reply,
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let lengths =
            head.iter().filter_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut lengths = lengths;
        let mut body = vec![0; lengths.next().unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let mut words = head[0].split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let number = {
            let mut requests = requests.lock();
            requests.push((method.clone(), path.clone(), String::from_utf8(body).unwrap()));
            requests.len() - 1
        };
        let out = stream.get_mut();
        match answer(&method, &path, number) {
            Reply::Json(status, body) => {
                let length = body.len();
                write!(out, "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}")?;
                out.flush()?;
            }
            Reply::Lines(lines) => {
                chunks(out, &lines)?;
                write!(out, "0\r\n\r\n")?;
                out.flush()?;
            }
            Reply::Hang(lines) => {
                chunks(out, &lines)?;
                std::thread::sleep(std::time::Duration::from_secs(60));
            }
        }
    }
}

fn chunks(out: &mut impl Write, lines: &[String]) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    for line in lines {
        write!(out, "{:x}\r\n{line}\n\r\n", line.len() + 1)?;
    }
    out.flush()
}
