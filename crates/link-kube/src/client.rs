//! The way to an API server.

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::client::{ClientBuilder, DynBody};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use tower::BoxError;
use tower::util::MapFutureLayer;

/// Why no API server can be reached.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is no kubeconfig.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The reader's error.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// Neither a service account nor a kubeconfig is there.
    #[error("finding out how to reach the API server: no service account, no kubeconfig")]
    Infer(#[source] kube::config::InferConfigError),
    /// No client can be made of the configuration.
    #[error("making a client of the configuration")]
    Build(#[source] kube::Error),
}

/// How long the beginning of an answer is waited for, where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A client by this kubeconfig, else by the pod's service account, else by `$KUBECONFIG` or `~/.kube/config`. It waits for
/// the beginning of an answer for 15 s, also for that of a list or a watch.
///
/// # Errors
/// When none of them is there, or the one that is cannot be used.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Client, ConnectError> {
    connect_within(kubeconfig, TIMEOUT).await
}

/// The same, with another time for the beginning of an answer.
///
/// # Errors
/// As [`connect`].
pub async fn connect_within(
    kubeconfig: Option<&Path>,
    timeout: Duration,
) -> Result<kube::Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let fail = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
            let read = Kubeconfig::read_from(path).map_err(fail)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(fail)?
        }
        None => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    // A watch whose answer has begun is quiet for minutes.
    config.read_timeout = Some(Duration::from_secs(300));
    config.write_timeout = Some(Duration::from_secs(10));
    let builder = ClientBuilder::try_from(config).map_err(ConnectError::Build)?;
    let bounded = MapFutureLayer::new(move |answer: Answer| within(timeout, answer));
    Ok(builder.with_layer(&bounded).build())
}

/// An answer that is on its way.
type Answer = BoxFuture<'static, Result<http::Response<Box<DynBody>>, BoxError>>;

async fn within(timeout: Duration, answer: Answer) -> Result<http::Response<Box<DynBody>>, BoxError> {
    tokio::time::timeout(timeout, answer).await?
}
