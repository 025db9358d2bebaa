//! `~/.ssh/config`: user, port, keys and jump hosts of hosts, as `ssh` uses them. Flags, files and remembered logins have
//! priority.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use ssh2_config::{ParseRule, SshConfig};

use crate::jump_path::JumpPath;

/// A pattern that matches no host.
const NO_HOST: &str = "this-section-is-not-evaluated";

/// The settings of hosts.
#[derive(Default)]
pub(crate) struct SshClientConfig {
    config: Option<SshConfig>,
    /// Why the file, or a part of it, is not used.
    pub(crate) warnings: Vec<String>,
}

/// The settings of a host; `None` and empty where the file has none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SshHostConfig {
    pub(crate) host_name: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) key_files: Vec<PathBuf>,
    pub(crate) jump: Option<JumpPath>,
}

impl SshClientConfig {
    /// Reads the file. A missing file has no settings; a file that cannot be read is a warning.
    pub(crate) fn read(home: Option<&Path>) -> Self {
        let Some(home) = home else { return Self::default() };
        let path = home.join(".ssh/config");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => return Self::unused(format!("~/.ssh/config is not used: {error}")),
        };
        let mut warnings = Vec::new();
        let text = without_match(&text, &mut warnings);
        let rules = ParseRule::ALLOW_UNKNOWN_FIELDS | ParseRule::ALLOW_UNSUPPORTED_FIELDS;
        match SshConfig::default().home_dir(home).parse(&mut BufReader::new(text.as_bytes()), rules) {
            Ok(config) => Self { config: Some(config), warnings },
            Err(error) => Self::unused(format!("~/.ssh/config is not used: {error}")),
        }
    }

    fn unused(warning: String) -> Self {
        Self { config: None, warnings: vec![warning] }
    }

    /// The settings of a host, by the name or address that a user writes.
    pub(crate) fn of(&mut self, host: &str) -> SshHostConfig {
        let Some(config) = &self.config else { return SshHostConfig::default() };
        let settings = config.query(host);
        if settings.unsupported_fields.keys().any(|field| field.eq_ignore_ascii_case("proxycommand")) {
            self.warn(format!("~/.ssh/config: the ProxyCommand of {host} is not used; use ProxyJump"));
        }
        let jump = settings.proxy_jump.filter(|steps| steps.as_slice() != ["none"]);
        let jump = jump.and_then(|steps| match steps.join(",").parse() {
            Ok(path) => Some(path),
            Err(error) => {
                self.warn(format!("~/.ssh/config: the ProxyJump of {host} is not used: {error}"));
                None
            }
        });
        SshHostConfig {
            host_name: settings.host_name,
            user: settings.user,
            port: settings.port,
            key_files: settings.identity_file.unwrap_or_default(),
            jump,
        }
    }

    fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }
}

/// The text with `Match all` as `Host *`, and other `Match` sections for no host: their conditions are not evaluated.
fn without_match(text: &str, warnings: &mut Vec<String>) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
        let is_match = words.next().is_some_and(|word| word.eq_ignore_ascii_case("match"));
        let condition = words.next().unwrap_or_default();
        lines.push(match is_match {
            false => line.to_owned(),
            true if condition.eq_ignore_ascii_case("all") => "Host *".to_owned(),
            true => {
                warnings.push(format!("~/.ssh/config: the section `{}` is not used", line.trim()));
                format!("Host {NO_HOST}")
            }
        });
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> SshClientConfig {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(home.path().join(".ssh/config"), text).unwrap();
        SshClientConfig::read(Some(home.path()))
    }

    #[test]
    fn the_first_value_of_a_host_is_used() {
        let mut config = config(
            "Host 10.0.0.*\n  User ops\n  ProxyJump bastion\n  IdentityFile /k\nHost *\n  User other\n  Port 2222\n\
             Host bastion\n  HostName bastion.example\n",
        );
        let host = config.of("10.0.0.7");
        assert_eq!((host.user.as_deref(), host.port), (Some("ops"), Some(2222)));
        assert_eq!(host.jump.unwrap().to_string(), "bastion");
        assert_eq!(host.key_files, [PathBuf::from("/k")]);
        assert_eq!(config.of("bastion").host_name.as_deref(), Some("bastion.example"));
        assert_eq!(config.warnings, Vec::<String>::new());
    }

    #[test]
    fn a_conditional_section_is_not_used_and_named() {
        let mut config = config("Match user bob\n  User eve\nMatch all\n  User ops\n");
        assert_eq!(config.of("10.0.0.7").user.as_deref(), Some("ops"));
        assert_eq!(config.warnings, ["~/.ssh/config: the section `Match user bob` is not used"]);
    }

    #[test]
    fn a_missing_file_and_proxy_jump_none_set_nothing() {
        assert_eq!(SshClientConfig::read(Some(Path::new("/nonexistent"))).of("a"), SshHostConfig::default());
        assert_eq!(config("Host *\n  ProxyJump none\n").of("10.0.0.7").jump, None);
    }

    #[test]
    fn a_command_as_proxy_is_named() {
        let mut config = config("Host *\n  ProxyCommand nc %h %p\n");
        config.of("10.0.0.7");
        assert!(config.warnings[0].contains("ProxyCommand"), "{:?}", config.warnings);
    }
}
