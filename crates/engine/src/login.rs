//! From requested logins to the methods that are tried. Each secret is read or asked for once.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use kubeon_api::{HostAddress, Secret};
use kubeon_link_host::{Login, LoginMethod};
use kubeon_store::HostLogin;

use crate::engine::Engine;
use crate::environment::LabAccess;
use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, SecretSource};
use crate::memory_file::MemoryFile;

/// The logins of a cluster's hosts.
#[derive(Default)]
pub struct Logins {
    /// What is tried at each host.
    pub logins: HashMap<HostAddress, Login>,
    /// What may be written down of it: nothing secret.
    pub remembered: BTreeMap<HostAddress, HostLogin>,
    /// Private keys that a file holds; they live as long as this.
    pub held: Vec<MemoryFile>,
    /// Host keys of labs on this machine, in OpenSSH's format.
    pub lab_keys: String,
}

impl Logins {
    /// Whether a secret is sent that a host could use elsewhere: a password. What a private key signs is of no use
    /// to it.
    pub fn send_secrets(&self) -> bool {
        let secret = |login: &Login| {
            login.sudo_password.is_some()
                || login.methods.iter().any(|it| matches!(it, LoginMethod::Password(_)))
        };
        self.logins.values().any(secret)
    }
}

impl Engine<'_> {
    /// Reads or asks for every secret that is named, each once.
    ///
    /// # Errors
    /// Refuses when a file cannot be read, or somebody must be asked and nobody can be.
    pub fn logins(&self, requests: &BTreeMap<HostAddress, HostLoginRequest>) -> Result<Logins, EngineError> {
        let labs = &self.environment.labs;
        let mut secrets = Secrets { engine: self, known: HashMap::new(), warned: false };
        let mut result = Logins::default();
        for lab in labs {
            if lab.hosts.iter().any(|host| requests.contains_key(host)) {
                result.lab_keys.push_str(&lab.known_hosts);
            }
        }
        for (host, request) in requests {
            let lab = labs.iter().find(|lab| lab.hosts.contains(host));
            let (login, remembered) = self.login(request, lab, &mut secrets, &mut result.held)?;
            result.logins.insert(*host, login);
            result.remembered.insert(*host, remembered);
        }
        Ok(result)
    }

    fn login(
        &self,
        request: &HostLoginRequest,
        lab: Option<&LabAccess>,
        secrets: &mut Secrets<'_, '_>,
        held: &mut Vec<MemoryFile>,
    ) -> Result<(Login, HostLogin), EngineError> {
        let HostLoginRequest { flags, private_key, password, sudo_password } = request;
        let user = flags.user.clone().unwrap_or_else(|| "root".to_owned());
        let mut login = Login::new(user.clone()).at_port(flags.port.unwrap_or(22));
        let file_password = password.clone();
        let mut word = flags
            .password
            .as_ref()
            .map(|text| secrets.get(text, &format!("password of {user}")))
            .transpose()?;
        let flag_sudo = flags
            .sudo_password
            .as_ref()
            .map(|text| secrets.get(text, &format!("what sudo asks {user} for")))
            .transpose()?;
        let opener = flags
            .key_password
            .as_ref()
            .map(|text| secrets.get(text, "passphrase of the private key"))
            .transpose()?;
        let key_file = flags.key_file.as_ref().map(|file| self.expand(file));
        if let Some(path) = &key_file {
            login = login.with(LoginMethod::KeyFile { path: path.clone(), passphrase: opener.clone() });
        }
        if let Some(key) = private_key {
            let file = MemoryFile::new(key.pem())
                .map_err(|error| EngineError::failed(format!("cannot hold a key: {error}")))?;
            login =
                login.with(LoginMethod::KeyFile { path: file.path(), passphrase: opener.or(file_password) });
            held.push(file);
        } else {
            word = word.or(file_password);
        }
        if let Some(password) = word {
            if user != "root" {
                login = login.with_sudo_password(password.clone());
            }
            login = login.with(LoginMethod::Password(password));
        }
        let sudo = sudo_password.clone().or(flag_sudo);
        if let Some(password) = sudo.filter(|_| user != "root") {
            login = login.with_sudo_password(password);
        }
        if login.methods.is_empty() {
            if let Some(lab) = lab {
                login = login.with(LoginMethod::KeyFile { path: lab.key.clone(), passphrase: None });
            }
            let environment = &self.environment;
            login = login.with_usual_keys(environment.ssh_agent.clone(), environment.home.clone());
        }
        let remembered =
            HostLogin { user, port: flags.port.unwrap_or(22), key_files: key_file.into_iter().collect() };
        Ok((login, remembered))
    }

    /// `~` at the start is the home folder; the rest is made absolute, so that it holds from any folder.
    fn expand(&self, path: &std::path::Path) -> PathBuf {
        let home =
            path.strip_prefix("~").ok().and_then(|rest| Some(self.environment.home.as_ref()?.join(rest)));
        let path = home.unwrap_or_else(|| path.to_owned());
        std::path::absolute(&path).unwrap_or(path)
    }
}

/// Secrets that were read or asked for.
struct Secrets<'e, 'c> {
    engine: &'e Engine<'c>,
    known: HashMap<String, Secret>,
    warned: bool,
}

impl Secrets<'_, '_> {
    fn get(&mut self, text: &SecretSource, what: &str) -> Result<Secret, EngineError> {
        let id = match text {
            SecretSource::File(file) => file.display().to_string(),
            SecretSource::Ask => format!("- {what}"),
            SecretSource::Literal(secret) => {
                if !self.warned {
                    self.warned = true;
                    let words = "a password on the command line can be read by everybody on this machine; use @FILE or -";
                    self.engine.output.warn(words);
                }
                return Ok(Secret::new(secret));
            }
        };
        if let Some(secret) = self.known.get(&id) {
            return Ok(secret.clone());
        }
        let secret = match text {
            SecretSource::File(file) => read_first_line(&self.engine.expand(file))?,
            _ => self.ask(what)?,
        };
        self.known.insert(id, secret.clone());
        Ok(secret)
    }

    fn ask(&self, what: &str) -> Result<Secret, EngineError> {
        if !self.engine.output.can_ask() {
            let stop =
                EngineError::refused(format!("the {what} must be asked for, but there is no terminal"));
            return Err(stop.row("instead", "give it in a file: @FILE"));
        }
        self.engine.output.ask_secret(what).map(Secret::new)
    }
}

fn read_first_line(path: &std::path::Path) -> Result<Secret, EngineError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        EngineError::refused(format!("cannot read the secret in {}: {error}", path.display()))
    })?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(Secret::new(line)),
        _ => Err(EngineError::refused(format!("{} holds no secret in its first line", path.display()))),
    }
}
