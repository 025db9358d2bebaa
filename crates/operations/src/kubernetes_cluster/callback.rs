//! The callback of a Job to the server that gets the result of its operation: the address, the certificate
//! authorities, and a token that names the operation.

use kubeon_api::ClusterOperation;
use kubeon_render::job::{Mount, MountSource, TOKEN};

use super::cluster_action::ClusterAction;
use crate::names;
use crate::operation::uid;
use crate::settings::OperatorSettings;

/// The key of the certificates in the operation's own ConfigMap.
pub(super) const AUTHORITIES: &str = "callback-ca.crt";
/// The folder of the token.
const FOLDER: &str = "/callback";
/// How many seconds a token is valid, which also limits the use of a stolen one.
const SECONDS: u32 = 3600;

/// The certificate authorities of the server; `None` when those of the image are enough.
pub(super) fn authorities(settings: &OperatorSettings) -> Option<&str> {
    settings.callback.as_ref()?.authorities.as_deref()
}

/// A token of the runner's service account for the audience of this operation. No API server accepts it.
pub(super) fn token(settings: &OperatorSettings, operation: &ClusterOperation) -> Option<Mount> {
    settings.callback.as_ref()?;
    let source = MountSource::Token { audience: names::callback_audience(uid(operation)), seconds: SECONDS };
    Some(Mount { volume: "callback", source, path: FOLDER.to_owned(), key: None })
}

/// The arguments of the runner; `conf` is the folder where the operation's ConfigMap is mounted. Contract B has no route for
/// the other actions.
pub(super) fn arguments(
    settings: &OperatorSettings,
    operation: &ClusterOperation,
    conf: &str,
) -> Vec<String> {
    let action = ClusterAction::of(operation);
    let has_route = matches!(
        action,
        None | Some(
            ClusterAction::Create
                | ClusterAction::ScaleUp
                | ClusterAction::ScaleDown
                | ClusterAction::Terminate
        )
    );
    let Some(callback) = settings.callback.as_ref().filter(|_| has_route) else { return Vec::new() };
    let mut arguments =
        vec![format!("--callback-url={}", callback.url), format!("--callback-token-file={FOLDER}/{TOKEN}")];
    arguments.extend(callback.authorities.as_ref().map(|_| format!("--callback-ca={conf}/{AUTHORITIES}")));
    arguments
}
