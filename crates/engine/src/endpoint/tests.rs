//! Tests with TLS listeners on loopback addresses, whose certificates are signed by the authority of a test
//! cluster.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread;

use kubeon_pki::ClusterPki;
use kubeon_ports::Secrets as _;
use kubeon_wire::{Leaf, SecretRef, Usage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::output::SilentOutput;

/// A cluster whose masters `h1`, `h2`, … are at 127.N.0.1, 127.N.0.2, …, with its keys.
struct Fixture {
    spec: DesiredCluster,
    keys: ClusterPki,
    folder: tempfile::TempDir,
    port: u16,
}

impl Fixture {
    fn new(net: u8, masters: u8) -> Self {
        let addresses: Vec<_> = (1..=masters).map(|n| format!("127.{net}.0.{n}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let mut spec = kubeon_plan::sim::cluster(&addresses, &[]);
        for (n, host) in spec.masters.iter_mut().enumerate() {
            host.name = Some(format!("h{}", n + 1).parse().unwrap());
        }
        let folder = tempfile::tempdir().unwrap();
        let keys = ClusterPki::load_or_create(&folder.path().join("secret"), 1).unwrap();
        let port =
            TcpListener::bind((Ipv4Addr::new(127, net, 0, 99), 0)).unwrap().local_addr().unwrap().port();
        Self { spec, keys, folder, port }
    }

    fn address(&self, master: usize) -> Ipv4Addr {
        self.spec.masters[master - 1].address.ip()
    }

    fn authority(&self) -> String {
        self.keys
            .resolve(&SecretRef::CaCertificate { ca: kubeon_wire::CertificateAuthority::Kubernetes })
            .unwrap()
    }

    /// Starts master N: it answers with this status and has a certificate that `keys` issued.
    fn start_master(&self, master: usize, keys: &ClusterPki, status: &'static str) {
        let leaf = Leaf {
            ca: kubeon_wire::CertificateAuthority::Kubernetes,
            common_name: "kube-apiserver".to_owned(),
            organizations: Vec::new(),
            dns_names: Vec::new(),
            addresses: vec![self.address(master)],
            usage: Usage::Server,
            hours: 1,
        };
        let certificate = keys.resolve(&SecretRef::LeafCertificate(leaf.clone())).unwrap();
        let key = keys.resolve(&SecretRef::LeafKey(leaf)).unwrap();
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let (config, listener) = (Arc::new(config), self.listener(master));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let mut connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut socket = socket.unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut socket);
                // A client that does not trust the certificate disconnects here.
                let mut request = [0; 1024];
                if stream.read(&mut request).is_ok_and(|read| read > 0) {
                    let answer =
                        format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
    }

    fn listener(&self, master: usize) -> TcpListener {
        TcpListener::bind((self.address(master), self.port)).unwrap()
    }

    async fn found(&self, chosen: Option<&str>, hosts_file: &str) -> ApiEndpoint {
        let authority = self.authority();
        let hosts_file = HostsFile::at(self.folder.path().join(hosts_file));
        let search = EndpointSearch {
            hosts_file,
            port: self.port,
            ..EndpointSearch::new(&self.spec, &authority, chosen)
        };
        find(search, &SilentOutput).await
    }
}

/// A file in a missing folder: it cannot be written.
const UNWRITABLE: &str = "nowhere/hosts";

#[tokio::test(flavor = "multi_thread")]
async fn with_a_writable_hosts_file_one_name_covers_all_masters() {
    let fixture = Fixture::new(41, 3);
    let file = fixture.folder.path().join("hosts");
    std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
    let endpoint = fixture.found(None, "hosts").await;
    let url = format!("https://demo.{}:6443", fixture.spec.settings.api_domain);
    assert_eq!(endpoint, ApiEndpoint { url, master: None });
    let text = std::fs::read_to_string(&file).unwrap();
    assert!((1..=3).all(|n| text.contains(&format!("127.41.0.{n}\tdemo."))), "{text}");
    std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
    fixture.found(None, "hosts").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "a removed entry is written again");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_writable_hosts_file_a_ready_master_is_chosen() {
    let fixture = Fixture::new(42, 3);
    // The first master accepts connections and sends nothing; the second master does not listen.
    let _silent = fixture.listener(1);
    fixture.start_master(3, &fixture.keys, "200 OK");
    let begin = Instant::now();
    let endpoint = fixture.found(None, UNWRITABLE).await;
    assert_eq!(endpoint.master.as_deref(), Some("demo-h3"));
    assert_eq!(endpoint.url, "https://127.42.0.1:6443");
    assert!(
        begin.elapsed() < REQUEST_TIMEOUT,
        "{:?}: the search does not wait for silent masters",
        begin.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chosen_master_stays_chosen_while_it_is_ready() {
    let fixture = Fixture::new(43, 3);
    for master in 1..=3 {
        fixture.start_master(master, &fixture.keys, "200 OK");
    }
    for (chosen, stays) in [("demo-h2", "demo-h2"), ("demo", "demo-h1"), ("prod-h3", "demo-h1")] {
        assert_eq!(fixture.found(Some(chosen), UNWRITABLE).await.master.as_deref(), Some(stays), "{chosen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_that_are_not_ready_or_of_another_cluster_are_not_chosen() {
    let (fixture, other) = (Fixture::new(44, 2), Fixture::new(45, 1));
    fixture.start_master(1, &other.keys, "200 OK");
    fixture.start_master(2, &fixture.keys, "500 Internal Server Error");
    let begin = Instant::now();
    assert_eq!(fixture.found(None, UNWRITABLE).await.master, None);
    assert!(begin.elapsed() < REQUEST_TIMEOUT + PREFERRED_WAIT * 5, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_master_is_the_endpoint() {
    let fixture = Fixture::new(46, 1);
    let endpoint = fixture.found(None, UNWRITABLE).await;
    assert_eq!(endpoint, ApiEndpoint { url: "https://127.46.0.1:6443".to_owned(), master: None });
}

#[test]
fn a_kubeconfig_is_written_again_only_when_its_endpoint_differs() {
    let text =
        "clusters:\n- name: demo\n  cluster: {server: 'https://127.47.0.1:6443'}\ncurrent-context: demo\n";
    let config = Kubeconfig::parse(text).unwrap();
    let endpoint = ApiEndpoint { url: "https://127.47.0.1:6443".to_owned(), master: None };
    for choice in [ContextChoice::Current, ContextChoice::Cluster] {
        assert_eq!(redirected(&config, "demo", &endpoint, choice).unwrap(), None);
    }
    let ready = ApiEndpoint { master: Some("demo-h2".to_owned()), ..endpoint.clone() };
    let text = redirected(&config, "demo", &ready, ContextChoice::Current).unwrap().unwrap();
    let new = Kubeconfig::parse(&text).unwrap();
    assert_eq!(new.current(), Some("demo-h2"));
    assert_eq!(
        redirected(&new, "demo", &endpoint, ContextChoice::Current).unwrap(),
        None,
        "the user may have chosen the context"
    );
    let back = redirected(&new, "demo", &endpoint, ContextChoice::Cluster).unwrap().unwrap();
    assert_eq!(Kubeconfig::parse(&back).unwrap().current(), Some("demo"));
    let named = ApiEndpoint { url: "https://demo.api:6443".to_owned(), master: None };
    let text = redirected(&config, "demo", &named, ContextChoice::Current).unwrap().unwrap();
    assert_eq!(Kubeconfig::parse(&text).unwrap().server("demo"), Some("https://demo.api:6443"));
}
