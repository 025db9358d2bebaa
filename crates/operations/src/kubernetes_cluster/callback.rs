//! What a Job needs to tell somebody else what came of its operation: where to, who vouches for the listener, and a token
//! that says which operation it speaks for.

use kubeon_api::ClusterOperation;
use kubeon_render::job::{Mount, MountSource, TOKEN};

use super::job::CONF;
use crate::names;
use crate::operation::uid;
use crate::settings::OperatorSettings;

/// The key of the certificates in the operation's own ConfigMap.
pub(super) const AUTHORITIES: &str = "callback-ca.crt";
/// Where the token is.
const FOLDER: &str = "/callback";
/// For how many seconds a token is good; a stolen one no longer than that.
const SECONDS: u32 = 3600;

/// Certificates that vouch for the listener, if they are not those of the image.
pub(super) fn authorities(settings: &OperatorSettings) -> Option<&str> {
    settings.callback.as_ref()?.authorities.as_deref()
}

/// The token of the runner's account that no API server takes, and a listener only for this operation.
pub(super) fn token(settings: &OperatorSettings, operation: &ClusterOperation) -> Option<Mount> {
    settings.callback.as_ref()?;
    let source = MountSource::Token { audience: names::callback_audience(uid(operation)), seconds: SECONDS };
    Some(Mount { volume: "callback", source, path: FOLDER.to_owned(), key: None })
}

/// For the runner.
pub(super) fn arguments(settings: &OperatorSettings) -> Vec<String> {
    let Some(callback) = &settings.callback else { return Vec::new() };
    let mut arguments =
        vec![format!("--callback-url={}", callback.url), format!("--callback-token-file={FOLDER}/{TOKEN}")];
    arguments.extend(callback.authorities.as_ref().map(|_| format!("--callback-ca={CONF}/{AUTHORITIES}")));
    arguments
}
