//! Logins to a real sshd: accepted logins, and the messages of refused logins.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{Sshd, host, key, sh};
use futures::future::join_all;
use kubeon_api::HostAddress;
use kubeon_api::Secret;
use kubeon_link_host::{
    Command, Exit, HostKeyPolicy, HostKeys, KeySource, Limits, Login, LoginMethod, SshHosts, SshSettings,
};
use kubeon_wire::{Category, StepFailure};
use tokio::sync::Semaphore;

async fn run(hosts: &SshHosts, line: &str) -> Result<Exit, StepFailure> {
    hosts.exec(host(), Command::new(line), &|_, _| {}).await
}

fn hosts(login: Login, keys: HostKeys) -> SshHosts {
    SshHosts::new(SshSettings::new(login), Arc::new(keys))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_login_serves_many_commands_at_once() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let results = join_all((0..200).map(|n| {
        let pool = pool.clone();
        async move { run(&pool, &format!("exit {n}")).await.unwrap() }
    }))
    .await;
    assert_eq!(results, (0..200).map(Exit::Code).collect::<Vec<_>>());
    assert_eq!(sshd.logins(), 1, "{}", sshd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_allows_few_sessions_is_used_within_them() {
    let sshd = Sshd::with("MaxSessions 2");
    let pool = sshd.hosts();
    let results = join_all((0..20).map(|_| run(&pool, "exit 0"))).await;
    assert!(results.into_iter().all(|result| result.unwrap().success()));
    // Two commands run until the third one was refused.
    let wait = sshd.path("wait");
    fs::write(&wait, "").unwrap();
    let started = Semaphore::new(0);
    let line = format!("echo started; while [ -e '{}' ]; do sleep 0.1; done", wait.display());
    let on_output = |_, _: &[u8]| started.add_permits(1);
    let busy = || pool.exec(host(), Command::new(&line), &on_output);
    let (one, two, three) = tokio::join!(busy(), busy(), async {
        started.acquire_many(2).await.unwrap().forget();
        let refused = run(&pool, "exit 0").await;
        fs::remove_file(&wait).unwrap();
        refused
    });
    assert!(one.unwrap().success() && two.unwrap().success());
    assert!(three.unwrap_err().to_string().contains("MaxSessions"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_hosts_are_reached_in_parallel() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    let start = Instant::now();
    let all = (1..=100).map(|n| {
        let (pool, host): (_, HostAddress) = (pool.clone(), format!("127.0.7.{n}").parse().unwrap());
        async move { pool.exec(host, Command::new("sleep 2"), &|_, _| {}).await }
    });
    assert!(join_all(all).await.into_iter().all(|result| result.unwrap().success()));
    eprintln!("100 hosts, each a login and a command of 2 s: {:?}", start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(100));
    assert_eq!(sshd.logins(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_key_is_accepted() {
    let sshd = Sshd::start();
    let kinds = [
        ("rsa", "-t rsa -b 2048", ""),
        ("rsa_pem", "-t rsa -b 2048 -m PEM", ""),
        ("rsa_pkcs8", "-t rsa -b 2048 -m PKCS8", ""),
        ("ecdsa", "-t ecdsa", ""),
        ("ecdsa_pem", "-t ecdsa -m PEM", ""),
        ("sealed", "-t ed25519 -a 4", "open sesame"),
        ("sealed_pem", "-t rsa -b 2048 -m PEM", "open sesame"),
    ];
    for (name, kind, passphrase) in kinds {
        key(&sshd.path(name), kind, passphrase);
        fs::copy(sshd.path(&format!("{name}.pub")), sshd.path("authorized")).unwrap();
        let login = sshd.login_with(name, Some(passphrase).filter(|text| !text.is_empty()));
        let result = run(&sshd.hosts_with(login, Limits::default()), "exit 0").await;
        assert!(result.is_ok(), "{name}: {result:?}");
    }
    let log = sshd.log();
    assert!(log.contains("RSA SHA256") && !log.contains("ssh-rsa not in PubkeyAcceptedAlgorithms"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_the_default_keys_are_accepted() {
    let sshd = Sshd::start();
    let home = sshd.path("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::copy(sshd.path("id"), home.join(".ssh/id_ed25519")).unwrap();
    key(&home.join(".ssh/id_rsa"), "-t rsa -b 2048", "protected");
    let login = Login::new("root").at_port(sshd.port).with_usual_keys(None, Some(home));
    assert!(run(&sshd.hosts_with(login, Limits::default()), "exit 0").await.is_ok());

    let socket = sshd.path("agent");
    let agent =
        sh(&format!("ssh-agent -a '{}' | sed -n 's/^SSH_AGENT_PID=\\([0-9]*\\).*/\\1/p'", socket.display()));
    let add = |file: &str| {
        sh(&format!("SSH_AUTH_SOCK='{}' ssh-add -q '{}'", socket.display(), sshd.path(file).display()))
    };
    key(&sshd.path("other"), "-t rsa -b 2048", "");
    add("other");
    add("id");
    let login = Login::new("root").at_port(sshd.port).with_usual_keys(Some(socket), None);
    let result = run(&sshd.hosts_with(login, Limits::default()), "exit 0").await;
    sh(&format!("kill {agent}"));
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_lists_the_tried_methods_and_is_not_repeated() {
    let sshd = Sshd::start();
    key(&sshd.path("wrong"), "-t ed25519", "");
    key(&sshd.path("sealed"), "-t ed25519", "secret");
    let method = |name: &str| LoginMethod::KeyFile { path: sshd.path(name), passphrase: None };
    let login = Login::new("root")
        .at_port(sshd.port)
        .with(method("wrong"))
        .with(method("missing"))
        .with(method("sealed"))
        .with(LoginMethod::Password(Secret::new("hunter2")));
    let pool = sshd.hosts_with(login, Limits::default());
    let failures = join_all((0..5).map(|_| run(&pool, "exit 0"))).await;
    for failure in failures {
        let failure = failure.unwrap_err();
        assert_eq!(failure.category, Category::Denied);
        let message = failure.to_string();
        for word in [
            "127.0.0.1 refused the login of root",
            "wrong: refused",
            "missing: there is no such file",
            "protected by a passphrase",
            "password: refused",
        ] {
            assert!(message.contains(word), "{message}");
        }
        assert!(!message.contains("hunter2") && !message.contains("secret"), "{message}");
    }
    assert_eq!(sshd.log().matches("Connection from").count(), 1, "{}", sshd.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_passphrase_is_named() {
    let sshd = Sshd::start();
    key(&sshd.path("sealed"), "-t ed25519 -a 4", "right");
    let pool = sshd.hosts_with(sshd.login_with("sealed", Some("wrong")), Limits::default());
    let message = run(&pool, "exit 0").await.unwrap_err().to_string();
    assert!(message.contains("cannot be opened with the passphrase given"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_key_is_refused_before_the_login() {
    let sshd = Sshd::start();
    key(&sshd.path("old_host"), "-t ed25519", "");
    let public = fs::read_to_string(sshd.path("old_host.pub")).unwrap();
    let pinned = sshd.path("pinned");
    fs::write(&pinned, format!("[127.0.0.1]:{} {public}", sshd.port)).unwrap();
    let print = |name: &str| sh(&format!("ssh-keygen -lf '{}' | cut -d' ' -f2", sshd.path(name).display()));
    for policy in [HostKeyPolicy::Pinned, HostKeyPolicy::AcceptNew, HostKeyPolicy::Probe] {
        let pool = hosts(sshd.login(), HostKeys::new(policy).with_pinned(&pinned).unwrap());
        let failure = run(&pool, "exit 0").await.unwrap_err();
        assert_eq!(failure.category, Category::HostKeyMismatch);
        let message = failure.to_string();
        assert!(message.contains(&print("old_host")) && message.contains(&print("host")), "{message}");
        assert!(pool.host_keys().new_keys().is_empty());
        let remedy = message.split("with: ").nth(1).unwrap();
        if policy == HostKeyPolicy::Probe {
            sh(&format!("{remedy} 2>&1"));
            assert!(!fs::read_to_string(&pinned).unwrap().contains("ssh-ed25519"), "{remedy}");
        }
    }
    assert_eq!(sshd.logins(), 0);
}

/// The compared known_hosts file may be a copy: the message names the original, which the user must change.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_host_key_is_reported_with_the_original_file() {
    let sshd = Sshd::start();
    key(&sshd.path("old_host"), "-t ed25519", "");
    let public = fs::read_to_string(sshd.path("old_host.pub")).unwrap();
    let copy = sshd.path("copy");
    fs::write(&copy, format!("# by hand\n[127.0.0.1]:{} {public}", sshd.port)).unwrap();
    let place = KeySource::Elsewhere("ConfigMap default/default-shop-known-hosts".to_owned());
    let keys = HostKeys::new(HostKeyPolicy::AcceptNew).with_pinned_of(&copy, place).unwrap();
    let message = run(&hosts(sshd.login(), keys), "exit 0").await.unwrap_err().to_string();
    let (map, line) = ("ConfigMap default/default-shop-known-hosts", "line 2");
    assert!(message.contains(&format!("({map}, {line})")), "{message}");
    assert!(message.ends_with(&format!("remove that line from {map}")), "{message}");
    assert!(!message.contains("copy"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_pinned_and_then_required() {
    let sshd = Sshd::start();
    let pinned = sshd.path("pinned");
    let with = |policy| hosts(sshd.login(), HostKeys::new(policy).with_pinned(&pinned).unwrap());
    let unknown = run(&with(HostKeyPolicy::Pinned), "exit 0").await.unwrap_err();
    assert_eq!(unknown.category, Category::UnknownHostKey, "{unknown}");

    let first = with(HostKeyPolicy::AcceptNew);
    run(&first, "exit 0").await.unwrap();
    let new = first.host_keys().new_keys();
    let print = sh(&format!("ssh-keygen -lf '{}' | cut -d' ' -f2", sshd.path("host").display()));
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].fingerprint, format!("ED25519 {print}"));
    fs::write(&pinned, first.host_keys().pinned_text()).unwrap();

    let second = with(HostKeyPolicy::Pinned);
    run(&second, "exit 0").await.unwrap();
    assert!(second.host_keys().new_keys().is_empty());
    assert_eq!(second.host_keys().pinned_text(), fs::read_to_string(&pinned).unwrap());
    let openssh = sh(&format!(
        "ssh -F none -o StrictHostKeyChecking=yes -o UserKnownHostsFile='{}' -i '{}' -p {} root@127.0.0.1 echo fine 2>&1",
        pinned.display(),
        sshd.path("id").display(),
        sshd.port
    ));
    assert_eq!(openssh, "fine", "OpenSSH reads the pinned file");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_own_hashed_known_hosts_are_enough() {
    let sshd = Sshd::start();
    let known = sshd.path("known_hosts");
    sh(&format!(
        "printf '[127.0.0.1]:%s %s\\n' {} \"$(cat '{}')\" > '{known}'; ssh-keygen -q -H -f '{known}' 2>/dev/null",
        sshd.port,
        sshd.path("host.pub").display(),
        known = known.display()
    ));
    assert!(fs::read_to_string(&known).unwrap().starts_with("|1|"));
    let pool = hosts(sshd.login(), HostKeys::new(HostKeyPolicy::Pinned).with_known_hosts(&known).unwrap());
    run(&pool, "exit 0").await.unwrap();
    assert_eq!(pool.host_keys().new_keys().len(), 1, "the cluster's file does not contain the key yet");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_key_is_requested_when_a_host_has_several() {
    let rsa = tempfile::tempdir().unwrap();
    key(&rsa.path().join("rsa"), "-t rsa -b 2048", "");
    let sshd = Sshd::with(&format!("HostKey {}/rsa", rsa.path().display()));
    let public = fs::read_to_string(rsa.path().join("rsa.pub")).unwrap();
    let pinned = sshd.path("pinned");
    fs::write(&pinned, format!("[127.0.0.1]:{} {public}", sshd.port)).unwrap();
    let pool = hosts(sshd.login(), HostKeys::new(HostKeyPolicy::Pinned).with_pinned(&pinned).unwrap());
    run(&pool, "exit 0").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_key_can_be_read_without_a_login() {
    let sshd = Sshd::start();
    let seen = sshd.hosts().read_host_key(host()).await.unwrap();
    let print = sh(&format!("ssh-keygen -lf '{}' | cut -d' ' -f2", sshd.path("host").display()));
    assert_eq!(seen.fingerprint, format!("ED25519 {print}"));
    assert_eq!(sshd.logins(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_known_hosts_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pinned");
    fs::write(&path, "127.0.0.1 ssh-ed25519 AAAA\n").unwrap();
    let error = HostKeys::new(HostKeyPolicy::Pinned).with_pinned(&path).err().unwrap().to_string();
    assert!(error.contains("pinned, line 1,"), "{error}");
    let elsewhere = KeySource::Elsewhere("ConfigMap default/default-shop-known-hosts".to_owned());
    let error =
        HostKeys::new(HostKeyPolicy::Pinned).with_pinned_of(&path, elsewhere).err().unwrap().to_string();
    assert!(error.starts_with("ConfigMap default/default-shop-known-hosts, line 1,"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_is_unreachable_within_seconds() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let pool = hosts(Login::new("root").at_port(port), HostKeys::new(HostKeyPolicy::AcceptNew));
    let start = Instant::now();
    let failure = run(&pool, "exit 0").await.unwrap_err();
    assert_eq!(failure.category, Category::Unreachable);
    assert!(failure.to_string().contains("connection refused"), "{failure}");
    assert!(start.elapsed() < Duration::from_secs(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_during_the_attempts_is_reached() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let pool = hosts(Login::new("root").at_port(port), HostKeys::new(HostKeyPolicy::AcceptNew));
    let trying = tokio::spawn(async move { run(&pool, "exit 0").await.unwrap_err() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    drop(tokio::task::spawn_blocking(move || listener.accept().unwrap().0).await.unwrap());
    trying.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_answer_costs_the_connect_time_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut queue = Vec::new();
    // Once the queue of waiting connections is full, the kernel answers no more connections.
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queue.push(stream);
    }
    let limits = Limits { connect: Duration::from_secs(1), ..Limits::default() };
    let settings = SshSettings { limits, ..SshSettings::new(Login::new("root").at_port(address.port())) };
    let pool = SshHosts::new(settings, Arc::new(HostKeys::new(HostKeyPolicy::AcceptNew)));
    let start = Instant::now();
    let failures = join_all((0..10).map(|_| run(&pool, "exit 0"))).await;
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    for failure in failures {
        let failure = failure.unwrap_err();
        assert_eq!(failure.category, Category::Unreachable);
        assert!(failure.to_string().contains("no answer within 1 s"), "{failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_without_ssh_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(3) {
            let mut stream = stream.unwrap();
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            stream.read_to_end(&mut Vec::new()).ok();
        }
    });
    let pool = hosts(Login::new("root").at_port(port), HostKeys::new(HostKeyPolicy::AcceptNew));
    let failure = run(&pool, "exit 0").await.unwrap_err();
    assert!(failure.to_string().contains("does not serve SSH"), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_connection_is_reopened_a_limited_number_of_times() {
    let sshd = Sshd::start();
    let pool = sshd.hosts();
    for _ in 0..3 {
        let cut = run(&pool, "kill -9 $(ps -o ppid= -p $(ps -o ppid= -p $$)) $PPID; sleep 5").await;
        assert_eq!(cut.unwrap_err().category, Category::Unreachable);
    }
    let failure = run(&pool, "exit 0").await.unwrap_err();
    assert!(failure.to_string().contains("broke 3 times"), "{failure}");
    assert_eq!(sshd.logins(), 3);
}
