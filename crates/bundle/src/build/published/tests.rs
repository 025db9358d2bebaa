//! Downloads from a real HTTPS server on loopback that behaves as bad servers do.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use ureq::tls::{Certificate, RootCerts};

use super::*;
use crate::{Arch, digest};

/// What the server does with a request for a path.
#[derive(Clone)]
enum Behaviour {
    /// Serves the bytes, and ranges of them.
    Serve(Vec<u8>),
    /// Announces all bytes, but closes the connection after so many of them. With ranges it ends in some attempts.
    Cut(Vec<u8>, usize),
    /// As `Cut`, but always from the first byte on.
    CutWithoutRanges(Vec<u8>, usize),
    /// Sends a few bytes at a time.
    Slow(Vec<u8>),
    /// Announces so many bytes.
    Announce(u64),
    /// Sends the bytes without saying how many they are.
    Unannounced(Vec<u8>),
    Status(u16),
    /// The status for the first request, the bytes afterwards.
    Later(u16, Vec<u8>),
    Redirect(String),
}

struct BadServer {
    server: Server,
    requests: Arc<Mutex<Vec<String>>>,
    cache: tempfile::TempDir,
}

impl BadServer {
    /// A server of `https://files.test/PATH`, which is asked as a mirror.
    fn with(paths: &[(&str, Behaviour)]) -> Self {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mirror = format!("https://localhost:{}/files.test", listener.local_addr().unwrap().port());
        let paths = paths.iter().map(|(path, behaviour)| ((*path).to_owned(), behaviour.clone())).collect();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        serve(listener, Arc::new(config), Arc::new(paths), Arc::clone(&requests));
        let authority = Certificate::from_der(signed.cert.der()).to_owned();
        let roots = RootCerts::Specific(Arc::new(vec![authority]));
        let cache = tempfile::tempdir().unwrap();
        let mirror = mirror.trim_end_matches("/files.test").to_owned();
        let server = Server::trusting(roots, Some(&mirror), cache.path()).unwrap();
        Self { server, requests, cache }
    }

    fn download(&self, path: &str, bytes: &[u8]) -> Result<Vec<u8>, PublishedError> {
        let sha256 = digest::of_bytes(bytes).unwrap();
        let file = PublishedFile { url: url(path), sha256 };
        self.server.download(&file, &|_, _| {}).map(|path| std::fs::read(path).unwrap())
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// The files that are left in the folder of downloads.
    fn left(&self) -> usize {
        std::fs::read_dir(self.cache.path().join("downloads")).unwrap().count()
    }
}

fn url(path: &str) -> String {
    format!("https://files.test/{path}")
}

type Paths = BTreeMap<String, Behaviour>;
type Stream = StreamOwned<ServerConnection, std::net::TcpStream>;

fn serve(listener: TcpListener, config: Arc<ServerConfig>, paths: Arc<Paths>, log: Arc<Mutex<Vec<String>>>) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let session = ServerConnection::new(Arc::clone(&config)).unwrap();
            let (paths, log) = (Arc::clone(&paths), Arc::clone(&log));
            // A client that closes the connection ends only its own thread.
            thread::spawn(move || answer(&mut StreamOwned::new(session, stream), &paths, &log).ok());
        }
    });
}

/// Answers one request and closes the connection.
fn answer(stream: &mut Stream, paths: &Paths, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let head = head(stream)?;
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let first = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
    let number =
        log.lock().iter().filter(|known| **known == path || known.starts_with(&format!("{path} "))).count();
    log.lock().push(first.map_or(path.clone(), |first: usize| format!("{path} from {first}")));
    match paths.get(path.trim_start_matches("/files.test/")) {
        None => status(stream, 404),
        Some(Behaviour::Status(code)) => status(stream, *code),
        Some(Behaviour::Later(code, _)) if number == 0 => status(stream, *code),
        Some(Behaviour::Serve(bytes) | Behaviour::Later(_, bytes)) => body(stream, bytes, first, bytes.len()),
        Some(Behaviour::Cut(bytes, count)) => body(stream, bytes, first, *count),
        Some(Behaviour::CutWithoutRanges(bytes, count)) => body(stream, bytes, None, *count),
        Some(Behaviour::Slow(bytes)) => slow(stream, bytes),
        Some(Behaviour::Announce(size)) => {
            write!(stream, "HTTP/1.1 200 X\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n")?;
            stream.write_all(b"the first ones")?;
            close(stream)
        }
        Some(Behaviour::Unannounced(bytes)) => {
            write!(stream, "HTTP/1.1 200 X\r\nConnection: close\r\n\r\n")?;
            stream.write_all(bytes)?;
            close(stream)
        }
        Some(Behaviour::Redirect(target)) => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )?;
            close(stream)
        }
    }
}

fn head(stream: &mut Stream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn status(stream: &mut Stream, code: u16) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {code} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    close(stream)
}

fn body(stream: &mut Stream, bytes: &[u8], first: Option<usize>, count: usize) -> std::io::Result<()> {
    let rest = &bytes[first.unwrap_or(0).min(bytes.len())..];
    let head = match first {
        Some(first) if rest.is_empty() && first > 0 => return status(stream, 416),
        Some(first) => format!("206 X\r\nContent-Range: bytes {first}-{}/{}", bytes.len() - 1, bytes.len()),
        None => "200 X".to_owned(),
    };
    write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
    stream.write_all(&rest[..count.min(rest.len())])?;
    close(stream)
}

fn slow(stream: &mut Stream, bytes: &[u8]) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 200 X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", bytes.len())?;
    for piece in bytes.chunks(bytes.len() / 4 + 1) {
        stream.write_all(piece)?;
        stream.flush()?;
        thread::sleep(Duration::from_millis(300));
    }
    close(stream)
}

fn close(stream: &mut Stream) -> std::io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()?;
    stream.sock.shutdown(std::net::Shutdown::Write)
}

fn content() -> Vec<u8> {
    (0..300_000_u32).flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn a_download_that_is_cut_is_continued_where_it_ended() {
    let server = BadServer::with(&[("file", Behaviour::Cut(content(), 500_000))]);
    assert_eq!(server.download("file", &content()).unwrap(), content());
    let requests = server.requests();
    assert!(requests.len() >= 3, "{requests:?}");
    assert!(requests[1].starts_with("/files.test/file from "), "{requests:?}");
}

#[test]
fn a_download_continues_after_the_process_was_killed() {
    let server = BadServer::with(&[("file", Behaviour::Serve(content()))]);
    let partial = server.cache.path().join("downloads").join(digest::of_bytes(&content()).unwrap().as_str());
    std::fs::write(&partial, &content()[..1000]).unwrap();
    assert_eq!(server.download("file", &content()).unwrap(), content());
    assert_eq!(server.requests(), ["/files.test/file from 1000"]);
    // Complete, but not moved to its place yet.
    assert_eq!(server.download("file", &content()).unwrap(), content());
}

#[test]
fn a_server_that_never_sends_all_of_a_file_is_named_after_some_attempts() {
    let server = BadServer::with(&[("file", Behaviour::CutWithoutRanges(content(), 1000))]);
    let error = server.download("file", &content()).unwrap_err();
    assert!(matches!(error, PublishedError::Server { .. }), "{error:?}");
    assert!(error.to_string().contains("/files.test/file"), "{error}");
    assert!(server.requests().len() < 10);
}

#[test]
fn bytes_with_another_digest_are_refused_and_removed() {
    let server = BadServer::with(&[("file", Behaviour::Serve(b"not what was published".to_vec()))]);
    let error = server.download("file", &content()).unwrap_err();
    let (expected, found) =
        (digest::of_bytes(&content()).unwrap(), digest::of_bytes(b"not what was published").unwrap());
    let text = error.to_string();
    assert!(text.contains(expected.as_str()) && text.contains(found.as_str()), "{text}");
    assert_eq!(server.left(), 0, "nothing half-written stays");
}

#[test]
fn a_partial_file_with_other_bytes_does_not_stay() {
    let server = BadServer::with(&[("file", Behaviour::Serve(content()))]);
    let partial = server.cache.path().join("downloads").join(digest::of_bytes(&content()).unwrap().as_str());
    std::fs::write(&partial, b"damaged").unwrap();
    assert!(matches!(server.download("file", &content()), Err(PublishedError::WrongDigest { .. })));
    assert_eq!(
        server.download("file", &content()).unwrap(),
        content(),
        "the next run starts at the first byte"
    );
}

#[test]
fn a_file_that_is_too_large_is_refused_and_nothing_of_it_stays() {
    let announced = BadServer::with(&[("file", Behaviour::Announce((1 << 30) + 1))]);
    let error = announced.download("file", &content()).unwrap_err();
    assert!(error.to_string().ends_with("/files.test/file: the file is larger than 1024 MiB"), "{error}");
    assert_eq!((announced.requests().len(), announced.left()), (1, 0));
    let mut endless = BadServer::with(&[("file", Behaviour::Unannounced(vec![0; 3 << 20]))]);
    endless.server.file_limit = 1 << 20;
    let error = endless.download("file", &content()).unwrap_err();
    assert!(error.to_string().ends_with("the file is larger than 1 MiB"), "{error}");
    assert_eq!((endless.requests().len(), endless.left()), (1, 0));
}

#[test]
fn an_error_page_with_status_200_names_no_digest() {
    let page = b"<html><body>Not found</body></html>".to_vec();
    let server = BadServer::with(&[("file.sha256", Behaviour::Serve(page))]);
    let error = sums::published(&server.server, &url("file.sha256"), &url("file")).unwrap_err();
    assert_eq!(error.to_string(), "https://files.test/file.sha256 names no SHA-256 of file");
}

#[test]
fn a_file_that_does_not_exist_is_not_tried_again() {
    let server = BadServer::with(&[]);
    let error = server.download("file", b"").unwrap_err();
    assert!(error.to_string().ends_with("/files.test/file does not exist (HTTP 404)"), "{error}");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let server = BadServer::with(&[("file", Behaviour::Later(503, content()))]);
    assert_eq!(server.download("file", &content()).unwrap(), content());
    let down = BadServer::with(&[("file", Behaviour::Status(500))]);
    let error = down.download("file", &content()).unwrap_err();
    assert!(error.to_string().contains("500"), "{error}");
}

#[test]
fn redirects_are_followed_also_for_the_rest_of_a_file() {
    let server = BadServer::with(&[
        ("file", Behaviour::Redirect("/files.test/moved".to_owned())),
        ("moved", Behaviour::Cut(content(), 500_000)),
    ]);
    assert_eq!(server.download("file", &content()).unwrap(), content());
}

#[test]
fn a_slow_server_is_waited_for_and_progress_is_reported() {
    let server = BadServer::with(&[("file", Behaviour::Slow(content()))]);
    let seen = Mutex::new(Vec::new());
    let file = PublishedFile { url: url("file"), sha256: digest::of_bytes(&content()).unwrap() };
    server.server.download(&file, &|done, total| seen.lock().push((done, total))).unwrap();
    let seen = seen.lock();
    assert!(seen.iter().all(|(_, total)| *total == content().len() as u64), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0) && seen.len() >= 2, "{seen:?}");
}

#[test]
fn an_unknown_authority_and_an_address_without_tls_are_refused() {
    let server = BadServer::with(&[("file", Behaviour::Serve(content()))]);
    let cache = tempfile::tempdir().unwrap();
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let roots = RootCerts::Specific(Arc::new(vec![Certificate::from_der(stranger.cert.der()).to_owned()]));
    let mirror = server.server.address("https://").trim_end_matches('/').to_owned();
    let strange = Server::trusting(roots, Some(&mirror), cache.path()).unwrap();
    let file = PublishedFile { url: url("file"), sha256: digest::of_bytes(&content()).unwrap() };
    let error = strange.download(&file, &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    for address in ["http://mirror", "https://", "ftp://x"] {
        assert!(Server::new(Some(address), cache.path()).is_err(), "{address}");
    }
}

#[test]
fn the_layers_of_an_image_are_found_by_digest_for_the_architecture() {
    let manifest = |layer: &str| format!(r#"{{"layers":[{{"digest":"sha256:{}"}}]}}"#, layer.repeat(32));
    let (amd64, arm64) = (manifest("ab"), manifest("cd"));
    let of = |text: &str| digest::of_bytes(text.as_bytes()).unwrap();
    let entry = |arch: &str, text: &str| {
        format!(r#"{{"digest":"sha256:{}","platform":{{"os":"linux","architecture":"{arch}"}}}}"#, of(text))
    };
    let index = format!(r#"{{"manifests":[{},{}]}}"#, entry("amd64", &amd64), entry("arm64", &arm64));
    let address = |text: &str| format!("v2/pause/manifests/sha256:{}", of(text));
    let (right, wrong) = (address(&arm64), address(&amd64));
    let server = BadServer::with(&[
        ("v2/pause/manifests/3.10", Behaviour::Serve(index.into_bytes())),
        (right.as_str(), Behaviour::Serve(arm64.clone().into_bytes())),
        (wrong.as_str(), Behaviour::Serve(b"{}".to_vec())),
    ]);
    let layers = |arch| registry::layers(&server.server, &url("v2/pause/manifests/3.10"), arch);
    let found = layers(Arch::Arm64).unwrap();
    assert_eq!(found[0].url, url(&format!("v2/pause/blobs/sha256:{}", "cd".repeat(32))));
    assert!(matches!(layers(Arch::Amd64), Err(PublishedError::WrongDigest { .. })));
}

#[test]
fn programs_are_taken_out_of_archives_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("file.tgz");
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
        std::fs::File::create(&archive).unwrap(),
        flate2::Compression::fast(),
    ));
    for (name, bytes) in
        [("etcd-v3/etcd", &b"a program"[..]), ("etcd-v3/README.md", b"text"), ("etcdctl", b"another")]
    {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, bytes).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap();
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    unpack::programs(&archive, None, &["etcd", "etcdctl", "etcdutl"], &out).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["etcd", "etcdctl"]);
    unpack::programs(&archive, Some("runc"), &["runc"], &out).unwrap();
    assert_eq!(std::fs::read(out.join("runc")).unwrap(), std::fs::read(&archive).unwrap());
}
