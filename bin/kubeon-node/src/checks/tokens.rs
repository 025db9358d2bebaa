//! The tokens that the kubelet gives to the pods of this host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::node::since_1970;
use crate::host::HostSystem;
use crate::paths;

/// Seconds after which a program has read its new token: the libraries of Kubernetes read it again once a minute.
const READ_AFTER: i64 = 60;
/// The folder of the volumes of a pod that contain tokens.
const VOLUMES: &str = "volumes/kubernetes.io~projected";

/// Whether all tokens were made after the kubelet started, and long enough ago that programs have read them.
///
/// # Errors
/// The pod that has an older or a too new token. The text does not change while only time passes.
pub(super) fn are_new(host: &HostSystem, unit: &str) -> Result<(), String> {
    let states = host.services.states(&[unit.to_owned()]).map_err(|failure| failure.cause)?;
    let state = states.get(unit).cloned().unwrap_or_default();
    if state.active != "active" {
        return Err(format!("{unit} is {}", state.verdict()));
    }
    let started = since_1970(state.started) / 1_000_000;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    tokens(&host.root.at(paths::PODS))
        .into_iter()
        .try_for_each(|(path, made)| judge(&path, made, started, now))
}

/// `started` and `now` are seconds since 1970, as is the time when the token was `made`.
fn judge(path: &Path, made: i64, started: i64, now: i64) -> Result<(), String> {
    if made < started {
        return Err(format!("{} was made before the kubelet started", path.display()));
    }
    if now - made < READ_AFTER {
        return Err(format!("the pods may not have read {} yet", path.display()));
    }
    Ok(())
}

/// The tokens in the volumes of the pods, with the times when they were made. A pod that ends meanwhile has none.
fn tokens(pods: &Path) -> Vec<(PathBuf, i64)> {
    let below =
        |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = below(pods.to_owned()).flat_map(|pod| below(pod.join(VOLUMES))).flat_map(below);
    let token = |path: PathBuf| {
        let made = made(&fs::read_to_string(&path).ok()?)?;
        Some((path, made))
    };
    files.filter_map(token).collect()
}

/// When a token was made, in seconds since 1970; `None` if the text is no token.
fn made(text: &str) -> Option<i64> {
    let mut parts = text.trim().split('.');
    let (_, claims, _) = (parts.next()?, parts.next()?, parts.next()?);
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_slice::<Value>(&claims).ok()?["iat"].as_i64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(made: i64) -> String {
        format!("eyJh.{}.c2ln", URL_SAFE_NO_PAD.encode(format!(r#"{{"iat":{made},"sub":"x"}}"#)))
    }

    #[test]
    fn finds_the_tokens_of_all_pods_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for (pod, file, text) in [
            ("a", "token", token(100)),
            ("b", "vault-token", token(200)),
            ("b", "ca.crt", "-----BEGIN CERTIFICATE-----".to_owned()),
            ("b", "namespace", "kube.system.x".to_owned()),
        ] {
            let volume = folder.path().join(pod).join(VOLUMES).join("kube-api-access");
            fs::create_dir_all(&volume).unwrap();
            fs::write(volume.join(file), text).unwrap();
        }
        let mut found: Vec<i64> = tokens(folder.path()).into_iter().map(|(_, made)| made).collect();
        found.sort_unstable();
        assert_eq!(found, [100, 200]);
        assert!(tokens(&folder.path().join("absent")).is_empty());
    }

    #[test]
    fn a_token_must_be_of_this_kubelet_and_a_minute_old() {
        let path = Path::new("/token");
        assert!(judge(path, 99, 100, 1000).unwrap_err().contains("before the kubelet started"));
        assert!(judge(path, 950, 100, 1000).unwrap_err().contains("may not have read"));
        assert_eq!(judge(path, 100, 100, 1000), Ok(()));
    }
}
