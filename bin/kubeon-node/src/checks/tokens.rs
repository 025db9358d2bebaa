//! The tokens that the kubelet gives to the pods of this host.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::since_1970;
use crate::host::HostSystem;
use crate::paths;

/// How long after its replacement a program has read its new token: the libraries of Kubernetes read it again once a
/// minute.
const READ_AFTER: Duration = Duration::from_secs(60);
/// The folder of the volumes of a pod that contain tokens.
const VOLUMES: &str = "volumes/kubernetes.io~projected";

/// The wait until the pods use tokens that were made after the kubelet started.
#[derive(Default)]
pub(super) struct TokenWait {
    /// Since when every token is new. Tokens of pods that start later do not change it: on a busy host, some token is always
    /// young.
    since: Option<Instant>,
}

impl TokenWait {
    /// Whether all tokens were made after the kubelet started, and programs have read them.
    ///
    /// # Errors
    /// What is missing. The text does not change while only time passes.
    pub(super) fn check(&mut self, host: &HostSystem, unit: &str) -> Result<(), String> {
        let states = host.services.states(&[unit.to_owned()]).map_err(|failure| failure.cause)?;
        let state = states.get(unit).cloned().unwrap_or_default();
        if state.active != "active" {
            return Err(format!("{unit} is {}", state.verdict()));
        }
        let started = since_1970(state.started) / 1_000_000;
        self.judge(&tokens(&host.root.at(paths::PODS)), started, Instant::now())
    }

    /// `started` is in seconds since 1970, as are the times when the tokens were made.
    fn judge(&mut self, tokens: &[(PathBuf, i64)], started: i64, now: Instant) -> Result<(), String> {
        if let Some((path, _)) = tokens.iter().find(|(_, made)| *made < started) {
            self.since = None;
            return Err(format!("{} was made before the kubelet started", path.display()));
        }
        if now.duration_since(*self.since.get_or_insert(now)) < READ_AFTER {
            return Err("the pods may not have read their new tokens yet".to_owned());
        }
        Ok(())
    }
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
    fn every_token_is_of_this_kubelet_and_had_a_minute_to_be_read() {
        let (begin, path) = (Instant::now(), PathBuf::from("/token"));
        let after = |seconds| begin + Duration::from_secs(seconds);
        let mut wait = TokenWait::default();
        let old = [(path.clone(), 99)];
        assert!(wait.judge(&old, 100, begin).unwrap_err().contains("before the kubelet started"));
        let mut new = vec![(path.clone(), 100)];
        assert!(wait.judge(&new, 100, after(10)).unwrap_err().contains("may not have read"));
        new.push((path, 165));
        assert!(wait.judge(&new, 100, after(69)).is_err());
        assert_eq!(
            wait.judge(&new, 100, after(70)),
            Ok(()),
            "a pod that starts meanwhile does not prolong it"
        );
        assert!(wait.judge(&old, 100, after(71)).is_err());
        assert!(wait.judge(&new, 100, after(72)).is_err(), "it begins again");
    }
}
