//! The admission webhook. Every replica answers reviews, not only the leader.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kubeon_admission::{
    AddressBook, CertificateSource, CertificateStore, Readiness, ServeOptions, WebhookClients, WebhookServer,
    follow,
};
use kubeon_api::Version;
use kubeon_link_kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long open admission reviews may take when the process shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);

/// The options of the admission webhook.
#[derive(Debug, Clone)]
pub struct Admission {
    /// The address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Additional names of the webhook for its certificate.
    pub names: Vec<String>,
    /// Versions that clusters may use, oldest first.
    pub versions: Vec<Version>,
    /// Whether only API servers with their client certificate get answers.
    pub only_api_servers: bool,
}

/// The running webhook.
pub(crate) struct RunningWebhook {
    /// For `/readyz`.
    pub readiness: Readiness,
    server: JoinHandle<()>,
}

/// Starts the webhook, which runs until `end` becomes true. `leads`: whether this replica manages the
/// webhook's configuration.
pub(crate) async fn start(
    options: Admission,
    client: &Client,
    namespace: &str,
    leads: watch::Receiver<bool>,
    end: watch::Receiver<bool>,
) -> anyhow::Result<RunningWebhook> {
    let book = Arc::new(AddressBook::new(options.versions));
    let store = CertificateStore {
        client: client.clone(),
        namespace: namespace.to_owned(),
        leads,
        names: options.names,
    };
    let server = WebhookServer::bind(ServeOptions {
        address: options.address,
        certificate: CertificateSource::Stored(store),
        clients: if options.only_api_servers {
            WebhookClients::ApiServers(client.clone())
        } else {
            WebhookClients::Everybody
        },
        lookup: book.clone(),
    });
    let server = server.await.context("answering admission reviews")?;
    let readiness = server.readiness();
    let (client, ended) = (client.clone(), wait_until_true(end.clone()));
    tokio::spawn(async move { follow(client, &book, ended).await });
    Ok(RunningWebhook { readiness, server: tokio::spawn(server.run(wait_until_true(end))) })
}

impl RunningWebhook {
    /// Waits for the running reviews.
    pub(crate) async fn shutdown(self) {
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.server).await.is_err() {
            tracing::warn!("running reviews did not end before the timeout of the shutdown");
        }
    }
}

async fn wait_until_true(mut end: watch::Receiver<bool>) {
    // An error means that the sender was dropped, which also ends the wait.
    drop(end.wait_for(|end| *end).await);
}
