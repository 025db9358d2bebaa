//! The login of each host, merged from the flags of its role, the flags of all hosts, and what is remembered.

use std::collections::BTreeMap;

use kubeon_api::HostAddress;
use kubeon_plan::HostSpec;
use kubeon_store::HostLogin;

use crate::error::EngineError;
use crate::login_request::{HostLoginRequest, LoginRequest, LoginRequests, LoginRole};

/// What a host is in a cluster with these masters. Only workers are ever about to leave.
pub fn role(host: HostAddress, masters: &[HostSpec]) -> LoginRole {
    if masters.iter().any(|master| master.address == host) { LoginRole::Master } else { LoginRole::Worker }
}

/// Flags win over what is remembered.
pub fn merge_remembered(
    hosts: impl IntoIterator<Item = HostAddress>,
    masters: &[HostSpec],
    flags: &LoginRequests,
    remembered: &BTreeMap<HostAddress, HostLogin>,
) -> BTreeMap<HostAddress, HostLoginRequest> {
    let logins = |host: HostAddress| {
        let known = remembered.get(&host).map_or_else(LoginRequest::default, |login| LoginRequest {
            port: Some(login.port),
            user: Some(login.user.clone()),
            key_file: login.key_files.first().cloned(),
            ..LoginRequest::default()
        });
        let flags = flags.of(role(host, masters)).or(known);
        (host, HostLoginRequest { flags, ..HostLoginRequest::default() })
    };
    hosts.into_iter().map(logins).collect()
}

/// Hosts that are not declared, such as leaving workers, keep the user and the port that are remembered.
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

/// A flag of a role must have an effect on a host of that role.
///
/// # Errors
/// Refuses each flag of a role that has no effect: the role has no hosts, or a closer setting replaces it on each.
pub fn refuse_unused_flags(
    flags: &LoginRequests,
    masters: &[HostSpec],
    logins: &BTreeMap<HostAddress, HostLoginRequest>,
) -> Result<(), EngineError> {
    let mut stop = EngineError::refused("a login flag holds for no host");
    for of in [LoginRole::Master, LoginRole::Worker] {
        let hosts = logins.iter().filter(|(host, _)| role(**host, masters) == of);
        let hosts: Vec<&LoginRequest> = hosts.map(|(_, logins)| &logins.flags).collect();
        for part in flags.only(of).idle(&hosts) {
            let name = of.name();
            let reason = if hosts.is_empty() {
                format!("there is no {name}")
            } else {
                format!("a closer setting replaces it on every {name}")
            };
            stop = stop.row(format!("--default-{name}-{part}"), reason);
        }
    }
    if stop.rows.is_empty() { Ok(()) } else { Err(stop) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::login_request::SecretSource;

    fn host(last: u8) -> HostAddress {
        format!("10.0.0.{last}").parse().unwrap()
    }

    /// Two hosts that are remembered with an account and a port of their own.
    fn remembered() -> BTreeMap<HostAddress, HostLogin> {
        let login =
            |user: &str, port| HostLogin { user: user.to_owned(), port, key_files: vec!["/k".into()] };
        [(host(1), login("first", 2201)), (host(2), login("second", 2202))].into()
    }

    fn masters() -> Vec<HostSpec> {
        vec![HostSpec { address: host(1), name: None, labels: BTreeMap::new() }]
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
    ) -> Vec<(String, String)> {
        refuse_unused_flags(flags, &masters(), logins).err().map(|stop| stop.rows).unwrap_or_default()
    }

    #[test]
    fn what_is_said_of_all_hosts_wins_over_what_is_remembered() {
        let logins = logins(&LoginRequests { all: user("admin"), ..LoginRequests::default() });
        assert_eq!(account(&logins, 1), (Some("admin"), Some(2201)));
        assert_eq!(logins[&host(1)].flags.key_file, Some("/k".into()));
        assert_eq!(account(&logins, 3), (Some("admin"), None));
    }

    #[test]
    fn what_is_said_of_a_role_wins_for_its_hosts_over_what_is_said_of_all() {
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
    fn what_is_said_of_a_role_without_hosts_is_refused_by_name() {
        let flags = LoginRequests {
            workers: LoginRequest { key_file: Some("k".into()), ..password("b") },
            ..LoginRequests::default()
        };
        let logins = merge_remembered([host(1)], &masters(), &flags, &remembered());
        let none = "there is no worker".to_owned();
        let rows = ["passwd", "pk-file"].map(|part| (format!("--default-worker-{part}"), none.clone()));
        assert_eq!(refused(&flags, &logins), rows);
        let of_all = LoginRequests { all: user("admin"), ..LoginRequests::default() };
        assert!(refused(&of_all, &logins).is_empty(), "a flag of all hosts may be replaced on each");
    }

    #[test]
    fn what_is_said_of_a_role_is_refused_where_every_host_of_it_is_told_otherwise() {
        let flags = LoginRequests {
            workers: LoginRequest { port: Some(2200), ..LoginRequest::default() },
            ..LoginRequests::default()
        };
        let mut logins = logins(&flags);
        logins.get_mut(&host(2)).unwrap().flags.port = Some(2222);
        assert!(refused(&flags, &logins).is_empty(), "it holds for the other");
        logins.get_mut(&host(3)).unwrap().flags.port = Some(2223);
        let row = ("--default-worker-port", "a closer setting replaces it on every worker");
        assert_eq!(refused(&flags, &logins), [(row.0.to_owned(), row.1.to_owned())]);
    }

    #[test]
    fn a_host_that_is_not_declared_any_more_keeps_its_own_account() {
        let all = LoginRequest { port: Some(22), key_file: Some("/new".into()), ..user("admin") };
        let mut logins = logins(&LoginRequests { all, ..LoginRequests::default() });
        keep_undeclared(&mut logins, |declared| *declared == host(1), &remembered());
        assert_eq!(account(&logins, 1), (Some("admin"), Some(22)));
        assert_eq!(account(&logins, 2), (Some("second"), Some(2202)));
        // Keys and passwords are not remembered for good: the flags open it.
        assert_eq!(logins[&host(2)].flags.key_file, Some("/new".into()));
        assert_eq!(account(&logins, 3), (Some("admin"), Some(22)), "nothing is remembered of it");
    }
}
