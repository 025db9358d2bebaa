//! Merges the login of each host from the flags of its role, the flags of all hosts, and the remembered
//! login.

use std::collections::BTreeMap;

use kubeon_api::{HostAddress, HostRole};
use kubeon_plan::HostSpec;
use kubeon_store::HostLogin;

use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, LoginRequest, LoginRequests};
use crate::remedy::RefusedInput;

/// The role of a host in a cluster with these masters. A leaving host is always a worker.
pub fn role(host: HostAddress, masters: &[HostSpec]) -> HostRole {
    HostRole::of(masters.iter().any(|master| master.address == host))
}

/// Merges flags with remembered logins. Flags have priority.
pub fn merge_remembered(
    hosts: impl IntoIterator<Item = HostAddress>,
    masters: &[HostSpec],
    flags: &LoginRequests,
    remembered: &BTreeMap<HostAddress, HostLogin>,
) -> BTreeMap<HostAddress, HostLoginRequest> {
    let logins = |host: HostAddress| {
        let stored = remembered.get(&host).map_or_else(LoginRequest::default, |login| LoginRequest {
            port: Some(login.port),
            user: Some(login.user.clone()),
            key_file: login.key_files.first().cloned(),
            // Written by this program; a person who changed it names another one.
            jump: login.jump.as_deref().and_then(|jump| jump.parse().ok()),
            ..LoginRequest::default()
        });
        let flags = flags.of(&role(host, masters)).or(stored);
        (host, HostLoginRequest { flags, ..HostLoginRequest::default() })
    };
    hosts.into_iter().map(logins).collect()
}

/// Hosts that are not declared, such as leaving workers, keep their remembered user and port.
pub fn keep_undeclared(
    logins: &mut BTreeMap<HostAddress, HostLoginRequest>,
    is_declared: impl Fn(&HostAddress) -> bool,
    remembered: &BTreeMap<HostAddress, HostLogin>,
) {
    for (host, logins) in logins {
        if let Some(login) = remembered.get(host).filter(|_| !is_declared(host)) {
            logins.flags.user = Some(login.user.clone());
            logins.flags.port = Some(login.port);
        }
    }
}

/// Checks that every flag of a role has an effect on a host of that role.
///
/// # Errors
/// Refuses a flag if its role has no hosts, or a more specific setting replaces it on every host.
pub fn refuse_unused_flags(
    flags: &LoginRequests,
    masters: &[HostSpec],
    logins: &BTreeMap<HostAddress, HostLoginRequest>,
) -> Result<(), EngineError> {
    let mut unused = Vec::new();
    for login_role in [HostRole::Master, HostRole::Worker] {
        let hosts = logins.iter().filter(|(host, _)| role(**host, masters) == login_role);
        let hosts: Vec<&LoginRequest> = hosts.map(|(_, logins)| &logins.flags).collect();
        for part in flags.only(&login_role).unused(&hosts) {
            let reason = if hosts.is_empty() {
                format!("there is no {login_role}")
            } else {
                format!("a more specific setting replaces it on every {login_role}")
            };
            unused.push((RefusedInput::RoleLogin { role: login_role.clone(), part }, reason));
        }
    }
    if unused.is_empty() {
        Ok(())
    } else {
        Err(EngineError::inputs("a login setting applies to no host", unused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login_request::{LoginPart, SecretSource};

    fn host(last: u8) -> HostAddress {
        format!("10.0.0.{last}").parse().unwrap()
    }

    /// Two hosts with a remembered user and port each.
    fn remembered() -> BTreeMap<HostAddress, HostLogin> {
        let login = |user: &str, port| HostLogin {
            user: user.to_owned(),
            port,
            key_files: vec!["/k".into()],
            jump: None,
        };
        [(host(1), login("first", 2201)), (host(2), login("second", 2202))].into()
    }

    fn masters() -> Vec<HostSpec> {
        vec![HostSpec::at(host(1))]
    }

    fn logins(flags: &LoginRequests) -> BTreeMap<HostAddress, HostLoginRequest> {
        merge_remembered([host(1), host(2), host(3)], &masters(), flags, &remembered())
    }

    fn account(logins: &BTreeMap<HostAddress, HostLoginRequest>, last: u8) -> (Option<&str>, Option<u16>) {
        let flags = &logins[&host(last)].flags;
        (flags.user.as_deref(), flags.port)
    }

    fn user(name: &str) -> LoginRequest {
        LoginRequest { user: Some(name.to_owned()), ..LoginRequest::default() }
    }

    fn password(file: &str) -> LoginRequest {
        LoginRequest { password: Some(SecretSource::File(file.into())), ..LoginRequest::default() }
    }

    fn refused(
        flags: &LoginRequests,
        logins: &BTreeMap<HostAddress, HostLoginRequest>,
    ) -> Vec<(RefusedInput, String)> {
        refuse_unused_flags(flags, &masters(), logins)
            .err()
            .and_then(|error| error.refused)
            .map(|reasons| reasons.inputs)
            .unwrap_or_default()
    }

    fn worker(part: LoginPart) -> RefusedInput {
        RefusedInput::RoleLogin { role: HostRole::Worker, part }
    }

    #[test]
    fn flags_of_all_hosts_win_over_remembered_logins() {
        let logins = logins(&LoginRequests { all: user("admin"), ..LoginRequests::default() });
        assert_eq!(account(&logins, 1), (Some("admin"), Some(2201)));
        assert_eq!(logins[&host(1)].flags.key_file, Some("/k".into()));
        assert_eq!(account(&logins, 3), (Some("admin"), None));
    }

    #[test]
    fn flags_of_a_role_win_over_flags_of_all_hosts() {
        let flags = LoginRequests {
            all: user("admin"),
            masters: password("a"),
            workers: LoginRequest { port: Some(2200), ..password("b") }.or(user("ops")),
        };
        let logins = logins(&flags);
        assert_eq!(account(&logins, 1), (Some("admin"), Some(2201)));
        assert_eq!(account(&logins, 2), (Some("ops"), Some(2200)));
        assert_eq!(account(&logins, 3), (Some("ops"), Some(2200)));
        let passwords = [1, 2, 3].map(|last| logins[&host(last)].flags.password.clone().unwrap());
        assert_eq!(passwords, ["a", "b", "b"].map(|file| SecretSource::File(file.into())));
        assert!(refused(&flags, &logins).is_empty());
    }

    #[test]
    fn flags_of_a_role_without_hosts_are_refused_by_name() {
        let flags = LoginRequests {
            workers: LoginRequest { key_file: Some("k".into()), ..password("b") },
            ..LoginRequests::default()
        };
        let logins = merge_remembered([host(1)], &masters(), &flags, &remembered());
        let none = "there is no worker".to_owned();
        let unused = [LoginPart::Password, LoginPart::KeyFile].map(|part| (worker(part), none.clone()));
        assert_eq!(refused(&flags, &logins), unused);
        let of_all = LoginRequests { all: user("admin"), ..LoginRequests::default() };
        assert!(refused(&of_all, &logins).is_empty(), "a flag of all hosts may be replaced on every host");
    }

    #[test]
    fn a_flag_of_a_role_is_refused_if_it_is_replaced_on_every_host() {
        let flags = LoginRequests {
            workers: LoginRequest { port: Some(2200), ..LoginRequest::default() },
            ..LoginRequests::default()
        };
        let mut logins = logins(&flags);
        logins.get_mut(&host(2)).unwrap().flags.port = Some(2222);
        assert!(refused(&flags, &logins).is_empty(), "it applies to the other host");
        logins.get_mut(&host(3)).unwrap().flags.port = Some(2223);
        let reason = "a more specific setting replaces it on every worker";
        assert_eq!(refused(&flags, &logins), [(worker(LoginPart::Port), reason.to_owned())]);
    }

    #[test]
    fn an_undeclared_host_keeps_its_remembered_user() {
        let all = LoginRequest { port: Some(22), key_file: Some("/new".into()), ..user("admin") };
        let mut logins = logins(&LoginRequests { all, ..LoginRequests::default() });
        keep_undeclared(&mut logins, |declared| *declared == host(1), &remembered());
        assert_eq!(account(&logins, 1), (Some("admin"), Some(22)));
        assert_eq!(account(&logins, 2), (Some("second"), Some(2202)));
        // Keys and passwords of the flags are used, because they are not remembered.
        assert_eq!(logins[&host(2)].flags.key_file, Some("/new".into()));
        assert_eq!(account(&logins, 3), (Some("admin"), Some(22)), "no login is remembered");
    }
}
