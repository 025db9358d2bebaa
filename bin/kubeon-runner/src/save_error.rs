//! The error when the state, the kubeconfig or the host keys cannot be saved in the meta cluster.

use std::io;

use crate::job::ToolError;
use crate::meta::{MetaError, TOKEN, WrittenObject};

/// The reason why an object was not saved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    /// The program kubeon did not export the state.
    #[error("cannot export the state: {0}")]
    Export(#[from] ToolError),
    /// A file cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
    /// The meta cluster refused the write.
    #[error("cannot write {0}: {1}")]
    Write(WrittenObject, MetaError),
    /// The meta cluster did not accept the write in time.
    #[error("cannot write {0}: no success in time")]
    Late(WrittenObject),
    /// There is no connection to the meta cluster.
    #[error(
        "cannot save the state: no service account token is mounted at {TOKEN}; Jobs of the operator have one, set \
         serviceAccountName: kubeon-runner on others"
    )]
    Nowhere,
    /// A shutdown was requested first.
    #[error("the runner is shutting down")]
    Stopped,
}
