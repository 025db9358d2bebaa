//! Hosts behind real jump hosts.

use std::sync::Arc;

use futures::future::join_all;
use kubeon_api::HostAddress;
use kubeon_link_host::{Command, HostKeyPolicy, HostKeys, JumpHost, Login, SshHosts, SshSettings};
use kubeon_wire::{Category, StepFailure};

use crate::support::{Sshd, sh};

/// The jump host at `127.0.0.2`, whose key the caller writes to its file `known` or not.
fn jump_host(sshd: &Sshd) -> JumpHost {
    JumpHost { host: "127.0.0.2".to_owned(), login: sshd.login() }
}

fn know(sshd: &Sshd) {
    sh(&format!("ssh-keyscan -p {} 127.0.0.2 > '{}' 2>/dev/null", sshd.port, sshd.path("known").display()));
}

fn pool(login: Login, jump: &Sshd) -> SshHosts {
    let keys = HostKeys::new(HostKeyPolicy::AcceptNew).with_known_hosts(&jump.path("known")).unwrap();
    SshHosts::new(SshSettings::new(login), Arc::new(keys))
}

async fn run(pool: &SshHosts, host: &str) -> Result<(), StepFailure> {
    let host: HostAddress = host.parse().unwrap();
    pool.exec(host, Command::new("exit 0"), &|_, _| {}).await.map(|exit| assert!(exit.success()))
}

#[tokio::test(flavor = "multi_thread")]
async fn many_hosts_share_one_login_to_their_jump_host() {
    let (jump, target) = (Sshd::start(), Sshd::start());
    know(&jump);
    let pool = pool(target.login().through(Some(jump_host(&jump))), &jump);
    let hosts: Vec<String> = (1..=20).map(|n| format!("127.0.8.{n}")).collect();
    let results = join_all(hosts.iter().map(|host| run(&pool, host))).await;
    assert!(results.into_iter().all(|result| result.is_ok()), "{}", jump.log());
    assert_eq!((jump.logins(), target.logins()), (1, 20), "{}", jump.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_host_is_reached_through_another_one() {
    let (outer, inner, target) = (Sshd::start(), Sshd::start(), Sshd::start());
    know(&outer);
    know(&inner);
    let keys = HostKeys::new(HostKeyPolicy::AcceptNew).with_known_hosts(&outer.path("known")).unwrap();
    let keys = keys.with_known_hosts(&inner.path("known")).unwrap();
    let jump = JumpHost { login: inner.login().through(Some(jump_host(&outer))), ..jump_host(&inner) };
    let pool = SshHosts::new(SshSettings::new(target.login().through(Some(jump))), Arc::new(keys));
    run(&pool, "127.0.0.1").await.unwrap();
    assert_eq!((outer.logins(), inner.logins(), target.logins()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_jump_host_must_be_known() {
    let (jump, target) = (Sshd::start(), Sshd::start());
    let pool = pool(target.login().through(Some(jump_host(&jump))), &jump);
    let failure = run(&pool, "127.0.0.1").await.unwrap_err();
    assert_eq!(failure.category, Category::UnknownHostKey);
    assert!(failure.cause.contains("jump host 127.0.0.2 is not known"), "{failure}");
    assert_eq!(jump.logins(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_host_that_refuses_is_named() {
    let target = Sshd::start();
    let jump = Sshd::with("AllowTcpForwarding no");
    know(&jump);
    let pool = pool(target.login().through(Some(jump_host(&jump))), &jump);
    let failure = run(&pool, "127.0.0.1").await.unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("127.0.0.1 cannot be reached") && text.contains("AllowTcpForwarding"), "{text}");
    assert!(text.contains(&format!("through jump host root@127.0.0.2:{}", jump.port)), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jump_host_that_refuses_the_login_is_asked_once() {
    let (jump, target) = (Sshd::start(), Sshd::start());
    know(&jump);
    let refused = JumpHost { login: target.login().at_port(jump.port), ..jump_host(&jump) };
    let pool = pool(target.login().through(Some(refused)), &jump);
    let results = join_all(["127.0.0.1", "127.0.0.3", "127.0.0.4"].map(|host| run(&pool, host))).await;
    for failure in results.into_iter().map(Result::unwrap_err) {
        assert_eq!(failure.category, Category::Denied);
        assert!(failure.cause.starts_with("jump host 127.0.0.2 refused the login"), "{failure}");
    }
    assert_eq!(jump.log().matches("Failed publickey").count().max(1), 1, "{}", jump.log());
    assert_eq!(target.logins(), 0);
}
