//! Logins: from requests to authentication methods. Each secret is read or asked for once.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddrV4;
use std::path::PathBuf;

use kubeon_api::{HostAddress, Secret};
use kubeon_link_host::{Login, LoginMethod};
use kubeon_store::HostLogin;

use crate::engine::Engine;
use crate::environment::LabAccess;
use crate::error::EngineError;
use crate::jump_login::{existing_keys, jump_host};
use crate::login_request::{HostLoginRequest, SecretSource};
use crate::memory_file::MemoryFile;
use crate::remedy::EngineRemedy;
use crate::ssh_config::{SshClientConfig, SshHostConfig};

/// The port of SSH.
pub(crate) const DEFAULT_PORT: u16 = 22;

/// The logins of a cluster's hosts.
#[derive(Default)]
pub struct Logins {
    /// The login of each host.
    pub logins: HashMap<HostAddress, Login>,
    /// The part of the logins that is stored. It contains no secret.
    pub remembered: BTreeMap<HostAddress, HostLogin>,
    /// Private keys and host keys as memory files, which live as long as this value.
    pub memory_files: Vec<MemoryFile>,
    /// Hosts whose address changed: the address and port that they had.
    pub former: BTreeMap<HostAddress, SocketAddrV4>,
    /// Host keys of labs on this machine, in OpenSSH format.
    pub lab_keys: String,
}

impl Logins {
    /// Whether a password is sent, which a host could use elsewhere. A signature of a private key is of no
    /// use to a host.
    pub fn send_secrets(&self) -> bool {
        self.password_hosts().next().is_some()
    }

    /// The hosts to which a password is sent.
    pub fn password_hosts(&self) -> impl Iterator<Item = HostAddress> {
        let secret = |login: &Login| {
            login.sudo_password.is_some()
                || login.methods.iter().any(|method| matches!(method, LoginMethod::Password(_)))
        };
        self.logins.iter().filter(move |(_, login)| secret(login)).map(|(host, _)| *host)
    }
}

impl Engine<'_> {
    /// Resolves the logins. Reads or asks for each secret once.
    ///
    /// # Errors
    /// Refuses when a file cannot be read, or a question is necessary and there is no terminal.
    pub fn logins(&self, requests: &BTreeMap<HostAddress, HostLoginRequest>) -> Result<Logins, EngineError> {
        let labs = &self.environment.labs;
        let mut secrets = SecretCache { engine: self, known: HashMap::new(), warned: false };
        let mut ssh = SshClientConfig::read(self.environment.home.as_deref());
        let mut result = Logins::default();
        for lab in labs {
            if lab.hosts.iter().any(|host| requests.contains_key(host)) {
                result.lab_keys.push_str(&lab.known_hosts);
            }
        }
        for (host, request) in requests {
            let lab = labs.iter().find(|lab| lab.hosts.contains(host));
            let config = if lab.is_some() { SshHostConfig::default() } else { ssh.of(&host.to_string()) };
            let (mut login, mut remembered) =
                self.login(request, &config, lab, &mut secrets, &mut result.memory_files)?;
            if let Some(path) = request.flags.jump.clone().or(config.jump) {
                let keys =
                    login.methods.iter().filter(|method| matches!(method, LoginMethod::KeyFile { .. }));
                let keys: Vec<LoginMethod> = keys.cloned().collect();
                remembered.jump = Some(path.to_string());
                login = login.through(jump_host(&path, &mut ssh, &self.environment, &keys)?);
            }
            result.former.extend(request.formerly.map(|before| (*host, before)));
            result.logins.insert(*host, login);
            result.remembered.insert(*host, remembered);
        }
        ssh.warnings.iter().for_each(|warning| self.output.warn(warning));
        Ok(result)
    }

    fn login(
        &self,
        request: &HostLoginRequest,
        config: &SshHostConfig,
        lab: Option<&LabAccess>,
        secrets: &mut SecretCache<'_, '_>,
        memory_files: &mut Vec<MemoryFile>,
    ) -> Result<(Login, HostLogin), EngineError> {
        let HostLoginRequest { flags, private_key, password, sudo_password, formerly: _ } = request;
        let user = flags.user.clone().or_else(|| config.user.clone()).unwrap_or_else(|| "root".to_owned());
        let port = flags.port.or(config.port).unwrap_or(DEFAULT_PORT);
        let mut login = Login::new(user.clone()).at_port(port);
        let file_password = password.clone();
        let mut password_of_user = flags
            .password
            .as_ref()
            .map(|text| secrets.get(text, &format!("password of {user}")))
            .transpose()?;
        let flag_sudo = flags
            .sudo_password
            .as_ref()
            .map(|text| secrets.get(text, &format!("sudo password of {user}")))
            .transpose()?;
        let passphrase = flags
            .key_password
            .as_ref()
            .map(|text| secrets.get(text, "passphrase of the private key"))
            .transpose()?;
        let key_file = flags.key_file.as_ref().map(|file| self.expand(file));
        if let Some(path) = &key_file {
            login = login.with(LoginMethod::KeyFile { path: path.clone(), passphrase: passphrase.clone() });
        }
        if let Some(key) = private_key {
            let file = MemoryFile::new(key.pem())
                .map_err(|error| EngineError::failed(format!("cannot store a key in memory: {error}")))?;
            login = login
                .with(LoginMethod::KeyFile { path: file.path(), passphrase: passphrase.or(file_password) });
            memory_files.push(file);
        } else {
            password_of_user = password_of_user.or(file_password);
        }
        if let Some(password) = password_of_user {
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
            for key in existing_keys(config.key_files.clone()) {
                login = login.with(key);
            }
            let environment = &self.environment;
            login = login.with_usual_keys(environment.ssh_agent.clone(), environment.home.clone());
        }
        let remembered = HostLogin { user, port, key_files: key_file.into_iter().collect(), jump: None };
        Ok((login, remembered))
    }

    /// Expands `~` at the start to the home folder and makes the path absolute, so that it is valid in any
    /// folder.
    fn expand(&self, path: &std::path::Path) -> PathBuf {
        let home =
            path.strip_prefix("~").ok().and_then(|rest| Some(self.environment.home.as_ref()?.join(rest)));
        let path = home.unwrap_or_else(|| path.to_owned());
        std::path::absolute(&path).unwrap_or(path)
    }
}

/// Cache of the secrets that were read or asked for.
struct SecretCache<'e, 'c> {
    engine: &'e Engine<'c>,
    known: HashMap<String, Secret>,
    warned: bool,
}

impl SecretCache<'_, '_> {
    fn get(&mut self, text: &SecretSource, what: &str) -> Result<Secret, EngineError> {
        let id = match text {
            SecretSource::File(file) => file.display().to_string(),
            SecretSource::Ask => format!("- {what}"),
            SecretSource::Literal(secret) => {
                if !self.warned {
                    self.warned = true;
                    let output = self.engine.output;
                    let remedy = output.remedy_text(&EngineRemedy::GiveSecretInFile);
                    output.warn(&format!(
                        "a password as an argument is visible to all users of this machine; {remedy}"
                    ));
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
            let error =
                EngineError::refused(format!("the {what} must be asked for, but there is no terminal"));
            return Err(error.remedy(EngineRemedy::GiveSecretInFile));
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
        _ => Err(EngineError::refused(format!("{} has no secret in its first line", path.display()))),
    }
}
