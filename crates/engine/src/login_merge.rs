//! What is said of each host's login, put together: by flags of its role, by flags of all hosts, by what is remembered.

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

/// What is said on the command line wins over what is remembered.
pub fn merge_remembered(
    hosts: impl IntoIterator<Item = HostAddress>,
    masters: &[HostSpec],
    flags: &LoginRequests,
    remembered: &BTreeMap<HostAddress, HostLogin>,
) -> BTreeMap<HostAddress, HostLoginRequest> {
    let said = |host: HostAddress| {
        let known = remembered.get(&host).map_or_else(LoginRequest::default, |login| LoginRequest {
            port: Some(login.port),
            user: Some(login.user.clone()),
            key_file: login.key_files.first().cloned(),
            ..LoginRequest::default()
        });
        let flags = flags.of(role(host, masters)).or(known);
        (host, HostLoginRequest { flags, ..HostLoginRequest::default() })
    };
    hosts.into_iter().map(said).collect()
}

/// What is said of the hosts that are declared says nothing of the others, such as workers that are to leave: these keep
/// the user and the port that are remembered.
pub fn keep_undeclared(
    said: &mut BTreeMap<HostAddress, HostLoginRequest>,
    is_declared: impl Fn(&HostAddress) -> bool,
    remembered: &BTreeMap<HostAddress, HostLogin>,
) {
    for (host, said) in said {
        if let Some(login) = remembered.get(host).filter(|_| !is_declared(host)) {
            said.flags.user = Some(login.user.clone());
            said.flags.port = Some(login.port);
        }
    }
}

/// Whoever says something of a role means hosts of it.
///
/// # Errors
/// Refuses, by name, flags of a role that hold for none of its hosts: it has none, or something closer is said of each.
pub fn refuse_unused_flags(
    flags: &LoginRequests,
    masters: &[HostSpec],
    said: &BTreeMap<HostAddress, HostLoginRequest>,
) -> Result<(), EngineError> {
    let mut stop = EngineError::refused("a login flag holds for no host");
    for of in [LoginRole::Master, LoginRole::Worker] {
        let hosts = said.iter().filter(|(host, _)| role(**host, masters) == of);
        let hosts: Vec<&LoginRequest> = hosts.map(|(_, said)| &said.flags).collect();
        for part in flags.only(of).idle(&hosts) {
            let name = of.name();
            let reason = if hosts.is_empty() {
                format!("there is no {name}")
            } else {
                format!("something closer is said of every {name}")
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

    fn said(flags: &LoginRequests) -> BTreeMap<HostAddress, HostLoginRequest> {
        merge_remembered([host(1), host(2), host(3)], &masters(), flags, &remembered())
    }

    fn account(said: &BTreeMap<HostAddress, HostLoginRequest>, last: u8) -> (Option<&str>, Option<u16>) {
        let flags = &said[&host(last)].flags;
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
        said: &BTreeMap<HostAddress, HostLoginRequest>,
    ) -> Vec<(String, String)> {
        refuse_unused_flags(flags, &masters(), said).err().map(|stop| stop.rows).unwrap_or_default()
    }

    #[test]
    fn what_is_said_of_all_hosts_wins_over_what_is_remembered() {
        let said = said(&LoginRequests { all: user("admin"), ..LoginRequests::default() });
        assert_eq!(account(&said, 1), (Some("admin"), Some(2201)));
        assert_eq!(said[&host(1)].flags.key_file, Some("/k".into()));
        assert_eq!(account(&said, 3), (Some("admin"), None));
    }

    #[test]
    fn what_is_said_of_a_role_wins_for_its_hosts_over_what_is_said_of_all() {
        let flags = LoginRequests {
            all: user("admin"),
            masters: password("a"),
            workers: LoginRequest { port: Some(2200), ..password("b") }.or(user("ops")),
        };
        let said = said(&flags);
        assert_eq!(account(&said, 1), (Some("admin"), Some(2201)));
        assert_eq!(account(&said, 2), (Some("ops"), Some(2200)));
        assert_eq!(account(&said, 3), (Some("ops"), Some(2200)));
        let passwords = [1, 2, 3].map(|last| said[&host(last)].flags.password.clone().unwrap());
        assert_eq!(passwords, ["a", "b", "b"].map(|file| SecretSource::File(file.into())));
        assert!(refused(&flags, &said).is_empty());
    }

    #[test]
    fn what_is_said_of_a_role_without_hosts_is_refused_by_name() {
        let flags = LoginRequests {
            workers: LoginRequest { key_file: Some("k".into()), ..password("b") },
            ..LoginRequests::default()
        };
        let said = merge_remembered([host(1)], &masters(), &flags, &remembered());
        let none = "there is no worker".to_owned();
        let rows = ["passwd", "pk-file"].map(|part| (format!("--default-worker-{part}"), none.clone()));
        assert_eq!(refused(&flags, &said), rows);
        let of_all = LoginRequests { all: user("admin"), ..LoginRequests::default() };
        assert!(refused(&of_all, &said).is_empty(), "what is said of all hosts may be said closer of each");
    }

    #[test]
    fn what_is_said_of_a_role_is_refused_where_every_host_of_it_is_told_otherwise() {
        let flags = LoginRequests {
            workers: LoginRequest { port: Some(2200), ..LoginRequest::default() },
            ..LoginRequests::default()
        };
        let mut said = said(&flags);
        said.get_mut(&host(2)).unwrap().flags.port = Some(2222);
        assert!(refused(&flags, &said).is_empty(), "it holds for the other");
        said.get_mut(&host(3)).unwrap().flags.port = Some(2223);
        let row = ("--default-worker-port", "something closer is said of every worker");
        assert_eq!(refused(&flags, &said), [(row.0.to_owned(), row.1.to_owned())]);
    }

    #[test]
    fn a_host_that_is_not_declared_any_more_keeps_its_own_account() {
        let all = LoginRequest { port: Some(22), key_file: Some("/new".into()), ..user("admin") };
        let mut said = said(&LoginRequests { all, ..LoginRequests::default() });
        keep_undeclared(&mut said, |declared| *declared == host(1), &remembered());
        assert_eq!(account(&said, 1), (Some("admin"), Some(22)));
        assert_eq!(account(&said, 2), (Some("second"), Some(2202)));
        // Keys and passwords are not remembered for good: what is said opens it.
        assert_eq!(said[&host(2)].flags.key_file, Some("/new".into()));
        assert_eq!(account(&said, 3), (Some("admin"), Some(22)), "nothing is remembered of it");
    }
}
