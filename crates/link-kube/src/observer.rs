//! Observes a business cluster with the kubeconfig of an observer.
//!
//! The tenant of the cluster may write that kubeconfig and controls the API server. So only embedded certificates, keys and
//! tokens are used (no program is started, no file read, no proxy asked), and an answer has a limit of time and size.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::config::{
    AuthInfo, Cluster, Config, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::build;

/// The timeout of one request, with its whole answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// The most bytes of an answer. A node takes a few hundred.
const LARGEST_ANSWER: usize = 4 * 1024 * 1024;
/// The nodes as kubectl prints them, without the objects. The API server answers from its cache.
const NODES: &str = "/api/v1/nodes?resourceVersion=0&includeObject=None";
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
        status: http::StatusCode,
    },
}

/// A node of a business cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNode {
    /// Its name.
    pub name: String,
    /// Whether its kubelet reports that it is ready.
    pub is_ready: bool,
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
        let all =
            Kubeconfig::from_yaml(text).map_err(|error| ObserverError::Kubeconfig(error.to_string()))?;
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

    /// A client of one of the API servers. It connects with the first request.
    ///
    /// # Errors
    /// When the URL, a certificate or the key cannot be used.
    pub async fn client(&self, server: &str) -> Result<ObserverClient, ObserverError> {
        let unusable = |error: String| ObserverError::Kubeconfig(error);
        let cluster = Cluster {
            server: Some(server.to_owned()),
            certificate_authority_data: Some(self.authority.clone()),
            ..Cluster::default()
        };
        let context = Context { cluster: NAME.to_owned(), user: Some(NAME.to_owned()), ..Context::default() };
        let (name, other) = (NAME.to_owned(), std::collections::BTreeMap::new());
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
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(|error| unusable(error.to_string()))?;
        let client = build(config, REQUEST_TIMEOUT).map_err(|error| unusable(error.to_string()))?;
        Ok(ObserverClient { client, server: server.to_owned() })
    }
}

/// A connection to one API server of a business cluster.
pub struct ObserverClient {
    client: kube::Client,
    server: String,
}

impl ObserverClient {
    /// The URL of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Checks that the API server is ready.
    ///
    /// # Errors
    /// When it does not answer, is not ready, or refuses the credential.
    pub async fn check_ready(&self) -> Result<(), ObserverError> {
        self.get("/readyz", "*/*").await.map(|_| ())
    }

    /// The nodes of the cluster, sorted by name.
    ///
    /// # Errors
    /// When the API server does not answer, refuses the credential, or sends too much.
    pub async fn nodes(&self) -> Result<Vec<ObservedNode>, ObserverError> {
        let body = self.get(NODES, TABLE).await?;
        let table: NodeTable =
            serde_json::from_slice(&body).map_err(|error| self.unreachable(error.to_string()))?;
        let mut nodes =
            table.nodes().ok_or_else(|| self.unreachable("the answer has no nodes".to_owned()))?;
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(nodes)
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Vec<u8>, ObserverError> {
        let request = Request::get(path)
            .header(http::header::ACCEPT, accept)
            .body(Body::empty())
            .map_err(|error| ObserverError::Kubeconfig(error.to_string()))?;
        let answer = async {
            let answer =
                self.client.send(request).await.map_err(|error| self.unreachable(root_cause(&error)))?;
            let status = answer.status();
            if [http::StatusCode::UNAUTHORIZED, http::StatusCode::FORBIDDEN].contains(&status) {
                return Err(ObserverError::Refused { server: self.server.clone(), status });
            }
            if !status.is_success() {
                return Err(self.unreachable(format!("{path} answers {status}")));
            }
            let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
            body.map(|body| body.to_bytes().to_vec())
                .map_err(|error| self.unreachable(root_cause(error.as_ref())))
        };
        let late = || self.unreachable(format!("no answer within {REQUEST_TIMEOUT:?}"));
        timeout(REQUEST_TIMEOUT, answer).await.unwrap_or_else(|_| Err(late()))
    }

    fn unreachable(&self, why: String) -> ObserverError {
        ObserverError::Unreachable { server: self.server.clone(), why }
    }
}

/// The text of the innermost error, such as "Connection refused".
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
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
        let (name, status) = (column("Name")?, column("Status")?);
        let node = |row: &Row| {
            let text = |at: usize| row.cells.get(at).and_then(Value::as_str);
            // Such as `Ready,SchedulingDisabled`.
            let is_ready = text(status)?.split(',').next() == Some("Ready");
            Some(ObservedNode { name: text(name)?.to_owned(), is_ready })
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
        for (text, why) in [("users: []", "no user"), ("[", "kubeconfig"), ("", "no user")] {
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
    fn nodes_are_read_from_the_table_of_kubectl() {
        let table = |rows: &str| {
            let columns = r#"[{"name": "Name"}, {"name": "Status"}, {"name": "Roles"}]"#;
            serde_json::from_str::<NodeTable>(&format!(
                r#"{{"columnDefinitions": {columns}, "rows": {rows}}}"#
            ))
        };
        let rows = r#"[{"cells": ["h1", "Ready", ""]}, {"cells": ["h2", "NotReady", ""]},
            {"cells": ["h3", "Ready,SchedulingDisabled", ""]}, {"cells": ["h4", "Unknown", ""]}]"#;
        let ready: Vec<bool> =
            table(rows).unwrap().nodes().unwrap().iter().map(|node| node.is_ready).collect();
        assert_eq!(ready, [true, false, true, false]);
        assert_eq!(table("null").unwrap().nodes(), Some(Vec::new()));
        assert_eq!(table(r#"[{"cells": [1]}]"#).unwrap().nodes(), None, "not the table of nodes");
    }
}
