//! Observes a business cluster with the kubeconfig of an observer.
//!
//! The tenant of the cluster may write that kubeconfig and controls the API server. So only embedded certificates, keys and
//! tokens are used (no program is started, no file read, no proxy asked), and an answer has a limit of time and size.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{ACCEPT, AUTHORIZATION, HOST};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use kube::config::{
    AuthInfo, Cluster, Config, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use kubeon_wire::{MasterReport, renewal_due};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::pem::parse_x509_pem;

/// The timeout for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// The timeout of one request, with its whole answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// The bytes of a client's buffer, and the most bytes of the headers of an answer.
const BUFFER: usize = 4 * 1024;
/// The most bytes of an answer. A node takes a few hundred.
const LARGEST_ANSWER: usize = 1024 * 1024;
/// The reports of the masters.
const REPORTS: &str = "/api/v1/namespaces/kube-system/configmaps/kubeon-masters";
/// The nodes as kubectl prints them, without the objects. The API server answers from its cache.
const NODES: &str = "/api/v1/nodes?resourceVersion=0&includeObject=None";
const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The only name in a kubeconfig that this module makes.
const NAME: &str = "observed";

/// Why a business cluster cannot be observed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObserverError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig of the observer cannot be used: {0}")]
    Kubeconfig(String),
    /// The API server does not answer, or is not ready.
    #[error("{server}: {why}")]
    Unreachable {
        /// The URL of the API server.
        server: String,
        /// The cause.
        why: String,
    },
    /// The API server refuses the credential.
    #[error("{server} refuses the credential of the observer: {status}")]
    Refused {
        /// The URL of the API server.
        server: String,
        /// The status of the answer.
        status: StatusCode,
    },
    /// The API server has a certificate that is not valid for the kubeconfig, such as one of another authority.
    #[error("{server} has a certificate that the kubeconfig of the observer does not accept: {why}")]
    Untrusted {
        /// The URL of the API server.
        server: String,
        /// What is wrong with the certificate.
        why: String,
    },
}

/// A node of a business cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Whether its kubelet reports that it is ready.
    pub is_ready: bool,
    /// The version of its kubelet, such as `v1.36.3`.
    pub version: String,
}

/// The kubeconfig of an observer, reduced to what may be used of it.
#[derive(Clone)]
pub struct ObserverKubeconfig {
    servers: Vec<String>,
    authority: String,
    user: AuthInfo,
}

impl ObserverKubeconfig {
    /// Reads a kubeconfig. All servers have the authority of the first one.
    ///
    /// # Errors
    /// When the text is not a kubeconfig, or has no server, embedded authority or embedded credential.
    pub fn parse(text: &str) -> Result<Self, ObserverError> {
        let unusable = |why: &str| ObserverError::Kubeconfig(why.to_owned());
        // The error of the parser may quote a key or a token.
        let all = Kubeconfig::from_yaml(text).map_err(|_| unusable("it is not a kubeconfig"))?;
        let clusters: Vec<Cluster> = all.clusters.into_iter().filter_map(|named| named.cluster).collect();
        let authority = clusters.iter().find_map(|cluster| cluster.certificate_authority_data.clone());
        let mut servers: Vec<String> = clusters.into_iter().filter_map(|cluster| cluster.server).collect();
        servers.sort();
        servers.dedup();
        let user = all.auth_infos.into_iter().find_map(|named| named.auth_info);
        let user = user.ok_or_else(|| unusable("it has no user"))?;
        let user = AuthInfo {
            client_certificate_data: user.client_certificate_data,
            client_key_data: user.client_key_data,
            token: user.token,
            ..AuthInfo::default()
        };
        if user.token.is_none() && (user.client_certificate_data.is_none() || user.client_key_data.is_none())
        {
            return Err(unusable("it has neither an embedded certificate with its key nor a token"));
        }
        if servers.is_empty() {
            return Err(unusable("it has no server"));
        }
        let authority = authority.ok_or_else(|| unusable("it has no embedded certificate authority"))?;
        Ok(Self { servers, authority, user })
    }

    /// The URLs of the API servers, sorted.
    #[must_use]
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// What a connection needs of the kubeconfig. It takes less memory than the texts. `server` is any of the API servers.
    ///
    /// # Errors
    /// When the URL, a certificate, the key or the token cannot be used.
    pub async fn credential(&self, server: &str) -> Result<ObserverCredential, ObserverError> {
        let config = self.config(server).await?;
        let tls = config.rustls_client_config();
        let mut tls = tls.map_err(|error| ObserverError::Kubeconfig(error.to_string()))?;
        // A connection is kept for days, so the memory for sessions would never be used.
        tls.resumption = Resumption::disabled();
        let (authorization, renewal_due) = (self.authorization()?, self.renewal_due());
        Ok(ObserverCredential { tls: Arc::new(tls), authorization, renewal_due })
    }

    /// When the certificate must be renewed, in seconds since 1970. A token has no certificate.
    fn renewal_due(&self) -> Option<i64> {
        let pem = STANDARD.decode(self.user.client_certificate_data.as_ref()?).ok()?;
        let (_, pem) = parse_x509_pem(&pem).ok()?;
        let certificate = pem.parse_x509().ok()?;
        let life = certificate.validity();
        Some(renewal_due(life.not_before.timestamp(), life.not_after.timestamp()))
    }

    /// A configuration with the authority and the certificate of the observer, for one server.
    async fn config(&self, server: &str) -> Result<Config, ObserverError> {
        let cluster = Cluster {
            server: Some(server.to_owned()),
            certificate_authority_data: Some(self.authority.clone()),
            ..Cluster::default()
        };
        let context = Context { cluster: NAME.to_owned(), user: Some(NAME.to_owned()), ..Context::default() };
        let (name, other) = (NAME.to_owned(), BTreeMap::new());
        let kubeconfig = Kubeconfig {
            clusters: vec![NamedCluster { name: name.clone(), cluster: Some(cluster), other: other.clone() }],
            auth_infos: vec![NamedAuthInfo {
                name: name.clone(),
                auth_info: Some(self.user.clone()),
                other: other.clone(),
            }],
            contexts: vec![NamedContext { name: name.clone(), context: Some(context), other }],
            current_context: Some(name),
            ..Kubeconfig::default()
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        config.map_err(|error| ObserverError::Kubeconfig(error.to_string()))
    }

    /// The header with the token, if the observer has one.
    fn authorization(&self) -> Result<Option<HeaderValue>, ObserverError> {
        let Some(token) = &self.user.token else { return Ok(None) };
        let header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
        let mut header = header.map_err(|error| ObserverError::Kubeconfig(error.to_string()))?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// The certificate or the token of an observer, and the authority of the API servers.
pub struct ObserverCredential {
    tls: Arc<ClientConfig>,
    authorization: Option<HeaderValue>,
    renewal_due: Option<i64>,
}

impl ObserverCredential {
    /// Whether the certificate must be renewed at `now`, in seconds since 1970. A token has no certificate.
    #[must_use]
    pub fn renewal_due(&self, now: i64) -> bool {
        self.renewal_due.is_some_and(|due| now >= due)
    }

    /// Connects to one of the API servers.
    ///
    /// # Errors
    /// When the URL cannot be used, the API server does not answer, or its certificate is not of the authority in the kubeconfig.
    pub async fn connect(&self, server: &str) -> Result<ObserverConnection, ObserverError> {
        let unusable = |why: String| ObserverError::Kubeconfig(why);
        let unreachable = |why: String| ObserverError::Unreachable { server: server.to_owned(), why };
        let tls = TlsConnector::from(Arc::clone(&self.tls));
        let place = ServerPlace::parse(server).ok_or_else(|| unusable(format!("{server} is no URL")))?;
        let ServerPlace { host, name, address } = place;
        let connected = async {
            let stream =
                TcpStream::connect(address).await.map_err(|error| unreachable(root_cause(&error)))?;
            tls.connect(name, stream).await.map_err(|error| handshake_error(server, &error))
        };
        let late = || unreachable(format!("no connection within {CONNECT_TIMEOUT:?}"));
        let stream = timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(|_| Err(late()))?;
        let server =
            ObservedServer { host, authorization: self.authorization.clone(), url: server.to_owned() };
        Ok(ObserverConnection { stream: Box::new(stream), server })
    }
}

/// What the requests to an API server need.
struct ObservedServer {
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    url: String,
}

/// One connection to an API server of a business cluster. An operator keeps one to each of many clusters, so it has no buffers of
/// HTTP, which take 22 KiB.
pub struct ObserverConnection {
    stream: Box<TlsStream<TcpStream>>,
    server: ObservedServer,
}

impl ObserverConnection {
    /// Begins to send requests.
    ///
    /// # Errors
    /// When the connection cannot be used any more.
    pub async fn into_client(self) -> Result<ObserverClient, ObserverError> {
        let Self { stream, server } = self;
        let mut http = Builder::new();
        http.read_buf_exact_size(Some(BUFFER));
        match http.handshake(TokioIo::new(stream)).await {
            Ok((sender, connection)) => Ok(ObserverClient { sender, connection, server }),
            Err(error) => Err(ObserverError::Unreachable { server: server.url, why: root_cause(&error) }),
        }
    }
}

/// Sends requests over one connection.
pub struct ObserverClient {
    sender: SendRequest<Empty<Bytes>>,
    connection: Connection<TokioIo<Box<TlsStream<TcpStream>>>, Empty<Bytes>>,
    server: ObservedServer,
}

impl ObserverClient {
    /// The connection without the buffers of HTTP; `None` if the server sent more than its answers. Every answer was read.
    #[must_use]
    pub fn into_connection(self) -> Option<ObserverConnection> {
        let parts = self.connection.into_parts();
        let stream = parts.io.into_inner();
        parts.read_buf.is_empty().then_some(ObserverConnection { stream, server: self.server })
    }

    /// Checks that the API server is ready.
    ///
    /// # Errors
    /// When it does not answer, is not ready, or refuses the credential.
    pub async fn check_ready(&mut self) -> Result<(), ObserverError> {
        match self.get("/readyz", "*/*").await? {
            Some(_) => Ok(()),
            None => Err(self.unreachable("/readyz does not exist".to_owned())),
        }
    }

    /// The nodes of the cluster, sorted by name.
    ///
    /// # Errors
    /// When the API server does not answer, refuses the credential, or sends too much.
    pub async fn nodes(&mut self) -> Result<Vec<ObservedNode>, ObserverError> {
        let body = self.get(NODES, TABLE).await?.unwrap_or_default();
        observed_nodes(&body).map_err(|why| self.unreachable(why))
    }

    /// The reports of the masters, by node. None before the first one was written. A report that cannot be read is left out.
    ///
    /// # Errors
    /// When the API server does not answer, refuses the credential, or sends too much.
    pub async fn master_reports(&mut self) -> Result<BTreeMap<String, MasterReport>, ObserverError> {
        let body = self.get(REPORTS, JSON).await?;
        Ok(reports_of_masters(&body.unwrap_or_default()))
    }

    /// The body of an answer; `None` when the object does not exist.
    async fn get(
        &mut self,
        path: &'static str,
        accept: &'static str,
    ) -> Result<Option<Vec<u8>>, ObserverError> {
        let mut request = Request::get(path).header(HOST, &self.server.host).header(ACCEPT, accept);
        if let Some(authorization) = &self.server.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new());
        let request = request.map_err(|error| ObserverError::Kubeconfig(error.to_string()))?;
        let late = || format!("no answer within {REQUEST_TIMEOUT:?}");
        let (sender, connection) = (&mut self.sender, &mut self.connection);
        let answer = timeout(REQUEST_TIMEOUT, answer_over(connection, answer_of(sender, request))).await;
        let (status, body) = answer.unwrap_or_else(|_| Err(late())).map_err(|why| self.unreachable(why))?;
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(ObserverError::Refused { server: self.server.url.clone(), status })
            }
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(body)),
            status => Err(self.unreachable(format!("{path} answers {status}"))),
        }
    }

    fn unreachable(&self, why: String) -> ObserverError {
        ObserverError::Unreachable { server: self.server.url.clone(), why }
    }
}

/// Drives the connection until it has the answer.
async fn answer_over<A>(
    connection: impl Future<Output = hyper::Result<()>>,
    answer: impl Future<Output = Result<A, String>>,
) -> Result<A, String> {
    tokio::select! {
        // The error of a connection that ended is also the error of the answer.
        biased;
        answer = answer => answer,
        ended = connection => Err(ended.err().map_or_else(
            || "the connection was closed".to_owned(),
            |error| root_cause(&error),
        )),
    }
}

/// Sends a request when the connection is free, and reads the whole answer.
async fn answer_of(
    sender: &mut SendRequest<Empty<Bytes>>,
    request: Request<Empty<Bytes>>,
) -> Result<(StatusCode, Vec<u8>), String> {
    sender.ready().await.map_err(|error| root_cause(&error))?;
    let answer: Response<Incoming> =
        sender.send_request(request).await.map_err(|error| root_cause(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    Ok((status, body.map_err(|error| root_cause(error.as_ref()))?.to_bytes().to_vec()))
}

/// Where a server is.
struct ServerPlace {
    /// Host and port, for the header `Host`.
    host: HeaderValue,
    /// The name in its certificate.
    name: ServerName<'static>,
    address: (String, u16),
}

impl ServerPlace {
    /// The place in a URL such as `https://10.0.0.1:6443`.
    fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let host = uri.authority()?.as_str().parse().ok()?;
        let name = ServerName::try_from(uri.host()?.to_owned()).ok()?;
        Some(Self { host, name, address: (uri.host()?.to_owned(), uri.port_u16().unwrap_or(443)) })
    }
}

/// The error of a TLS handshake. A server whose certificate is not accepted does answer.
fn handshake_error(server: &str, error: &io::Error) -> ObserverError {
    let (server, why) = (server.to_owned(), root_cause(error));
    // The source of an `io::Error` is the source of what it contains, not what it contains.
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(_)) = tls {
        return ObserverError::Untrusted { server, why };
    }
    ObserverError::Unreachable { server, why }
}

/// The text of the innermost error, such as "Connection refused".
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The nodes in the table of an answer, sorted by name.
///
/// # Errors
/// When the answer is no table of nodes; the text is the cause.
pub fn observed_nodes(answer: &[u8]) -> Result<Vec<ObservedNode>, String> {
    let table: NodeTable = serde_json::from_slice(answer).map_err(|error| error.to_string())?;
    let mut nodes = table.nodes().ok_or_else(|| "the answer has no nodes".to_owned())?;
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(nodes)
}

/// The reports of the masters in the ConfigMap of an answer, by node. What cannot be read is left out.
#[must_use]
pub fn reports_of_masters(answer: &[u8]) -> BTreeMap<String, MasterReport> {
    let map: ReportMap = serde_json::from_slice(answer).unwrap_or_default();
    let read = |(node, text): (String, String)| Some((node, serde_json::from_str(&text).ok()?));
    map.data.into_iter().filter_map(read).collect()
}

/// The part of a ConfigMap that is read.
#[derive(Default, Deserialize)]
struct ReportMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// The part of a `Table` that is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeTable {
    column_definitions: Vec<Column>,
    #[serde(default)]
    rows: Option<Vec<Row>>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
}

impl NodeTable {
    /// The nodes; `None` when a column is missing.
    fn nodes(&self) -> Option<Vec<ObservedNode>> {
        let column = |name: &str| self.column_definitions.iter().position(|column| column.name == name);
        let (name, status, version) = (column("Name")?, column("Status")?, column("Version")?);
        let node = |row: &Row| {
            let text = |at: usize| row.cells.get(at).and_then(Value::as_str);
            // Such as `Ready,SchedulingDisabled`.
            let is_ready = text(status)?.split(',').next() == Some("Ready");
            Some(ObservedNode { name: text(name)?.to_owned(), is_ready, version: text(version)?.to_owned() })
        };
        self.rows.iter().flatten().map(node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str) -> String {
        format!(
            "clusters:\n- name: a\n  cluster: {{server: 'https://10.0.0.2:6443', certificate-authority-data: YQ==}}\n\
             - name: b\n  cluster: {{server: 'https://10.0.0.1:6443', certificate-authority-data: YQ==}}\n\
             users:\n- name: u\n  user: {user}\n"
        )
    }

    #[test]
    fn only_embedded_credentials_are_used() {
        let good =
            kubeconfig("{client-certificate-data: YQ==, client-key-data: YQ==, exec: {command: /bin/sh}}");
        let read = ObserverKubeconfig::parse(&good).unwrap();
        assert_eq!(read.servers(), ["https://10.0.0.1:6443", "https://10.0.0.2:6443"]);
        assert!(read.user.exec.is_none(), "no program is started");
        for (user, why) in [
            (
                "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}}",
                "neither an embedded",
            ),
            ("{tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}", "neither an embedded"),
            ("{client-certificate: /etc/passwd, client-key: /etc/passwd}", "neither an embedded"),
            ("{client-certificate-data: YQ==}", "neither an embedded"),
        ] {
            let error = ObserverKubeconfig::parse(&kubeconfig(user)).err().unwrap().to_string();
            assert!(error.contains(why), "{user}: {error}");
        }
        let quoted = "users: [{name: u, user: my-secret}]";
        let error = ObserverKubeconfig::parse(quoted).err().unwrap().to_string();
        assert!(error.contains("it is not a kubeconfig") && !error.contains("my-secret"), "{error}");
        for (text, why) in [("users: []", "no user"), ("[", "not a kubeconfig"), ("", "no user")] {
            let error = ObserverKubeconfig::parse(text).err().unwrap().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let file = kubeconfig("{token: t}")
            .replace("certificate-authority-data: YQ==", "certificate-authority: /ca");
        assert!(
            ObserverKubeconfig::parse(&file).err().unwrap().to_string().contains("no embedded certificate")
        );
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life() {
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 31);
        let pem = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
        let user = format!("{{client-certificate-data: {}, client-key-data: YQ==}}", STANDARD.encode(pem));
        let read = ObserverKubeconfig::parse(&kubeconfig(&user)).unwrap();
        // The 20th of January 2026.
        let due = 1_767_225_600 + 20 * 86_400;
        assert_eq!(read.renewal_due(), Some(due));
        let token = ObserverKubeconfig::parse(&kubeconfig("{token: t}")).unwrap();
        assert_eq!(token.renewal_due(), None);
    }

    #[test]
    fn a_server_of_another_authority_is_not_one_that_does_not_answer() {
        let of = |error: rustls::Error| {
            handshake_error("https://10.0.0.1:6443", &io::Error::new(io::ErrorKind::InvalidData, error))
        };
        let foreign = of(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        assert!(matches!(foreign, ObserverError::Untrusted { .. }), "{foreign:?}");
        let text = foreign.to_string();
        assert!(text.contains("10.0.0.1") && text.contains("UnknownIssuer"), "{text}");
        let other = of(rustls::Error::HandshakeNotComplete);
        assert!(matches!(other, ObserverError::Unreachable { .. }), "{other:?}");
        let eof = handshake_error("s", &io::Error::from(io::ErrorKind::UnexpectedEof));
        assert!(matches!(eof, ObserverError::Unreachable { .. }), "{eof:?}");
    }

    #[test]
    fn nodes_are_read_from_the_table_of_kubectl() {
        let table = |rows: &str| {
            let columns = r#"[{"name": "Name"}, {"name": "Status"}, {"name": "Roles"}, {"name": "Version"}]"#;
            serde_json::from_str::<NodeTable>(&format!(
                r#"{{"columnDefinitions": {columns}, "rows": {rows}}}"#
            ))
        };
        let rows = r#"[{"cells": ["h1", "Ready", "", "v1.36.3"]}, {"cells": ["h2", "NotReady", "", "v1.36.3"]},
            {"cells": ["h3", "Ready,SchedulingDisabled", "", "v1.36.3"]}, {"cells": ["h4", "Unknown", "", "v1.35.4"]}]"#;
        let nodes = table(rows).unwrap().nodes().unwrap();
        assert_eq!(nodes[3].version, "v1.35.4");
        let ready: Vec<bool> = nodes.iter().map(|node| node.is_ready).collect();
        assert_eq!(ready, [true, false, true, false]);
        assert_eq!(table("null").unwrap().nodes(), Some(Vec::new()));
        assert_eq!(table(r#"[{"cells": [1]}]"#).unwrap().nodes(), None, "not the table of nodes");
    }
}
