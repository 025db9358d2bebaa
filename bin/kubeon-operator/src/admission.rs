//! Admission beside the work: every replica answers, whether it leads or not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kubeon_admission::{
    AddressBook, CertificateSource, Keeping, Readiness, ServeOptions, WebhookServer, follow,
};
use kubeon_api::Version;
use kubeon_link_kube::Client;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long open admission reviews may take when the process shuts down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(6);

/// Where admission reviews are answered, and from what.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Where it listens; port 0 takes any.
    pub address: SocketAddr,
    /// Further names of that place for its certificate.
    pub names: Vec<String>,
    /// Versions that clusters may name, oldest first.
    pub versions: Vec<Version>,
}

/// Admission at work.
pub(crate) struct Answering {
    /// For `/readyz`.
    pub readiness: Readiness,
    server: JoinHandle<()>,
}

/// Begins to answer, until `end` becomes true. `leads` says whether this replica keeps the webhook's configuration.
pub(crate) async fn start(
    asked: Admission,
    client: &Client,
    namespace: &str,
    leads: watch::Receiver<bool>,
    end: watch::Receiver<bool>,
) -> anyhow::Result<Answering> {
    let book = Arc::new(AddressBook::new(asked.versions));
    let keeping =
        Keeping { client: client.clone(), namespace: namespace.to_owned(), leads, names: asked.names };
    let server = WebhookServer::bind(ServeOptions {
        address: asked.address,
        certificate: CertificateSource::Kept(keeping),
        lookup: book.clone(),
    });
    let server = server.await.context("answering admission reviews")?;
    let readiness = server.readiness();
    let (client, ended) = (client.clone(), until(end.clone()));
    tokio::spawn(async move { follow(client, &book, ended).await });
    Ok(Answering { readiness, server: tokio::spawn(server.run(until(end))) })
}

impl Answering {
    /// Waits until what is being answered is answered.
    pub(crate) async fn shutdown(self) {
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.server).await.is_err() {
            tracing::warn!("a review took too long to end with the process");
        }
    }
}

async fn until(mut end: watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end too.
    drop(end.wait_for(|end| *end).await);
}
