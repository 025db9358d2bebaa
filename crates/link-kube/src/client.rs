//! The way to an API server.

use std::path::Path;
use std::time::Duration;

use kube::config::{Config, KubeConfigOptions, Kubeconfig};

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

/// A client by this kubeconfig, else by the pod's service account, else by `$KUBECONFIG` or `~/.kube/config`.
///
/// # Errors
/// When none of them is there, or the one that is cannot be used.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<kube::Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let fail = |source| ConnectError::Kubeconfig { path: path.display().to_string(), source };
            let read = Kubeconfig::read_from(path).map_err(fail)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(fail)?
        }
        None => Config::infer().await.map_err(ConnectError::Infer)?,
    };
    // Requests have a bound of their own; a watch is quiet for minutes.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(300));
    config.write_timeout = Some(Duration::from_secs(10));
    kube::Client::try_from(config).map_err(ConnectError::Build)
}
