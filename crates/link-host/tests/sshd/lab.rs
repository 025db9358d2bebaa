//! Logins of users who are not root, on a host that the tests may change. Run with
//! `KUBEON_TEST_HOST=ADDRESS KUBEON_TEST_KEY=FILE cargo test -p kubeon-link-host -- --ignored`.

use std::sync::Arc;
use std::time::Duration;

use kubeon_api::HostAddress;
use kubeon_api::Secret;
use kubeon_link_host::{
    Command, CommandInput, Copy, Exit, HostKeyPolicy, HostKeys, Login, LoginMethod, NodeProgram, SshHosts,
    SshSettings,
};
use kubeon_ports::{ActHost, ProbeHost};
use kubeon_wire::{Category, Fence, HostStep, Op};

use crate::support::CollectedOutput;

fn host() -> HostAddress {
    std::env::var("KUBEON_TEST_HOST").unwrap().parse().unwrap()
}

fn pool(login: Login) -> SshHosts {
    let program = std::env::current_exe().unwrap();
    let program = program.parent().unwrap().parent().unwrap().join("examples/fake_node");
    let node_programs = vec![NodeProgram::read(&program).unwrap()];
    let settings = SshSettings { node_programs, ..SshSettings::new(login) };
    SshHosts::new(settings, Arc::new(HostKeys::new(HostKeyPolicy::AcceptNew)))
}

fn with_password(user: &str, password: &str) -> Login {
    Login::new(user).with(LoginMethod::Password(Secret::new(password)))
}

async fn output_of(pool: &SshHosts, command: Command) -> (Exit, String, String) {
    let collected = CollectedOutput::default();
    let exit = pool.exec(host(), command, &|stream, bytes| collected.collect(stream, bytes)).await.unwrap();
    (exit, collected.out(), collected.err())
}

/// `asked` needs a password for sudo, `free` does not need one, `plain` may not use sudo. Returns when sshd has read its
/// configuration again: it then writes its process ID to its file again.
async fn make_users() {
    let path = std::env::var("KUBEON_TEST_KEY").unwrap().into();
    let root = pool(Login::new("root").with(LoginMethod::KeyFile { path, passphrase: None }));
    let line = "set -e; for u in asked free plain; do id $u >/dev/null 2>&1 || useradd -m -s /bin/bash $u; \
                echo \"$u:pa ss'$u\" | chpasswd; done; \
                printf 'asked ALL=(ALL) ALL\\nfree ALL=(ALL) NOPASSWD: ALL\\n' > /etc/sudoers.d/kubeon-test; \
                chmod 0440 /etc/sudoers.d/kubeon-test; \
                printf 'PasswordAuthentication yes\\n' > /etc/ssh/sshd_config.d/0-kubeon-test.conf; \
                before=$(stat -c %z /run/sshd.pid); kill -HUP $(cat /run/sshd.pid); \
                for i in $(seq 200); do now=$(stat -c %z /run/sshd.pid || true); \
                [ -z \"$now\" ] || [ \"$now\" = \"$before\" ] || exit 0; sleep 0.05; done; \
                echo 'sshd did not read its configuration again'; exit 1";
    let (exit, out, err) = output_of(&root, Command::new(line)).await;
    assert!(exit.success(), "{out}{err}");
}

fn login(user: &str) -> Login {
    with_password(user, &format!("pa ss'{user}"))
}

async fn acts_as_root(login: Login) {
    let pool = pool(login);
    assert!(pool.facts(host()).await.unwrap().is_root);
    let (exit, out, err) = output_of(&pool, Command::new("id -un; exit 5")).await;
    assert_eq!((exit, out.as_str(), err.as_str()), (Exit::Code(5), "root\n", ""));
    let as_user = Command { as_root: false, ..Command::new("id -u") };
    assert_ne!(output_of(&pool, as_user).await.1, "0\n");
    let input = CommandInput::Bytes(b"data".to_vec());
    assert_eq!(output_of(&pool, Command { input, ..Command::new("cat") }).await.1, "data");
    let terminal = Command { pty: true, ..Command::new("tty -s && stty -a | grep -o ' echo '; echo end") };
    let (_, out, _) = output_of(&pool, terminal).await;
    assert_eq!(out.replace('\r', ""), " echo \nend\n", "the password was not echoed");
    let limit =
        Command { timeout: Some(Duration::from_millis(500)), ..Command::new("sleep 4713 & sleep 4713") };
    assert_eq!(pool.exec(host(), limit, &|_, _| {}).await.unwrap_err().category, Category::Timeout);
    assert_eq!(output_of(&pool, Command::new("pgrep -x -f 'sleep 4713'")).await.1, "");

    let copy = Copy { source: std::env::current_exe().unwrap(), destination: "/opt/kubeon-test/x".into() };
    pool.copy(host(), &copy, &|_, _| {}).await.unwrap();
    assert_eq!(
        output_of(&pool, Command::new("stat -c %U /opt/kubeon-test/x; rm -r /opt/kubeon-test")).await.1,
        "root\n"
    );

    let fence = Fence {
        cluster: "demo".parse().unwrap(),
        uid: "u".into(),
        generation: 1,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
    };
    let session = pool.open(host(), &fence).await.unwrap();
    let op = Op::Await { checks: vec![] };
    let step = HostStep {
        id: "ok".into(),
        digest: String::new(),
        timeout_seconds: 9,
        journal: true,
        record_in: None,
        op,
    };
    assert!(session.run(step, None, &|_| {}).await.unwrap().changed);
    session.close().await;
    output_of(&pool, Command::new("rm -r /var/lib/kubeon/node")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "changes a host: needs KUBEON_TEST_HOST and KUBEON_TEST_KEY"]
async fn users_become_root_by_sudo_or_get_the_cause() {
    make_users().await;
    acts_as_root(login("free")).await;
    acts_as_root(login("asked").with_sudo_password(Secret::new("pa ss'asked"))).await;

    let wrong = pool(login("asked").with_sudo_password(Secret::new("wrong")));
    let failure = wrong.facts(host()).await.unwrap_err();
    assert_eq!(failure.category, Category::Denied);
    eprintln!("wrong sudo password: {failure}");

    let plain = pool(login("plain"));
    let facts = plain.facts(host()).await.unwrap();
    assert!(!facts.is_root && facts.cpus > 0, "a probe is still possible");
    let failure = plain.exec(host(), Command::new("id"), &|_, _| {}).await.unwrap_err();
    assert_eq!(failure.category, Category::Denied);
    eprintln!("no sudo: {failure}");

    let refused = pool(with_password("free", "wrong")).facts(host()).await.unwrap_err();
    assert_eq!(refused.category, Category::Denied);
    eprintln!("wrong password: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "changes a host: needs KUBEON_TEST_HOST, KUBEON_TEST_KEY and KUBEON_TEST_NODE"]
async fn the_real_node_program_claims_a_host_and_reports_it() {
    let path = std::env::var("KUBEON_TEST_KEY").unwrap().into();
    let login = Login::new("root").with(LoginMethod::KeyFile { path, passphrase: None });
    let program = NodeProgram::read(std::env::var("KUBEON_TEST_NODE").unwrap().as_ref()).unwrap();
    let settings = SshSettings { node_programs: vec![program.clone()], ..SshSettings::new(login) };
    let pool = SshHosts::new(settings, Arc::new(HostKeys::new(HostKeyPolicy::AcceptNew)));
    let start = std::time::Instant::now();
    let before = pool.facts(host()).await.unwrap();
    eprintln!("facts with the login: {:?}\n{before:#?}", start.elapsed());
    let fence = |generation, cluster: &str| Fence {
        cluster: cluster.parse().unwrap(),
        uid: "u".into(),
        generation,
        version: "v1.36.3".parse().unwrap(),
        role: kubeon_api::HostRole::Master,
    };
    let start = std::time::Instant::now();
    let session = pool.open(host(), &fence(5, "demo")).await.unwrap();
    eprintln!("open with upload: {:?}", start.elapsed());
    let step = |id: &str, op| HostStep {
        id: id.into(),
        digest: "d".into(),
        timeout_seconds: 9,
        journal: true,
        record_in: None,
        op,
    };
    let op = Op::Kernel {
        modules: vec![],
        parameters: [("net.ipv4.ip_forward".into(), "1".into())].into(),
        optional: vec![],
    };
    session.run(step("h1/kernel", op), None, &|event| eprintln!("{event:?}")).await.unwrap();
    session.close().await;
    let start = std::time::Instant::now();
    let facts = pool.facts(host()).await.unwrap();
    eprintln!("facts with the node program: {:?}\n{:?} {:?}", start.elapsed(), facts.claim, facts.journal);
    assert_eq!(facts.claim.unwrap().generation, 5);
    assert_eq!(facts.node_program.as_ref(), Some(program.digest()));
    assert_eq!(facts.journal[0].id, "h1/kernel");
    let older = pool.open(host(), &fence(4, "demo")).await.err().unwrap();
    assert_eq!(older.category, Category::Fenced);
    let other = pool.open(host(), &fence(9, "prod")).await.err().unwrap();
    eprintln!("older: {older}\nother: {other}");
    let session = pool.open(host(), &fence(6, "demo")).await.unwrap();
    let reset = Op::Reset { cluster: "demo".parse().unwrap() };
    let result = session.run(step("h1/reset", reset), None, &|_| {}).await;
    eprintln!("reset: {result:?}");
    session.close().await;
    assert!(pool.facts(host()).await.unwrap().claim.is_none());
}
