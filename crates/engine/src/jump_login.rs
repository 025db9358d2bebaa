//! Logins to jump hosts: from their path to users, ports and keys.

use kubeon_link_host::{JumpHost, Login, LoginMethod};

use crate::environment::EngineEnvironment;
use crate::error::EngineError;
use crate::jump_path::JumpPath;
use crate::ssh_config::SshClientConfig;

/// The most jump hosts on the way to a host: a longer path is a cycle in `~/.ssh/config`.
const MAX_JUMPS: usize = 8;

/// The last jump host of the path; its login contains the way to it.
///
/// # Errors
/// Refuses a path that is too long.
pub(crate) fn jump_host(
    path: &JumpPath,
    ssh: &mut SshClientConfig,
    environment: &EngineEnvironment,
    keys: &[LoginMethod],
) -> Result<Option<JumpHost>, EngineError> {
    let steps = complete(path, ssh)?;
    let mut last: Option<JumpHost> = None;
    for step in steps.0 {
        let config = ssh.of(&step.host);
        let user = step.user.or(config.user).or_else(|| environment.user.clone());
        let mut login = Login::new(user.unwrap_or_else(|| "root".to_owned()))
            .at_port(step.port.or(config.port).unwrap_or(22))
            .through(last);
        for key in keys.iter().cloned().chain(existing_keys(config.key_files)) {
            login = login.with(key);
        }
        login = login.with_usual_keys(environment.ssh_agent.clone(), environment.home.clone());
        last = Some(JumpHost { host: config.host_name.unwrap_or(step.host), login });
    }
    Ok(last)
}

/// The path with the jump hosts of its first host before it.
fn complete(path: &JumpPath, ssh: &mut SshClientConfig) -> Result<JumpPath, EngineError> {
    let mut path = path.clone();
    while let Some(before) = path.0.first().and_then(|first| ssh.of(&first.host).jump) {
        path.0.splice(0..0, before.0);
        if path.0.len() > MAX_JUMPS {
            return Err(EngineError::refused(format!(
                "the way through jump hosts is longer than {MAX_JUMPS}; ~/.ssh/config may name a jump host as its own jump \
                 host: {path}"
            )));
        }
    }
    Ok(path)
}

/// The key files that exist; ssh skips the others too.
pub(crate) fn existing_keys(files: Vec<std::path::PathBuf>) -> impl Iterator<Item = LoginMethod> {
    files
        .into_iter()
        .filter(|path| path.is_file())
        .map(|path| LoginMethod::KeyFile { path, passphrase: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(config: &str, path: &str) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        std::fs::write(home.path().join(".ssh/config"), config).unwrap();
        let mut ssh = SshClientConfig::read(Some(home.path()));
        let environment = EngineEnvironment { user: Some("me".to_owned()), ..EngineEnvironment::default() };
        let jump = jump_host(&path.parse().unwrap(), &mut ssh, &environment, &[]);
        jump.map(|jump| jump.unwrap().to_string()).map_err(|error| error.title)
    }

    #[test]
    fn a_jump_host_has_its_own_settings() {
        assert_eq!(resolved("", "bastion").unwrap(), "me@bastion:22");
        let config = "Host bastion\n HostName b.example\n User ops\n Port 2222\n ProxyJump outer\n";
        assert_eq!(resolved(config, "bastion").unwrap(), "ops@b.example:2222 through me@outer:22");
        assert_eq!(
            resolved(config, "root@bastion:22,inner").unwrap(),
            "me@inner:22 through root@b.example:22 through me@outer:22"
        );
    }

    #[test]
    fn a_cycle_is_refused() {
        let error = resolved("Host a\n ProxyJump b\nHost b\n ProxyJump a\n", "a").unwrap_err();
        assert!(error.contains("longer than 8"), "{error}");
    }
}
