//! The keys of a provider, read from its discovery document and kept until they change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::JwkSet;
use parking_lot::Mutex;
use serde::Deserialize;

/// How long keys are used before they are read again.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How soon a token with an unknown key lets the keys be read again.
const PAUSE: Duration = Duration::from_secs(10);
/// The timeout of a request to the provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer in bytes.
const LONGEST: u64 = 1024 * 1024;

/// The part of a discovery document that is needed.
#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// What was read last, and what the last attempt said if it failed.
#[derive(Default)]
struct KnownKeys {
    keys: Option<(Instant, Arc<JwkSet>)>,
    failure: Option<(Instant, String)>,
}

/// The keys of one provider.
pub(super) struct ProviderKeys {
    issuer: String,
    agent: ureq::Agent,
    known: Mutex<KnownKeys>,
    /// Held by the one task that reads the keys.
    reading: tokio::sync::Mutex<()>,
}

impl ProviderKeys {
    /// # Errors
    /// When the authorities hold no certificate.
    pub(super) fn new(issuer: &str, authorities: Option<&[u8]>) -> anyhow::Result<Self> {
        let authorities = kubeon_https::authorities_or_platform(authorities).context("--oidc-ca-file")?;
        let config = ureq::Agent::config_builder()
            .tls_config(kubeon_https::tls(authorities).build())
            .https_only(true)
            .timeout_global(Some(TIMEOUT))
            .build();
        let (known, reading) = Default::default();
        Ok(Self { issuer: issuer.to_owned(), agent: config.new_agent(), known, reading })
    }

    /// The key with this name; without a name, the only key.
    ///
    /// # Errors
    /// When the provider has no such key, or its keys cannot be read.
    pub(super) async fn key(&self, name: Option<&str>) -> anyhow::Result<DecodingKey> {
        if let Some(key) = self.known(LIFETIME).and_then(|keys| find(&keys, name)) {
            return Ok(key);
        }
        let _reading = self.reading.lock().await;
        // Another task may have read them meanwhile; and a stranger must not make the gateway read them all the time.
        let keys = match self.known(PAUSE) {
            Some(keys) => keys,
            None => self.read().await?,
        };
        find(&keys, name)
            .with_context(|| format!("{} has no key {}", self.issuer, name.unwrap_or("without a name")))
    }

    /// The keys, if they are not older.
    fn known(&self, age: Duration) -> Option<Arc<JwkSet>> {
        let known = self.known.lock();
        known.keys.as_ref().filter(|(read, _)| read.elapsed() < age).map(|(_, keys)| keys.clone())
    }

    /// Reads the keys. A provider that did not answer is not asked again at once.
    async fn read(&self) -> anyhow::Result<Arc<JwkSet>> {
        let failure = self.known.lock().failure.clone().filter(|(tried, _)| tried.elapsed() < PAUSE);
        if let Some((_, failure)) = failure {
            anyhow::bail!("{failure}");
        }
        let (agent, issuer) = (self.agent.clone(), self.issuer.clone());
        let read = tokio::task::spawn_blocking(move || read(&agent, &issuer)).await?;
        let mut known = self.known.lock();
        match read {
            Ok(keys) => {
                let keys = Arc::new(keys);
                *known = KnownKeys { keys: Some((Instant::now(), keys.clone())), failure: None };
                Ok(keys)
            }
            Err(error) => {
                known.failure = Some((Instant::now(), format!("{error:#}")));
                Err(error)
            }
        }
    }
}

fn find(keys: &JwkSet, name: Option<&str>) -> Option<DecodingKey> {
    let key = match (name, keys.keys.as_slice()) {
        (Some(name), _) => keys.find(name)?,
        (None, [only]) => only,
        (None, _) => return None,
    };
    DecodingKey::from_jwk(key).ok()
}

fn read(agent: &ureq::Agent, issuer: &str) -> anyhow::Result<JwkSet> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let place = place_of_keys(&get(agent, &url)?, issuer).with_context(|| format!("reading {url}"))?;
    serde_json::from_str(&get(agent, &place)?).with_context(|| format!("reading {place}"))
}

/// The URL of the keys in the discovery document of this issuer.
///
/// # Errors
/// When it is no such document, or that of another issuer.
pub(crate) fn place_of_keys(document: &str, issuer: &str) -> anyhow::Result<String> {
    let discovery: Discovery = serde_json::from_str(document)?;
    anyhow::ensure!(discovery.issuer == issuer, "it is of the issuer {}", discovery.issuer);
    Ok(discovery.jwks_uri)
}

/// Whether the keys in this document have a usable one with this name; without a name, a usable only one.
///
/// # Errors
/// When it is no document of keys.
pub(crate) fn has_key(document: &str, name: Option<&str>) -> serde_json::Result<bool> {
    let keys: JwkSet = serde_json::from_str(document)?;
    Ok(find(&keys, name).is_some())
}

fn get(agent: &ureq::Agent, url: &str) -> anyhow::Result<String> {
    let answer = agent.get(url).call().with_context(|| format!("reading {url}"))?;
    let text = answer.into_body().into_with_config().limit(LONGEST).read_to_string();
    text.with_context(|| format!("reading {url}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_provider_that_does_not_answer_is_not_asked_again_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let issuer = format!("https://{}", listener.local_addr().unwrap());
        drop(listener);
        let keys = ProviderKeys::new(&issuer, None).unwrap();
        let first = keys.key(Some("a")).await.unwrap_err().to_string();
        assert!(first.contains("/.well-known/openid-configuration"), "{first}");
        let tried = keys.known.lock().failure.clone().unwrap().0;
        assert!(keys.key(Some("b")).await.is_err());
        assert_eq!(keys.known.lock().failure.clone().unwrap().0, tried);
        assert!(ProviderKeys::new(&issuer, Some(b"no certificate")).is_err());
    }
}
