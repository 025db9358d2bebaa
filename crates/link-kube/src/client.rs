//! Connections to an API server.

use std::path::Path;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::client::{ClientBuilder, DynBody};
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig};
use tower::BoxError;
use tower::util::MapFutureLayer;

/// Why no client can be created.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read.
    #[error("reading the kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: kube::config::KubeconfigError,
    },
    /// There is neither a service account nor a kubeconfig.
    #[error("selecting an API server: there is neither a service account nor a kubeconfig")]
    Infer(#[source] kube::config::InferConfigError),
    /// No client can be created from the configuration.
    #[error("creating a client from the configuration")]
    Build(#[source] kube::Error),
}

/// The default timeout for the head of an answer.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A client for this kubeconfig, else for the pod's service account, else for `$KUBECONFIG` or
/// `~/.kube/config`. The timeout for the head of an answer is 15 s, also for a list or a watch.
///
/// # Errors
/// When none of them exists, or the existing one cannot be used.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Client, ConnectError> {
    connect_within(kubeconfig, TIMEOUT).await
}

/// As [`connect`], with another timeout for the head of an answer.
///
/// # Errors
/// As [`connect`].
pub async fn connect_within(
    kubeconfig: Option<&Path>,
    timeout: Duration,
) -> Result<kube::Client, ConnectError> {
    build(config_of(kubeconfig).await?, timeout)
}

/// A client without credentials: each request brings those of another caller in its headers.
///
/// # Errors
/// As [`connect`].
pub async fn connect_without_credentials(
    kubeconfig: Option<&Path>,
    timeout: Duration,
) -> Result<kube::Client, ConnectError> {
    let mut config = config_of(kubeconfig).await?;
    config.auth_info = AuthInfo::default();
    build(config, timeout)
}

async fn config_of(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let Some(path) = kubeconfig else { return Config::infer().await.map_err(ConnectError::Infer) };
    let fail = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
    let read = Kubeconfig::read_from(path).map_err(fail)?;
    Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(fail)
}

fn build(mut config: Config, timeout: Duration) -> Result<kube::Client, ConnectError> {
    config.connect_timeout = Some(Duration::from_secs(5));
    // A watch may send nothing for minutes.
    config.read_timeout = Some(Duration::from_secs(300));
    config.write_timeout = Some(Duration::from_secs(10));
    let builder = ClientBuilder::try_from(config).map_err(ConnectError::Build)?;
    let bounded = MapFutureLayer::new(move |answer: Answer| within(timeout, answer));
    Ok(builder.with_layer(&bounded).build())
}

/// A pending answer.
type Answer = BoxFuture<'static, Result<http::Response<Box<DynBody>>, BoxError>>;

async fn within(timeout: Duration, answer: Answer) -> Result<http::Response<Box<DynBody>>, BoxError> {
    tokio::time::timeout(timeout, answer).await?
}
