//! Against listeners that speak TLS with certificates of a cluster's own authority, at addresses of the loopback.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::thread;

use kubeon_pki::ClusterPki;
use kubeon_ports::Secrets as _;
use kubeon_wire::{Leaf, SecretRef, Usage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::output::SilentOutput;

/// A cluster whose masters `h1`, `h2`, … are at 127.N.0.1, 127.N.0.2, …, with its keys.
struct Ground {
    spec: DesiredCluster,
    keys: ClusterPki,
    folder: tempfile::TempDir,
    port: u16,
}

impl Ground {
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

    /// Master N answers with this status, under a certificate for its address that `keys` issued.
    fn answers(&self, master: usize, keys: &ClusterPki, status: &'static str) {
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
                // A client that does not trust the certificate goes away here.
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
        let asking = EndpointSearch {
            hosts_file,
            port: self.port,
            ..EndpointSearch::about(&self.spec, &authority, chosen)
        };
        find(asking, &SilentOutput).await
    }
}

/// No such folder: it cannot be written.
const UNWRITABLE: &str = "nowhere/hosts";

#[tokio::test(flavor = "multi_thread")]
async fn a_hosts_file_that_may_be_written_gives_one_name_for_all_masters() {
    let ground = Ground::new(41, 3);
    let file = ground.folder.path().join("hosts");
    std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
    let endpoint = ground.found(None, "hosts").await;
    let url = format!("https://demo.{}:6443", ground.spec.settings.api_domain);
    assert_eq!(endpoint, ApiEndpoint { url, master: None });
    let text = std::fs::read_to_string(&file).unwrap();
    assert!((1..=3).all(|n| text.contains(&format!("127.41.0.{n}\tdemo."))), "{text}");
    std::fs::write(&file, "127.0.0.1 localhost\n").unwrap();
    ground.found(None, "hosts").await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "what somebody took out is put back");
}

#[tokio::test(flavor = "multi_thread")]
async fn else_a_master_is_chosen_that_lives() {
    let ground = Ground::new(42, 3);
    // The first one takes connections and says nothing; the second one is not there.
    let _silent = ground.listener(1);
    ground.answers(3, &ground.keys, "200 OK");
    let begin = Instant::now();
    let endpoint = ground.found(None, UNWRITABLE).await;
    assert_eq!(endpoint.master.as_deref(), Some("demo-h3"));
    assert_eq!(endpoint.url, "https://127.42.0.1:6443");
    assert!(begin.elapsed() < ASK, "{:?}: nobody waits for the dead", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_is_chosen_stays_so_while_it_lives() {
    let ground = Ground::new(43, 3);
    for master in 1..=3 {
        ground.answers(master, &ground.keys, "200 OK");
    }
    for (chosen, stays) in [("demo-h2", "demo-h2"), ("demo", "demo-h1"), ("prod-h3", "demo-h1")] {
        assert_eq!(ground.found(Some(chosen), UNWRITABLE).await.master.as_deref(), Some(stays), "{chosen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_ready_or_not_of_the_cluster_is_not_chosen() {
    let (ground, other) = (Ground::new(44, 2), Ground::new(45, 1));
    ground.answers(1, &other.keys, "200 OK");
    ground.answers(2, &ground.keys, "500 Internal Server Error");
    let begin = Instant::now();
    assert_eq!(ground.found(None, UNWRITABLE).await.master, None);
    assert!(begin.elapsed() < ASK + PREFERRED_WAIT * 5, "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_master_is_the_only_way() {
    let ground = Ground::new(46, 1);
    let endpoint = ground.found(None, UNWRITABLE).await;
    assert_eq!(endpoint, ApiEndpoint { url: "https://127.46.0.1:6443".to_owned(), master: None });
}

#[test]
fn a_kubeconfig_is_written_again_only_when_its_endpoint_differs() {
    let text =
        "clusters:\n- name: demo\n  cluster: {server: 'https://127.47.0.1:6443'}\ncurrent-context: demo\n";
    let config = Kubeconfig::parse(text).unwrap();
    let endpoint = ApiEndpoint { url: "https://127.47.0.1:6443".to_owned(), master: None };
    for choice in [ContextChoice::Kept, ContextChoice::Cluster] {
        assert_eq!(redirected(&config, "demo", &endpoint, choice).unwrap(), None);
    }
    let living = ApiEndpoint { master: Some("demo-h2".to_owned()), ..endpoint.clone() };
    let text = redirected(&config, "demo", &living, ContextChoice::Kept).unwrap().unwrap();
    let new = Kubeconfig::parse(&text).unwrap();
    assert_eq!(new.current(), Some("demo-h2"));
    assert_eq!(
        redirected(&new, "demo", &endpoint, ContextChoice::Kept).unwrap(),
        None,
        "a person may have chosen it"
    );
    let back = redirected(&new, "demo", &endpoint, ContextChoice::Cluster).unwrap().unwrap();
    assert_eq!(Kubeconfig::parse(&back).unwrap().current(), Some("demo"));
    let named = ApiEndpoint { url: "https://demo.api:6443".to_owned(), master: None };
    let text = redirected(&config, "demo", &named, ContextChoice::Kept).unwrap().unwrap();
    assert_eq!(Kubeconfig::parse(&text).unwrap().server("demo"), Some("https://demo.api:6443"));
}
