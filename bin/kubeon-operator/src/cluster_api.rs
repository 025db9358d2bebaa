//! The API servers of one business cluster.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use futures::future::select_ok;
use kubeon_api::kubernetes_cluster::DeclaredCluster;
use kubeon_link_kube::{ObservedNode, ObserverClient, ObserverError, ObserverKubeconfig};
use kubeon_operations::ObservedHealth;

/// Why the health is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HealthError {
    /// No API server answers.
    Unreachable(String),
    /// The credential cannot be used.
    Unusable(String),
    /// The runner has not written the credential yet.
    NoCredential,
}

impl From<ObserverError> for HealthError {
    fn from(error: ObserverError) -> Self {
        match &error {
            ObserverError::Unreachable { .. } => Self::Unreachable(error.to_string()),
            ObserverError::Kubeconfig(_) | ObserverError::Refused { .. } => Self::Unusable(error.to_string()),
        }
    }
}

/// The API servers of a business cluster, with a connection to the one that answered last.
pub(crate) struct ClusterApi {
    kubeconfig: ObserverKubeconfig,
    servers: Vec<String>,
    client: Option<ObserverClient>,
    version: u64,
}

impl ClusterApi {
    /// The API servers in a kubeconfig that are masters of the declared cluster. The tenant may write the kubeconfig, and must
    /// not learn by it which other addresses answer.
    pub(crate) fn new(text: &str, declared: &DeclaredCluster, version: u64) -> Result<Self, HealthError> {
        let kubeconfig = ObserverKubeconfig::parse(text)?;
        let masters: HashSet<Ipv4Addr> = declared
            .master_list
            .iter()
            .flat_map(|master| [Some(master.ip), master.internal_address])
            .flatten()
            .map(|address| address.ip())
            .collect();
        let is_master =
            |server: &&String| address_in(server).is_some_and(|address| masters.contains(&address));
        let servers: Vec<String> = kubeconfig.servers().iter().filter(is_master).cloned().collect();
        if servers.is_empty() {
            let why = "no server in the kubeconfig of the observer is a master of the cluster";
            return Err(HealthError::Unusable(why.to_owned()));
        }
        Ok(Self { kubeconfig, servers, client: None, version })
    }

    /// The version of the Secret with the kubeconfig.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The health of the cluster: one server is asked; when it does not answer, all are.
    pub(crate) async fn health(&mut self) -> Result<ObservedHealth, HealthError> {
        let client = match self.client.take() {
            Some(client) if client.check_ready().await.is_ok() => client,
            _ => self.first_ready().await?,
        };
        let nodes = client.nodes().await?;
        self.client = Some(client);
        Ok(health_of(nodes))
    }

    /// The server that answers first.
    async fn first_ready(&self) -> Result<ObserverClient, HealthError> {
        let attempts = self.servers.iter().map(|server| {
            Box::pin(async move {
                let client = self.kubeconfig.client(server).await?;
                client.check_ready().await?;
                Ok::<_, ObserverError>(client)
            })
        });
        let (client, _) = select_ok(attempts).await?;
        Ok(client)
    }
}

fn health_of(nodes: Vec<ObservedNode>) -> ObservedHealth {
    let all = nodes.len();
    let not_ready = nodes.into_iter().filter(|node| !node.is_ready).map(|node| node.name).collect();
    ObservedHealth::Serving { nodes: all, not_ready }
}

/// The IPv4 address in a URL such as `https://10.0.0.1:6443`.
fn address_in(server: &str) -> Option<Ipv4Addr> {
    let authority = server.strip_prefix("https://")?;
    let (address, port) = authority.split_once(':')?;
    port.parse::<u16>().ok()?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> DeclaredCluster {
        let masters =
            serde_json::json!({"masterList": [{"ip": "10.0.0.1", "internalAddress": "192.168.0.1"}]});
        serde_json::from_value(masters).unwrap()
    }

    fn api(servers: &[&str]) -> Result<ClusterApi, HealthError> {
        let mut text = "users:\n- name: u\n  user: {token: t}\nclusters:\n".to_owned();
        for server in servers {
            text.push_str(&format!(
                "- name: c\n  cluster: {{server: '{server}', certificate-authority-data: YQ==}}\n"
            ));
        }
        ClusterApi::new(&text, &declared(), 7)
    }

    #[test]
    fn only_masters_of_the_declared_cluster_are_asked() {
        let api_of_masters = api(&[
            "https://10.0.0.1:6443",
            "https://192.168.0.1:6443",
            "https://169.254.169.254:80",
            "https://10.0.0.9:6443",
        ]);
        assert_eq!(api_of_masters.unwrap().servers, ["https://10.0.0.1:6443", "https://192.168.0.1:6443"]);
        for foreign in [
            "https://10.0.0.9:6443",
            "http://10.0.0.1:6443",
            "https://10.0.0.1:6443/x",
            "https://10.0.0.1:6443@10.0.0.9:1",
        ] {
            assert!(matches!(api(&[foreign]), Err(HealthError::Unusable(_))), "{foreign}");
        }
    }

    #[test]
    fn nodes_that_are_not_ready_are_named() {
        let node = |name: &str, is_ready| ObservedNode { name: name.to_owned(), is_ready };
        let health = health_of(vec![node("a", true), node("b", false)]);
        assert_eq!(health, ObservedHealth::Serving { nodes: 2, not_ready: vec!["b".to_owned()] });
    }
}
