//! Logs in to a host: tries the login methods one after the other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKey, load_secret_key};
use russh::{MethodKind, MethodSet};
use tokio::sync::Mutex;

use crate::guard::Guard;
use crate::login::{Login, LoginMethod};
use kubeon_api::Secret;

/// Maximum number of agent keys that are offered: sshd closes the connection after six refused keys.
const MAX_AGENT_KEYS: usize = 5;

/// Maximum number of rounds of keyboard-interactive authentication.
const MAX_ROUNDS: usize = 4;

/// Private keys. Each is read and decrypted once for all hosts.
#[derive(Default)]
pub(crate) struct Keys(Mutex<HashMap<KeyId, LoadedKey>>);

/// A file and its passphrase.
type KeyId = (PathBuf, Option<Secret>);
type LoadedKey = Result<Arc<PrivateKey>, LoginKeyError>;

/// The reason why a key file cannot be used.
#[derive(Debug, Clone)]
pub(crate) enum LoginKeyError {
    Missing,
    Protected,
    Broken(String),
}

impl std::fmt::Display for LoginKeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such file"),
            Self::Protected => f.write_str("it is protected by a passphrase, and none was given"),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl Keys {
    async fn get(&self, path: &Path, passphrase: Option<&Secret>) -> LoadedKey {
        let id = (path.to_owned(), passphrase.cloned());
        let mut keys = self.0.lock().await;
        if let Some(known) = keys.get(&id) {
            return known.clone();
        }
        let (path, secret) = id.clone();
        // Decrypting a protected key takes about a tenth of a second of computing, by design.
        let loaded = tokio::task::spawn_blocking(move || load(&path, secret.as_ref())).await;
        let loaded = loaded.unwrap_or_else(|_| Err(LoginKeyError::Broken("it could not be read".to_owned())));
        keys.insert(id, loaded.clone());
        loaded
    }
}

fn load(path: &Path, passphrase: Option<&Secret>) -> LoadedKey {
    use russh::keys::Error;
    match load_secret_key(path, passphrase.map(Secret::expose)) {
        Ok(key) => Ok(Arc::new(key)),
        Err(Error::IO(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(LoginKeyError::Missing),
        Err(Error::KeyIsEncrypted) => Err(LoginKeyError::Protected),
        Err(_) if passphrase.is_some() => {
            Err(LoginKeyError::Broken("it cannot be opened with the passphrase given".to_owned()))
        }
        Err(error) => Err(LoginKeyError::Broken(format!("it cannot be read: {error}"))),
    }
}

/// A login in progress.
pub(crate) struct Attempt<'a> {
    pub(crate) handle: &'a mut Handle<Guard>,
    pub(crate) login: &'a Login,
    pub(crate) keys: &'a Keys,
    /// The tried methods with their outcome, for the message.
    tried: Vec<String>,
    remaining: MethodSet,
}

/// A failed login.
pub(crate) enum LoginError {
    /// The server refused all methods; the text lists them.
    Denied(String),
    /// The connection broke.
    Broken(russh::Error),
}

impl From<russh::Error> for LoginError {
    fn from(error: russh::Error) -> Self {
        Self::Broken(error)
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(handle: &'a mut Handle<Guard>, login: &'a Login, keys: &'a Keys) -> Self {
        Self { handle, login, keys, tried: Vec::new(), remaining: MethodSet::empty() }
    }

    /// Tries the methods in order until one is accepted.
    pub(crate) async fn run(mut self) -> Result<(), LoginError> {
        let login = self.login;
        for method in &login.methods {
            let accepted = match method {
                LoginMethod::KeyFile { path, passphrase } => self.key_file(path, passphrase.as_ref()).await?,
                LoginMethod::Password(password) => self.password(password).await?,
                LoginMethod::Agent { socket } => self.agent(socket).await?,
                LoginMethod::DefaultKeys { folder } => self.default_keys(folder).await?,
            };
            if accepted {
                return Ok(());
            }
            if self.handle.is_closed() {
                self.tried.push("then the host closed the connection".to_owned());
                break;
            }
        }
        if self.tried.is_empty() {
            self.tried.push("no key and no password was given".to_owned());
        }
        Err(LoginError::Denied(self.tried.join("; ")))
    }

    /// Whether the login is complete; otherwise records the methods that the server still accepts.
    fn record(&mut self, result: AuthResult, what: &str) -> bool {
        match result {
            AuthResult::Success => true,
            AuthResult::Failure { remaining_methods, partial_success } => {
                let word = if partial_success {
                    "accepted, but the host requires another method"
                } else {
                    "refused"
                };
                self.tried.push(format!("{what}: {word}"));
                self.remaining = remaining_methods;
                false
            }
        }
    }

    async fn key_file(&mut self, path: &Path, passphrase: Option<&Secret>) -> Result<bool, LoginError> {
        let what = format!("key {}", path.display());
        match self.keys.get(path, passphrase).await {
            Ok(key) => self.key(key, &what).await,
            Err(why) => {
                self.tried.push(format!("{what}: {why}"));
                Ok(false)
            }
        }
    }

    async fn default_keys(&mut self, folder: &Path) -> Result<bool, LoginError> {
        for name in ["id_ed25519", "id_ecdsa", "id_rsa"] {
            let path = folder.join(name);
            let what = format!("key {}", path.display());
            match self.keys.get(&path, None).await {
                Ok(key) => {
                    if self.key(key, &what).await? {
                        return Ok(true);
                    }
                }
                Err(LoginKeyError::Missing) => {}
                Err(why) => self.tried.push(format!("{what}: {why}")),
            }
            if self.handle.is_closed() {
                break;
            }
        }
        Ok(false)
    }

    async fn key(&mut self, key: Arc<PrivateKey>, what: &str) -> Result<bool, LoginError> {
        let hash =
            if matches!(key.algorithm(), Algorithm::Rsa { .. }) { self.rsa_hash().await? } else { None };
        let key = PrivateKeyWithHashAlg::new(key, hash);
        let result = self.handle.authenticate_publickey(&self.login.user, key).await?;
        Ok(self.record(result, what))
    }

    /// The best hash for RSA; SHA-256 when the server does not list its hashes.
    async fn rsa_hash(&self) -> Result<Option<HashAlg>, LoginError> {
        Ok(self.handle.best_supported_rsa_hash().await?.unwrap_or(Some(HashAlg::Sha256)))
    }

    async fn agent(&mut self, socket: &Path) -> Result<bool, LoginError> {
        let Ok(mut agent) = AgentClient::connect_uds(socket).await else {
            self.tried.push(format!("agent at {}: it does not answer", socket.display()));
            return Ok(false);
        };
        let identities = match agent.request_identities().await {
            Ok(identities) => identities,
            Err(error) => {
                self.tried.push(format!("agent: {error}"));
                return Ok(false);
            }
        };
        let keys: Vec<PublicKey> = identities
            .into_iter()
            .filter_map(|identity| match identity {
                AgentIdentity::PublicKey { key, .. } => Some(key),
                AgentIdentity::Certificate { .. } => None,
            })
            .collect();
        if keys.is_empty() {
            self.tried.push("agent: it has no key".to_owned());
        }
        for key in keys.into_iter().take(MAX_AGENT_KEYS) {
            let what = format!("agent's key {}", key.fingerprint(HashAlg::Sha256));
            let hash =
                if matches!(key.algorithm(), Algorithm::Rsa { .. }) { self.rsa_hash().await? } else { None };
            match self.handle.authenticate_publickey_with(&self.login.user, key, hash, &mut agent).await {
                Ok(result) => {
                    if self.record(result, &what) {
                        return Ok(true);
                    }
                }
                Err(error) => self.tried.push(format!("{what}: {error}")),
            }
            if self.handle.is_closed() {
                break;
            }
        }
        Ok(false)
    }

    async fn password(&mut self, password: &Secret) -> Result<bool, LoginError> {
        let result = self.handle.authenticate_password(&self.login.user, password.expose()).await?;
        if matches!(result, AuthResult::Success) {
            return Ok(true);
        }
        self.record(result, "password");
        if self.handle.is_closed() || !self.remaining.contains(&MethodKind::KeyboardInteractive) {
            return Ok(false);
        }
        self.keyboard_interactive(password).await
    }

    /// Keyboard-interactive authentication: some servers accept a password only this way.
    async fn keyboard_interactive(&mut self, password: &Secret) -> Result<bool, LoginError> {
        let mut answer =
            self.handle.authenticate_keyboard_interactive_start(&self.login.user, None::<String>).await?;
        for _ in 0..MAX_ROUNDS {
            match answer {
                KeyboardInteractiveAuthResponse::Success => return Ok(true),
                KeyboardInteractiveAuthResponse::Failure { .. } => break,
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                    let answers = prompts.iter().map(|_| password.expose().to_owned()).collect();
                    answer = self.handle.authenticate_keyboard_interactive_respond(answers).await?;
                }
            }
        }
        self.tried.push("password by keyboard-interactive: refused".to_owned());
        Ok(false)
    }
}
